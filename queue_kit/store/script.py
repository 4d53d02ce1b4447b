"""Loads the Lua scripts and describes one call of one; without it each user would assemble EVALSHA by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

Answer = TypeVar("Answer")

#: Parts that a script has put before it, after the prelude.
_PARTS: Final = {
    "add": ("message", "canvas", "unique"),
    "adopt": ("message", "canvas"),
    "abandon": ("message", "ending", "roster"),
    "begin": ("gate",),
    "claim": ("message", "gate", "taking"),
    **dict.fromkeys(("enrol", "look"), ("roster",)),
    **dict.fromkeys(("bury", "fail", "reap", "replace", "stall"), ("message", "ending")),
    **dict.fromkeys(("add_many", "hand_over", "notes", "replay", "retry"), ("message",)),
}
#: What goes into a command as it is, beside text.
_SENDABLE: Final = (int, float, bytes)


@dataclass(frozen=True, slots=True)
class Script:
    """One move: its source, with what it shares put before it, and the digest that Redis knows it by."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """Read the script of this name from the package."""
    folder = files("queue_kit.store") / "lua"
    parts = ("prelude", *_PARTS.get(name, ()), name)
    source = "\n".join((folder / f"{part}.lua").read_text("utf-8") for part in parts)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@cache
def all_scripts() -> tuple[Script, ...]:
    """Every move there is."""
    shared = {"prelude", *(part for parts in _PARTS.values() for part in parts)}
    names = {Path(entry.name).stem for entry in (files("queue_kit.store") / "lua").iterdir()}
    return tuple(script(name) for name in sorted(names - shared))


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One call of a script, ready to be sent by any connection, and how to read its reply."""

    script: Script
    arguments: tuple[Any, ...]
    read: Callable[[Any], Answer]

    @property
    def command(self) -> tuple[Any, ...]:
        """The Redis command. It names no keys: scripts derive them (one Redis, never a cluster)."""
        return ("EVALSHA", self.script.sha, 0, *self.arguments)

    @property
    def full_command(self) -> tuple[Any, ...]:
        """The same with the source, for a server that does not know the script yet; it does afterwards."""
        return ("EVAL", self.script.source, 0, *self.arguments)


def sendable(argument: Any) -> Any:
    """An argument that a Redis command can carry, whatever a message had in its place: a move that cannot be encoded would be
    tried again for ever, and hold up all that its worker has to settle."""
    if type(argument) is str:
        return argument if argument.isascii() else argument.encode("utf-8", "replace")
    return argument if type(argument) in _SENDABLE else str(argument).encode("utf-8", "replace")


def text(reply: Any) -> str:
    """Decode one reply of a script."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)
