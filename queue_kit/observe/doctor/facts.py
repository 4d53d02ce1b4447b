"""What a doctor knows and what it says; without one set of facts each check would ask Redis by itself, at a moment of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from queue_kit.settings import Settings
from queue_kit.store.examination import QueueFacts, ServerFacts, Strays


class Verdict(StrEnum):
    """The better first."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, what is so and why it matters, and what to do about it."""

    verdict: Verdict
    check: str
    says: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker that lives. ``ours``: it has queue_kit; ``tasks``: ``None`` where it has not answered."""

    name: str
    ours: bool
    queues: frozenset[str]
    tasks: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is judged. ``trouble``: what kept the server from being read; there is nothing else then.

    ``unasked``: what kept the workers from being asked; ``conf``: Celery's settings by name; ``refused``: what a worker would
    refuse to boot with; ``at_most_once``: tasks that ask to run at most once; ``endless``: plain ones that retry without end;
    ``timeouts_ms`` and ``queue_of``: what declared jobs have of their own; ``beat``: task by entry of the schedule; ``unfit``:
    why no job may be taken from this server; ``our_now_ms``: this process's clock, when that of Redis was read.
    """

    settings: Settings
    trouble: str = ""
    server: ServerFacts = field(default_factory=lambda: ServerFacts({}, {}, 0))
    unfit: str = ""
    our_now_ms: int = 0
    queues: Sequence[QueueFacts] = ()
    declared_queues: frozenset[str] = frozenset()
    strays: Strays = field(default_factory=lambda: Strays((), (), 0, True))
    unacked: int = 0
    untold: int = 0
    workers: Sequence[WorkerFacts] = ()
    unasked: str = ""
    tasks: frozenset[str] = frozenset()
    conf: Mapping[str, Any] = field(default_factory=dict)
    refused: Sequence[str] = ()
    at_most_once: Sequence[str] = ()
    timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    endless: Sequence[str] = ()
    queue_of: Mapping[str, str] = field(default_factory=dict)
    beat: Mapping[str, str] = field(default_factory=dict)


def ok(check: str, says: str) -> Finding:
    """Nothing is to be done."""
    return Finding(Verdict.OK, check, says)


def warn(check: str, says: str, fix: str) -> Finding:
    """It may cost something, or only look so."""
    return Finding(Verdict.WARN, check, says, fix)


def bad(check: str, says: str, fix: str) -> Finding:
    """Work is lost, doubled or stuck, or will be."""
    return Finding(Verdict.BAD, check, says, fix)


def some(names: Sequence[str], most: int = 5) -> str:
    """The first few of many names."""
    listed = ", ".join(names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed
