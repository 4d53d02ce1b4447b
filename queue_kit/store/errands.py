"""What is asked beside the moves of a job's life, as values too: switches of a queue, words of a run, notes to tell.

Without a place of their own they would stand between the moves, and a reader would look for a state that they change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queue_kit.rules.packing import unpacked
from queue_kit.store.script import Call, script, sendable, text

Number = int | None


@dataclass(frozen=True, slots=True)
class Note:
    """A job that ended outside its run, whose callers have not been told."""

    id: str
    state: str
    cause: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Errands:
    """Every one of them, for one prefix."""

    prefix: str

    # -- what holds for a queue, or a key -------------------------------------------------------------------------------

    def pause(self, queue: str, paused: bool) -> Call[int]:
        return self._call("pause", int, queue, "1" if paused else "")

    def limit(self, queue: str, **limits: Number) -> Call[int]:
        flat = [part for field, value in limits.items() for part in (field, _or_blank(value))]
        return self._call("limit", int, queue, *flat)

    def free(self, key: str, name: str) -> Call[str]:
        return self._call("free", text, key, name)

    # -- what a run says, and asks --------------------------------------------------------------------------------------

    def progress(self, job_id: str, token: str, value: str) -> Call[str]:
        return self._call("progress", text, job_id, token, value)

    def keep(self, job_id: str, token: str, value: str) -> Call[str]:
        return self._call("keep", text, job_id, token, value)

    def log(self, job_id: str, token: str, line: str) -> Call[str]:
        return self._call("log", text, job_id, token, _plain(line, 2_000))

    def check(self, job_id: str, token: str) -> Call[str]:
        return self._call("check", text, job_id, token)

    # -- what workers do for others -------------------------------------------------------------------------------------

    def nudge(self, queue: str) -> Call[int]:
        return self._call("nudge", int, queue)

    def notes(self, mark: int = 1, *, lost: bool = False, most: int = 20, again_ms: int = 60_000) -> Call[list[Note]]:
        read = lambda reply: [_read_note(*map(text, row)) for row in reply]  # noqa: E731
        return self._call("notes", read, most, again_ms, mark, "1" if lost else "")

    def put_off(self, job_id: str, again_ms: int) -> Call[int]:
        return self._call("put_off", int, job_id, again_ms)

    def strike(self, job_id: str) -> Call[int]:
        return self._call("strike", int, job_id)

    def _call(self, verb: str, read: Any, *arguments: Any) -> Call[Any]:
        return Call(script(verb), (self.prefix, *map(sendable, arguments)), read)


def _or_blank(value: Number) -> int | str:
    return "" if value is None else value


def _plain(words: str, most: int) -> str:
    # An error may quote what its job was sent, half a surrogate pair included; a move that cannot be encoded would never
    # be sent, and its job would hold its worker for ever.
    return words[:most].encode("utf-8", "replace").decode()


def _read_note(job_id: str, state: str, cause: str, reason: str, message: str, name: str, queue: str) -> Note:
    return Note(job_id, state, cause, reason, unpacked(message, job_id, name, queue))
