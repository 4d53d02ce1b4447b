"""The table and the picture of a chaos run.

Without them a run would say that it has passed, and not what it has been through.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from tests.chaos.books import doubles, lost, unexplained
from tests.chaos.evidence import FINAL, Evidence
from tests.chaos.recovery import recoveries

WIDTH, HEIGHT, MARGIN = 1000, 360, 50
COLOURS = {"prefork": "#c0392b", "threads": "#d68910", "solo": "#7d3c98", "gevent": "#117864", "producer": "#7f8c8d",
           "relay": "#2e86c1", "beat": "#d35400", "redis": "#1b2631"}  # fmt: skip


def table(evidence: Evidence, done: Mapping[str, int], seconds: float) -> str:
    """Return what the run has been through and how it has ended, in lines."""
    kinds = Counter(event.kind for trace in evidence.traces.values() for event in trace)
    verdicts = Counter(send.verdict for send in evidence.sends)
    first = {job_id for job_id, trace in evidence.traces.items() if any(e.kind == "active" for e in trace)}
    lines = [
        f"{'seconds':<28}{seconds:.0f}",
        f"{'jobs':<28}{kinds['added']}",
        f"{'sends':<28}" + ", ".join(f"{verdicts[v]} {v}" for v in ("accepted", "unclear", "refused")),
        f"{'ends':<28}" + ", ".join(f"{kinds[kind]} {kind}" for kind in FINAL),
        f"{'starts beyond the first':<28}{kinds['active'] - len(first)}",
        f"{'stalls':<28}{kinds['stalled']}",
        f"{'kills':<28}{len(evidence.kills)}",
        f"{'rows committed':<28}{len(evidence.committed)}",
        f"{'fire times':<28}{sum(job_id.startswith('schedule:') for job_id in evidence.traces)}",
        f"{'undone by fail-overs':<28}{_undone(evidence)}",
        f"{'lost':<28}{sum(1 for _ in lost(evidence))}",
        f"{'unexplained extra runs':<28}{sum(1 for check in (unexplained, doubles) for _ in check(evidence))}",
        "",
        *(f"{name:<32}{times}" for name, times in sorted(done.items())),
        "",
    ]
    return "\n".join([*lines, *_recoveries(evidence)])


def _undone(evidence: Evidence) -> str:
    gone = sum(job_id in evidence.undone.added for job_id in evidence.accepted())
    return f"{gone} accepted jobs, {evidence.undone.starts.total()} starts"


def _recoveries(evidence: Evidence) -> list[str]:
    kills = Counter(f"{kill.pool} {kill.what}" for kill in evidence.kills)
    found = recoveries(evidence)
    rows = [
        f"{'':38}{'given back after ms':>30}{'running again after ms':>30}",
        f"{'killed':<20}{'kills':>8}{'jobs hit':>10}" + 2 * f"{'median':>10}{'p99':>10}{'longest':>10}",
    ]
    for pool in (*sorted(found), ""):
        times = found[pool] if pool else [time for pool_times in found.values() for time in pool_times]
        numbers = "".join(_numbers(sorted(column)) for column in zip(*times, strict=True))
        rows.append(f"{pool or 'all':<20}{kills[pool] if pool else kills.total():>8}{len(times):>10}{numbers}")
    return rows


def _numbers(ordered: Sequence[float]) -> str:
    return "".join(f"{value:>10.0f}" for value in (_part(ordered, 0.5), _part(ordered, 0.99), ordered[-1]))


def _part(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def picture(evidence: Evidence, redis_kills: Sequence[float], title: str) -> str:
    """Return an SVG: jobs added and ended against time, a mark for each kill, in the colour of its pool."""
    added = sorted(e.at_ms / 1000 for trace in evidence.traces.values() for e in trace if e.kind == "added")
    ended = sorted(e.at_ms / 1000 for trace in evidence.traces.values() for e in trace if e.kind in FINAL)
    if not ended:
        return ""
    begin, end = added[0], ended[-1]
    scale = _Scale(begin, max(end - begin, 1.0), len(added))
    marks = [(kill.at, kill.pool) for kill in evidence.kills] + [(at, "redis") for at in redis_kills]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/><text x="{MARGIN}" y="18">{escape(title)}</text>',
        *(scale.mark(at, COLOURS[pool]) for at, pool in marks),
        scale.line(added, "#5dade2"),
        scale.line(ended, "#1e8449"),
        *scale.axes(),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend() -> list[str]:
    words = [("jobs added", "#5dade2"), ("ended", "#1e8449"), *((f"{pool} killed", colour) for pool, colour in COLOURS.items())]
    return [
        f'<text x="{MARGIN + 10 + 95 * place}" y="{HEIGHT - 8}" fill="{colour}">{words_}</text>'
        for place, (words_, colour) in enumerate(words)
    ]


class _Scale:
    """Where an instant and a number lie in the picture."""

    def __init__(self, begin: float, seconds: float, most: int) -> None:
        self._begin, self._seconds, self._most = begin, seconds, max(most, 1)

    def x(self, at: float) -> float:
        return MARGIN + (at - self._begin) / self._seconds * (WIDTH - 2 * MARGIN)

    def y(self, number: float) -> float:
        return HEIGHT - MARGIN - number / self._most * (HEIGHT - 2 * MARGIN)

    def line(self, instants: Sequence[float], colour: str) -> str:
        """How many there were by each of 500 instants."""
        ticks = [self._begin + self._seconds * step / 500 for step in range(501)]
        points = " ".join(f"{self.x(at):.1f},{self.y(bisect_right(instants, at)):.1f}" for at in ticks)
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'

    def mark(self, at: float, colour: str) -> str:
        x = f"{self.x(at):.1f}"
        return f'<line x1="{x}" x2="{x}" y1="{MARGIN - 20}" y2="{HEIGHT - MARGIN}" stroke="{colour}" stroke-opacity="0.5"/>'

    def axes(self) -> list[str]:
        low = HEIGHT - MARGIN
        return [
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{low}" y2="{low}" stroke="black"/>',
            f'<text x="{MARGIN}" y="{low + 16}">0 s</text>',
            f'<text x="{WIDTH - MARGIN}" y="{low + 16}" text-anchor="end">{self._seconds:.0f} s</text>',
            f'<text x="{MARGIN - 5}" y="{MARGIN}" text-anchor="end">{self._most}</text>',
        ]
