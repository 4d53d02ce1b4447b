"""Runs a canvas on one stack and says what came of it, in a form that two stacks can be compared by.

Ids are made anew in every run, so they are replaced by the names of the tasks that bear them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from celery import Celery

from tests.apps.canvas_app import JOURNAL
from tests.support.waiting import wait_until
from tests.worker.stack import QUEUE, Stack

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBERS = re.compile(r"(?<=\[)\[(\d+(?:, \d+)*)\]")


@dataclass(frozen=True)
class Outcome:
    """What a canvas gave: its value or its error, every run of every task, and what callbacks wrote down."""

    value: Any
    error: str
    runs: list[tuple[str, ...]]
    notes: list[str]


@dataclass
class Bench:
    """A stack with its app, ready to run canvases."""

    stack: Stack
    app: Celery
    busy: Callable[[Stack], bool]

    @property
    def tasks(self) -> Any:
        """The app's tasks by their short names."""
        return SimpleNamespace(
            **{n.removeprefix("canvas."): t for n, t in self.app.tasks.items() if n.startswith("canvas.")}
        )

    def run(self, build: Callable[[Any], Any], within_s: float = 20.0, **options: Any) -> Outcome:
        """Send a canvas, wait for its result and until nothing is left to do."""
        self.stack.notes.delete(JOURNAL, "canvas:notes")
        value, error = None, ""
        result = build(self.tasks).apply_async(**options)
        try:
            value = value_of(result, within_s)
        except Exception as raised:  # noqa: BLE001 - the error is the outcome
            error = _UUID.sub("<id>", f"{type(raised).__name__}: {raised}")
        idle = _Idle(lambda: self.busy(self.stack))
        wait_until(idle, says="nothing is left to do", within_s=within_s, every_s=0.02)
        result.forget()
        return Outcome(value, error, self._runs(), sorted(self._list("canvas:notes")))

    def _list(self, key: str) -> list[str]:
        found: Any = self.stack.notes.lrange(key, 0, -1)
        return list(found)

    def _runs(self) -> list[tuple[str, ...]]:
        lines = [line.split("\t") for line in self._list(JOURNAL)]
        names: dict[str, str] = {}
        for task_id, name, _, _, _, group, *_ in lines:
            # Who of a chord's header ends last, and so becomes the parent of the body, is luck.
            names.setdefault(task_id, "one of a group" if group else name)
        return sorted(_run(line, names) for line in lines)


def value_of(result: Any, within_s: float) -> Any:
    """The result's value or its error; a step before it that failed is an error too. Celery itself looks each second."""
    wait_until(
        lambda: result.ready() or any(_failed(r) for r in _before(result)), says="it has a result", within_s=within_s
    )
    for earlier in _before(result):
        if _failed(earlier):
            earlier.maybe_throw()
    return result.get(timeout=within_s)


def _before(result: Any) -> list[Any]:
    earlier = []
    while (result := result.parent) is not None:
        earlier.insert(0, result)
    return earlier


def _failed(result: Any) -> bool:
    return bool(result.ready() and result.failed())


def _run(line: list[str], names: dict[str, str]) -> tuple[str, ...]:
    _, name, args, kwargs, retries, group, parent, root = line
    # In which order results of one place in a chord come in is luck as well.
    facts = [_NUMBERS.sub(_in_order, _UUID.sub("<id>", fact)) for fact in (args, kwargs)]
    by = names.get(parent, "")
    # A body whose parent is luck has the root of that parent, which for a chain in the header is the chain's first step.
    under = "of that one" if by == "one of a group" else names.get(root, "?")
    return (name, *facts, f"retry {retries}", "in a group" if group else "", by, under)


def _in_order(numbers: re.Match[str]) -> str:
    return "[" + ", ".join(sorted(numbers[1].split(", "), key=int)) + "]"


class _Idle:
    """True when there was nothing to do twice in a row: between a pop and its account stock Redis shows nothing."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._seen = 0

    def __call__(self) -> bool:
        self._seen = 0 if self._busy() else self._seen + 1
        return self._seen > 2


def stock_is_busy(stack: Stack) -> bool:
    """Say whether a stock queue holds anything, waiting or unacknowledged."""
    return bool(stack.jobs.llen(QUEUE) or stack.jobs.hlen("unacked"))


def ours_is_busy(stack: Stack) -> bool:
    """Say whether a queue of ours holds a job that has not ended."""
    return any(stack.jobs.zcard(f"qwk:q:{QUEUE}:{part}") for part in ("wait", "reserved", "active", "delayed"))
