"""Finds fields of a payload model that pydantic writes as asterisks; a job sent with one would run with the asterisks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

_SECRETS = (Secret, SecretBytes, SecretStr)


def masked_fields(model: type[BaseModel]) -> list[str]:
    """Dotted names of the fields whose values would not be sent: secrets without a serializer of their own."""
    return list(_masked(model, "", frozenset()))


def _masked(model: type[BaseModel], under: str, above: frozenset[type]) -> Iterator[str]:
    decorators = model.__pydantic_decorators__
    written = {name for each in decorators.field_serializers.values() for name in each.info.fields}
    if decorators.model_serializers or "*" in written or model in above:
        return
    for name, field in model.model_fields.items():
        if name in written:
            continue
        for kind in _kinds(field.annotation):
            if issubclass(kind, _SECRETS):
                yield under + name
            elif issubclass(kind, BaseModel):
                yield from _masked(kind, f"{under}{name}.", above | {model})


def _kinds(annotation: Any) -> Iterator[type]:
    """The classes that an annotation names, at any depth."""
    named = get_origin(annotation) or annotation
    if isinstance(named, type):
        yield named
    for inner in get_args(annotation):
        yield from _kinds(inner)
