"""How long each job that a kill has hit took to come back.

Without it a run would show that everything came back, and not whether anybody would have noticed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from tests.chaos.evidence import Event, Evidence


class Recovery(NamedTuple):
    """How long after the kill a job that was hit by it was given back, and ran again."""

    back_ms: float
    again_ms: float


def recoveries(evidence: Evidence) -> dict[str, list[Recovery]]:
    """For each pool, and what of it was killed: what became of each job that a kill has hit in its run."""
    begun = defaultdict(list)
    for start in evidence.starts:
        begun[start.pid].append(start)
    found: dict[str, list[Recovery]] = defaultdict(list)
    for kill in evidence.kills:
        for start in (start for pid in kill.pids for start in begun[pid] if start.at < kill.at):
            after = _after(evidence.traces.get(start.id, []), start.run)
            again = next((event.at_ms for event in after if event.kind == "active"), None)
            at_ms = kill.at * 1000
            if after and after[0].at_ms > at_ms and again is not None:
                found[f"{kill.pool} {kill.what}"].append(Recovery(after[0].at_ms - at_ms, again - at_ms))
    return found


def _after(trace: list[Event], run: int) -> list[Event]:
    """What was told after a start, but for what others told of the job."""
    place = next((p for p, event in enumerate(trace) if event.kind == "active" and event.run == run), len(trace))
    return [event for event in trace[place + 1 :] if event.kind not in ("duplicated", "deduplicated", "progress")]
