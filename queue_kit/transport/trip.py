"""Moves that are sent together, and what is known of each; without it a connection that breaks midway would leave a caller
guessing which of its jobs Redis has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from redis.exceptions import NoScriptError

from queue_kit.errors import QueueUnavailable
from queue_kit.store import Call
from queue_kit.transport.lines import Line

_UNKNOWN: Final = object()


class Trip:
    """Moves on their way. ``call(index, again)`` describes one; ``again``: it may have been made already, its answer lost."""

    def __init__(self, ids: Sequence[str], call: Callable[[int, bool], Call[Any]]) -> None:
        self._ids, self._call = ids, call
        self._answers: list[Any] = [_UNKNOWN] * len(ids)
        self._made: list[Call[Any] | None] = [None] * len(ids)
        self._sent = False
        self._lost: set[int] = set()  # once sent, and not answered: whatever is answered later, that may have been made
        self.trouble: Exception | None = None
        self.unconfirmed = ""

    def make(self, line: Line, until: float) -> None:
        """Make the moves whose answers are not known; those of a script that Redis does not know (yet) with its source."""
        due = [index for index, answer in enumerate(self._answers) if answer is _UNKNOWN or _is_of_no_primary(answer)]
        if self._sent:
            self._lost.update(index for index in due if self._answers[index] is _UNKNOWN)
        self._ask(line, due, self._commands(due, self._sent), until)
        unknown = [index for index in due if isinstance(self._answers[index], NoScriptError)]
        if unknown:
            self._ask(line, unknown, self._with_sources(unknown), until)

    def _ask(self, line: Line, due: Sequence[int], commands: Iterable[tuple[Any, ...]], until: float) -> None:
        answers: list[Any] = []
        self._sent = True
        for index in due:
            self._answers[index] = _UNKNOWN
        try:
            line.ask(commands, until, answers)
        finally:
            for index, answer in zip(due, answers, strict=False):
                self._answers[index] = answer

    def _commands(self, due: Sequence[int], again: bool) -> Iterator[tuple[Any, ...]]:
        for index in due:
            made = self._made[index] = self._call(index, again)
            yield made.command

    def _with_sources(self, unknown: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Each script's source once: Redis knows it from then on."""
        taught: set[str] = set()
        for index in unknown:
            made = self._made[index]
            assert made is not None
            yield made.command if made.script.sha in taught else made.full_command
            taught.add(made.script.sha)

    @property
    def met_no_primary(self) -> bool:
        """Whether the server has refused to write, as a replica does: after a failover another one is asked."""
        return any(map(_is_of_no_primary, self._answers))

    @property
    def has_written(self) -> bool:
        """Whether Redis has accepted at least one move."""
        return not all(isinstance(answer, Exception) for answer in self._answers)

    def forget(self) -> None:
        """Nothing is known any more: what has been answered was not confirmed."""
        self._answers = [_UNKNOWN] * len(self._ids)

    def result(self, index: int) -> Any:
        """What a move has answered; or, not raised, why it may not have been made."""
        fault, made = self.fault(index), self._made[index]
        if fault is not None:
            return unavailable(self._ids[index], *fault)
        return made.read(self._answers[index]) if made is not None else self._answers[index]

    def refused(self, index: int) -> bool:
        """Whether Redis has answered a move with an error."""
        return isinstance(self._answers[index], Exception)

    def fault(self, index: int) -> tuple[str, Exception | str | None] | None:
        """Whether a move that may not have been made was sent (`no` or `unknown`), and why; ``None``: it was made."""
        answer = self._answers[index]
        if answer is _UNKNOWN:
            return "unknown" if self._sent else "no", self.trouble
        if isinstance(answer, Exception):
            return "unknown" if index in self._lost else "no", answer
        return ("unknown", self.unconfirmed) if self.unconfirmed else None

    def results(self) -> list[Any]:
        """The same of each move, in order."""
        return [self.result(index) for index in range(len(self._ids))]


def _is_of_no_primary(answer: Any) -> bool:
    # Redis 6.2 hides it in the text of an error of the script.
    return isinstance(answer, Exception) and ("READONLY" in str(answer) or "read only replica" in str(answer))


def unavailable(job_id: str, sent: str, reason: Exception | str | None) -> QueueUnavailable:
    """What a caller is told."""
    which = f"job {job_id} sent: {sent} " if job_id else ""
    error = QueueUnavailable(f"the queue is not available, {which}({reason or 'no time was left'})", job_id, sent)
    error.__cause__ = reason if isinstance(reason, Exception) else None
    return error
