"""Where the bars and marks of a job's timeline stand; the drawing is a template. Pure, so that it can be tried without a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from queue_kit.states import Event
from queue_kit.store.census import EventView

#: Units of the drawing from its first to its last event, and the least that can still be seen and pointed at.
WIDTH: Final = 960.0
_LEAST: Final = 4.0
#: Events that begin a state; of these the last stays as a mark if the job has ended.
_STATES: Final = (Event.WAITING, Event.DELAYED, Event.ACTIVE)
_MARKS: Final = (Event.STALLED, Event.COMPLETED, Event.FAILED, Event.CANCELLED, Event.REMOVED)


@dataclass(frozen=True, slots=True)
class Bar:
    """A time in one state."""

    x: str
    width: str
    kind: str
    lasted_ms: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened."""

    x: str
    kind: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A drawing, ``WIDTH`` wide, its first event at 0."""

    bars: list[Bar]
    marks: list[Mark]
    began_at_ms: int
    ended_at_ms: int

    @property
    def lasted_ms(self) -> int:
        return self.ended_at_ms - self.began_at_ms


def draw(events: Sequence[EventView]) -> Timeline | None:
    """Lay out a job's events, oldest first; ``None`` if none is kept."""
    if not events:
        return None
    began, ended = events[0].at_ms, events[-1].at_ms
    scale = (WIDTH - _LEAST) / max(1, ended - began)
    turns = [
        event for event in events if event.kind in _STATES or (event.kind in _MARKS and event.kind != Event.STALLED)
    ]
    bars = [
        Bar(
            f"{(a.at_ms - began) * scale:.1f}",
            f"{max(_LEAST, (b.at_ms - a.at_ms) * scale):.1f}",
            a.kind,
            b.at_ms - a.at_ms,
        )
        for a, b in pairwise([*turns, events[-1]])
        if a.kind in _STATES
    ]
    marks = [Mark(f"{(e.at_ms - began) * scale:.1f}", e.kind, e.at_ms) for e in events if e.kind in _MARKS]
    return Timeline(bars, marks, began, ended)
