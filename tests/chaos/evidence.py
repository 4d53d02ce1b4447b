"""What a chaos run leaves behind to be judged by: what was sent, what Redis told, what ran, what was killed.

Without it the judging could not be tried on evidence that is made up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

FINAL = ("completed", "failed", "cancelled")
#: What the harness calls a `waiting` of a job that had ended.
REPLAYED = "replayed"


class Event(NamedTuple):
    """One entry of a queue's stream. run: attempts_started of an `active` one, else 0."""

    kind: str
    at_ms: int
    run: int = 0


class Start(NamedTuple):
    """One line of the book: a job's function was entered. at: seconds, by the machine's clock."""

    id: str
    run: int
    pid: int
    at: float


class Kill(NamedTuple):
    """A process that was killed, with its children. pool: of a worker's, else the kind of what died."""

    pool: str
    what: str
    at: float
    pids: frozenset[int]


class Look(NamedTuple):
    """A beat has looked at all schedules, and done what was due: by the clock of this machine, which is that of Redis."""

    name: str
    begin_ms: int
    end_ms: int


@dataclass
class Send:
    """One line of a producer's ledger and, if it lived so long, the next. verdict: accepted, refused or unclear.

    ids: of a chain in its order, of a chord its body last; of a chain whose second step was replaced, last that of the step
    before itself by which it was.
    """

    kind: str
    ids: list[str]
    verdict: str = "unclear"
    got: list[str] = field(default_factory=list)

    @property
    def chain(self) -> list[tuple[str, str]]:
        """Each step of a chain with the one after it."""
        steps = self.ids if self.kind == "chain" else self.ids[:3] if self.kind == "replaced" else []
        return list(pairwise(steps))


@dataclass
class Undone:
    """What was with a primary that was lost, and with no replica. added: ids of jobs. starts: of a job, by number."""

    added: set[str] = field(default_factory=set)
    starts: Counter[tuple[str, int]] = field(default_factory=Counter)


@dataclass
class Evidence:
    """All of it.

    effects: how often each job's effect is in the database. returned: steps whose function came to its end, in whichever
    run; Celery sends on what follows before the step's own end is known. committed: ids whose row is in the database, of
    those in the outbox. looks: of all beats. undone: by fail-overs. waited: whether each send has waited for a replica.
    leftovers: keys, leases and rows that nobody will clean up. gaps: what the harness itself has missed. deaths: processes
    that ended though nobody killed them, and what did not come back.
    """

    sends: list[Send]
    traces: dict[str, list[Event]]
    starts: list[Start]
    effects: Counter[str]
    returned: frozenset[str] = frozenset()
    committed: frozenset[str] = frozenset()
    looks: list[Look] = field(default_factory=list)
    undone: Undone = field(default_factory=Undone)
    waited: bool = False
    kills: list[Kill] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)

    @property
    def excused(self) -> set[str]:
        """Jobs that may be gone: no replica had them, and nobody had waited for that."""
        return set() if self.waited else self.undone.added

    def accepted(self) -> Iterator[str]:
        """Ids of all jobs that a producer was told are there; of a canvas all steps, of which only the first is sent."""
        for send in self.sends:
            if send.verdict == "accepted":
                yield from send.got[:1] if send.kind == "key" else send.got if send.kind == "many" else send.ids


def read_sends(folder: Path) -> list[Send]:
    """Read all ledgers of a folder."""
    sends: dict[str, Send] = {}
    for path in sorted(folder.glob("sent-*")):
        for line in _lines(path):
            if "kind" in line:
                sends[line["send"]] = Send(line["kind"], line["ids"])
            else:
                sends[line["send"]].verdict, sends[line["send"]].got = line["verdict"], line.get("got") or []
    return list(sends.values())


def read_starts(folder: Path, book: str = "book") -> list[Start]:
    """Read a book."""
    return [Start(line["id"], line["run"], line["pid"], line["at"]) for line in _lines(folder / book)]


def read_looks(folder: Path) -> list[Look]:
    """Read what the beats have written."""
    return [Look(line["name"], line["begin_ms"], line["end_ms"]) for line in _lines(folder / "looks")]


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    """Lines of a file; what comes after the last end of a line was being written by a process that was killed."""
    text = path.read_text() if path.exists() else ""
    return (json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines())
