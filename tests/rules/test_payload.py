"""Payloads for people: JSON is decoded, everything else is named and measured, and nothing is ever unpickled."""

from __future__ import annotations

import bz2
import json
import pickle
import zlib
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.serialization import dumps

from queue_kit.rules.payload import Payload, read_payload


def message(
    body: Any, kind: str = "application/json", *, encoding: str = "utf-8", compression: str | None = None
) -> str:
    headers = {"task": "t", "compression": compression}
    return json.dumps({"body": body, "content-type": kind, "headers": headers, "properties": {"body_encoding": encoding}})


def packed(body: bytes, kind: str = "application/json", compression: str | None = None) -> str:
    return message(b64encode(body).decode(), kind, encoding="base64", compression=compression)


def task_body(*args: Any, **kwargs: Any) -> str:
    return str(dumps([args, kwargs, {"callbacks": None}], serializer="json")[2])


def test_arguments_are_read() -> None:
    assert read_payload(message(task_body(1, user="ada"))) == Payload([1], {"user": "ada"})


def test_dates_and_the_like_read_as_people_write_them() -> None:
    body = task_body(at=datetime(2026, 11, 30, tzinfo=UTC), of=UUID(int=7), raw=b"\xff", text=b"abc")
    kwargs = read_payload(message(body)).kwargs
    assert kwargs == {"at": "2026-11-30T00:00:00+00:00", "of": UUID(int=7).hex, "raw": "binary", "text": "abc"}


@pytest.mark.parametrize(
    ("compress", "name"), [(zlib.compress, "application/x-gzip"), (bz2.compress, "application/x-bz2")]
)
def test_compressed_bodies_are_unpacked(compress: Any, name: str) -> None:
    assert read_payload(packed(compress(task_body(1).encode()), compression=name)).args == [1]


def test_a_body_that_would_unpack_to_gigabytes_is_not() -> None:
    bomb = zlib.compress(b" " * 50_000_000)
    note = read_payload(packed(bomb, compression="application/x-gzip")).note
    assert note == f"compressed, {len(bomb)} bytes, too many unpacked (application/x-gzip)"


class Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (pytest.fail, ("it was unpickled",))


def test_a_pickled_body_is_measured_and_never_opened() -> None:
    data = pickle.dumps(Trap())
    read = read_payload(packed(data, "application/x-python-serialize"))
    assert read == Payload(note=f"binary, {len(data)} bytes (application/x-python-serialize)")


def test_an_unknown_compression_is_named() -> None:
    assert read_payload(packed(b"123", compression="zstd")).note == "compressed, 3 bytes (zstd)"


def test_json_that_is_no_task_body_is_shown() -> None:
    assert read_payload(message('{"a": 1}')).note == 'no task arguments: {"a": 1}'


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"body": "{", "content-type": "application/json"}', "null"])
def test_what_is_no_message_is_quoted(text: str) -> None:
    assert read_payload(text).note == f"no task message, {len(text)} characters: {text}"


def test_nesting_without_end_is_no_message() -> None:
    assert "no task message" in read_payload(message("[" * 100_000)).note


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: message(json.dumps(v))))
def test_nothing_makes_it_raise(text: str) -> None:
    assert isinstance(read_payload(text), Payload)
