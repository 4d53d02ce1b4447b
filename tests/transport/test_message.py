"""The quick reader of bodies gives what kombu's gives, and leaves to it what it cannot."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID

import pytest
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.serialization import dumps, registry
from kombu.transport.virtual.base import Message

from queue_kit.transport.message import JobMessage

BODIES: dict[str, Any] = {
    "task": [[1, "a"], {"b": {"c": [None, True, 1.5]}}, {"callbacks": None}],
    "words": "Grüße, 世界 🎟 \x00",
    "typed": [[dt.datetime(2026, 1, 2, tzinfo=dt.UTC), UUID(int=7), b"\xff"], {}, {}],
    "looks typed": [["__type__"], {"__type__": 1}, {}],
    "infinite": [[float("inf")], {}, {}],
}


class Channel:
    """Leaves a body as it is."""

    def decode_body(self, body: Any, encoding: str) -> Any:
        return body


def read(kind: type, body: Any, content_type: str = "application/json", accept: Any = frozenset({"application/json"})) -> Any:
    raw = {"body": body, "content-type": content_type, "content-encoding": "utf-8", "properties": {"delivery_tag": "1"}}
    message = kind(raw, channel=Channel())
    message.accept = accept
    return message.payload


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("accept", [None, {"application/json"}])
def test_a_body_reads_as_kombu_reads_it(name: str, accept: Any) -> None:
    body = dumps(BODIES[name], serializer="json")[2]
    assert repr(read(JobMessage, body, accept=accept)) == repr(read(Message, body, accept=accept))


def test_what_is_not_accepted_is_refused() -> None:
    for kind in (JobMessage, Message):
        with pytest.raises(ContentDisallowed):
            read(kind, "[]", accept={"application/x-yaml"})


@pytest.mark.parametrize("body", ["[", "nonsense", "{'a': 1}"])
def test_what_cannot_be_read_is_kombus_error(body: str) -> None:
    for kind in (JobMessage, Message):
        with pytest.raises(DecodeError):
            read(kind, body)


def test_a_reader_of_the_projects_own_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._decoders, "application/json", lambda data: ["its own"])
    assert read(JobMessage, "[1]") == ["its own"]
