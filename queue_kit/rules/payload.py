"""Decodes what a job was sent, for people to read; a page that used a worker's decoder would unpickle what anybody sent.

Only JSON is decoded. Of anything else it is said what it is and how long.
"""

from __future__ import annotations

import bz2
import json
import zlib
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

#: Bytes to which a compressed body is unpacked at most: a small one may hold gigabytes.
_UNPACKED_MOST: Final = 4_000_000
#: Characters shown of what is no task message.
_SHOWN: Final = 500

_UNPACK: Final[dict[str, Callable[[], Any]]] = {
    "application/x-gzip": zlib.decompressobj, "application/x-bz2": bz2.BZ2Decompressor,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Payload:
    """Arguments of a job. ``note`` says why there are none to show, or is empty."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def read_payload(message: str) -> Payload:
    """Decode the arguments in a job's message. Never raises, whatever the message is."""
    try:
        return _read(json.loads(message))
    except _Unreadable as why:
        return Payload(note=str(why))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, EOFError, OSError, zlib.error):
        return Payload(note=f"no task message, {len(message)} characters: {message[:_SHOWN]}")


class _Unreadable(Exception):
    """What is there instead of JSON."""


def _read(raw: dict[str, Any]) -> Payload:
    body = json.loads(_text(raw), object_hook=_plain)
    if not isinstance(body, list) or len(body) < 2 or not isinstance(body[0], list) or not isinstance(body[1], dict):
        raise _Unreadable(f"no task arguments: {json.dumps(body)[:_SHOWN]}")
    return Payload(body[0], body[1])


def _text(raw: dict[str, Any]) -> str:
    """The body as JSON text.

    :raises _Unreadable: when it is none.
    """
    headers, properties = raw.get("headers") or {}, raw.get("properties") or {}
    packed = properties.get("body_encoding") == "base64"
    body = b64decode(raw["body"]) if packed else str(raw["body"]).encode("utf-8", "surrogatepass")
    kind = str(raw.get("content-type"))
    if kind != "application/json":
        raise _Unreadable(f"binary, {len(body)} bytes ({kind})")
    compression = headers.get("compression")
    if compression:
        body = _unpacked(body, str(compression))
    return body.decode("utf-8", "surrogatepass")


def _unpacked(body: bytes, compression: str) -> bytes:
    if compression not in _UNPACK:
        raise _Unreadable(f"compressed, {len(body)} bytes ({compression})")
    unpacked: bytes = _UNPACK[compression]().decompress(body, _UNPACKED_MOST)
    if len(unpacked) == _UNPACKED_MOST:
        raise _Unreadable(f"compressed, {len(body)} bytes, too many unpacked ({compression})")
    return unpacked


def _plain(value: dict[str, Any]) -> Any:
    """Kombu's way to send what JSON has no word for, such as dates, as what people would write."""
    if value.keys() != {"__type__", "__value__"}:
        return value
    inner = value["__value__"]
    if isinstance(inner, dict) and len(inner) == 1:  # a UUID is sent as {"hex": ...}
        return next(iter(inner.values()))
    return "binary" if value["__type__"] == "base64" else inner
