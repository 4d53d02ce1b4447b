"""What a queue did in its last hour, counted from the events that are kept; the drawing is a template. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from queue_kit.states import Event
from queue_kit.store.census import EventView

HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_PERCENTS: Final = (50, 95, 99)
#: Units of the drawing: a minute wide, and the highest minute high.
_STEP: Final = 16.0
_HIGH: Final = 120.0


@dataclass(frozen=True, slots=True)
class Column:
    """One minute of the drawing: jobs that completed, and above them those that failed."""

    x: str
    completed: int
    failed: int
    completed_height: str
    completed_y: str
    failed_height: str
    failed_y: str


@dataclass(frozen=True, slots=True)
class Hour:
    """Numbers of the last hour. ``waits`` and ``runs``: percent and milliseconds, shortest first; empty if there were none."""

    columns: list[Column]
    highest: int
    completed: int
    failed: int
    waits: list[tuple[int, int]]
    runs: list[tuple[int, int]]
    #: When the earliest event was that is kept; what was before it is not counted.
    since_ms: int | None


def summarise(events: Sequence[EventView], now_ms: int) -> Hour:
    """Count a queue's events of the last hour, oldest first.

    A wait is from ``waiting`` to ``active``, a run from there to its end.
    """
    ended: dict[str, Counter[int]] = {kind: Counter() for kind in (Event.COMPLETED, Event.FAILED)}
    for event in events:
        if event.kind in ended:
            ended[event.kind][min(59, max(0, 59 - (now_ms - event.at_ms) // _MINUTE_MS))] += 1
    completed, failed = ended[Event.COMPLETED], ended[Event.FAILED]
    highest = max((completed[minute] + failed[minute] for minute in range(60)), default=0)
    ends = {Event.COMPLETED, Event.FAILED, Event.WAITING, Event.DELAYED, Event.CANCELLED}
    return Hour(
        [_column(minute, completed[minute], failed[minute], highest) for minute in range(60)], highest, completed.total(),
        failed.total(), _percentiles(_spans(events, Event.WAITING, {Event.ACTIVE})),
        _percentiles(_spans(events, Event.ACTIVE, ends)), events[0].at_ms if events else None,
    )  # fmt: skip


def _column(minute: int, completed: int, failed: int, highest: int) -> Column:
    unit = _HIGH / max(1, highest)
    low, high = completed * unit, failed * unit
    texts = (f"{height:.1f}" for height in (low, _HIGH - low, high, _HIGH - low - high))
    return Column(f"{minute * _STEP:.0f}", completed, failed, *texts)


def _spans(events: Iterable[EventView], first: str, last: set[Event]) -> list[int]:
    """How long each job was between one event of its own and the next of these."""
    began: dict[str, int] = {}
    spans = []
    for event in events:
        if event.kind in last and event.job_id in began:
            spans.append(event.at_ms - began.pop(event.job_id))
        if event.kind == first:
            began[event.job_id] = event.at_ms
    return spans


def _percentiles(spans: list[int]) -> list[tuple[int, int]]:
    ordered = sorted(spans)
    return [(percent, ordered[(len(ordered) - 1) * percent // 100]) for percent in _PERCENTS if ordered]
