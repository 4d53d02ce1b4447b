"""Commands as bytes, for a process that speaks to Redis without any library; without it that process would have to know
commands and keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queue_kit.store.script import Call


def greeting(credentials: Sequence[str], database: int) -> list[bytes]:
    """What opens a connection: who one is, and the database. Each is answered by one line."""
    commands: list[tuple[Any, ...]] = [("AUTH", *credentials)] if credentials else []
    if database:
        commands.append(("SELECT", database))
    return [_packed(command) for command in commands]


def question_for_primary(service: str) -> bytes:
    """What a Sentinel is asked; it answers host and port."""
    return _packed(("SENTINEL", "get-master-addr-by-name", service))


def whole(call: Call[Any]) -> bytes:
    """One call of a script, with its source: good for a server that does not know it."""
    return _packed(call.full_command)


def subscription(channel: str) -> bytes:
    """To listen on a channel."""
    return _packed(("SUBSCRIBE", channel))


def _packed(command: Sequence[Any]) -> bytes:
    words = [str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
