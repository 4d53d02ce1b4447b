"""Secrets that pydantic would send as asterisks, wherever in a payload model they stand."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, Field, Secret, SecretBytes, SecretStr, field_serializer, model_serializer

from queue_kit import job
from queue_kit.rules.masked import masked_fields


class Key(BaseModel):
    key: SecretStr | None = None
    parts: dict[str, list[SecretBytes]] = {}
    parent: Key | None = None


class Login(BaseModel):
    user: str
    keys: list[Key] = []
    token: Annotated[SecretStr, Field(alias="tok")]
    pin: Secret[int]


class Written(BaseModel):
    token: SecretStr

    @field_serializer("token", when_used="json")
    def in_the_clear(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Whole(BaseModel):
    token: SecretStr

    @model_serializer
    def by_name(self) -> dict[str, str]:
        return {"token": self.token.get_secret_value()}


def test_secrets_are_found_at_any_depth() -> None:
    assert masked_fields(Login) == ["keys.key", "keys.parts", "token", "pin"]


@pytest.mark.parametrize("model", [Written, Whole])
def test_a_secret_that_the_model_writes_itself_is_sent(model: type[BaseModel]) -> None:
    assert masked_fields(model) == []
    assert model.model_validate({"token": "abc"}).model_dump(mode="json") == {"token": "abc"}


def test_a_job_with_a_secret_that_would_not_arrive_is_refused_when_it_is_declared() -> None:
    with pytest.raises(ValueError, match=r"log-in: payload: pydantic would send keys.key, keys.parts, token, pin as asterisks"):
        job("log-in", payload=Login)
