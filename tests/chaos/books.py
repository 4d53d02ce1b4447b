"""Balances the books of a chaos run: what was accepted against what ended, what ran against what explains it.

Without it a run would show that nothing has crashed, and not that nothing is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tests.chaos import sending
from tests.chaos.evidence import FINAL, REPLAYED, Event, Evidence
from tests.chaos.sending import finals, never_sent, told

#: What may stand between two starts of one job: it was lost with its worker, put off, or handed back.
EXPLAINS = ("stalled", "delayed", "waiting", REPLAYED)
#: What may be told of a job that has ended.
AFTER_THE_END = ("dead-lettered", "retries-exhausted", "duplicated", "deduplicated", *FINAL)


def faults(evidence: Evidence) -> list[str]:
    """Return a line for each thing that does not balance."""
    found = [line for check in CHECKS for line in check(evidence)]
    return [*found, *evidence.leftovers, *evidence.gaps, *evidence.deaths]


def lost(evidence: Evidence) -> Iterator[str]:
    """Every accepted job is in exactly one final state, as is every other that was added; once more after each replay. What
    no replica had may be gone."""
    failed = {job_id for job_id, trace in evidence.traces.items() if "completed" not in finals(trace)}
    gone = evidence.excused - evidence.traces.keys()
    for job_id in {*evidence.accepted(), *evidence.traces} - gone - never_sent(evidence, failed | gone):
        for life in _lives(evidence.traces.get(job_id, [])):
            ends = finals(life)
            if not ends:
                yield f"lost: {job_id} has no end; its events: {told(evidence, job_id)}"
            elif len(ends) > 1:
                yield f"ended twice: {job_id}: {told(evidence, job_id)}"


def unexplained(evidence: Evidence) -> Iterator[str]:
    """Every start beyond the first has an event that says why; nothing starts after the end."""
    for job_id, trace in evidence.traces.items():
        since: list[str] = ["added"]
        for event in trace:
            if event.kind == "active" and not {*EXPLAINS, "added"} & set(since):
                yield f"unexplained start {event.run} of {job_id}: {told(evidence, job_id)}"
            since = [] if event.kind == "active" else [*since, event.kind]
        for life in _lives(trace):
            last = next((place for place, event in enumerate(life) if event.kind in FINAL), len(life))
            if any(event.kind not in AFTER_THE_END for event in life[last:]):
                yield f"went on after its end: {job_id}: {told(evidence, job_id)}"


def doubles(evidence: Evidence) -> Iterator[str]:
    """One start in Redis is one run of the function at most, and no function runs without; one that a fail-over has undone is
    another than that of the same number."""
    begun = {(job_id, event.run) for job_id, trace in evidence.traces.items() for event in trace if event.kind == "active"}
    for (job_id, run), times in Counter((start.id, start.run) for start in evidence.starts).items():
        undone = evidence.undone.starts[job_id, run]
        if times > 1 + undone:
            yield f"ran {times} times in one start: {job_id}, start {run}"
        if (job_id, run) not in begun and not undone:
            yield f"ran without a start: {job_id}, start {run}: {told(evidence, job_id)}"


def effects(evidence: Evidence) -> Iterator[str]:
    """At most one effect a job, exactly one a completed job."""
    for send in evidence.sends:
        if send.kind == "effect":
            done = "completed" in finals(evidence.traces.get(send.ids[0], []))
            number = evidence.effects[send.ids[0]]
            if number > 1 or (done and number != 1):
                yield f"{number} effects of {send.ids[0]}, {'' if done else 'not '}completed"


CHECKS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    lost, unexplained, doubles, effects, *sending.CHECKS,
)  # fmt: skip


def _lives(trace: list[Event]) -> list[list[Event]]:
    """What was told of a job, cut where it was replayed."""
    cuts = [place for place, event in enumerate(trace) if event.kind == REPLAYED]
    return [trace[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(trace)], strict=True)]
