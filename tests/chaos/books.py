"""Balances the books of a chaos run: what was accepted against what ended, what ran against what explains it.

Without it a run would show that nothing has crashed, and not that nothing is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.chaos.evidence import FINAL, REPLAYED, Event, Evidence

#: What may stand between two starts of one job: it was lost with its worker, put off, or handed back.
EXPLAINS = ("stalled", "delayed", "waiting", REPLAYED)
#: What may be told of a job that has ended.
AFTER_THE_END = ("dead-lettered", "retries-exhausted", "duplicated", "deduplicated", *FINAL)


def faults(evidence: Evidence) -> list[str]:
    """Return a line for each thing that does not balance."""
    found = [line for check in CHECKS for line in check(evidence)]
    return [*found, *evidence.leftovers, *evidence.gaps, *evidence.deaths]


def lost(evidence: Evidence) -> Iterator[str]:
    """Every accepted job is in exactly one final state, as is every other that was added; once more after each replay."""
    failed = {job_id for job_id, trace in evidence.traces.items() if "completed" not in _finals(trace)}
    for job_id in {*evidence.accepted(), *evidence.traces} - _never_sent(evidence, failed):
        for life in _lives(evidence.traces.get(job_id, [])):
            finals = _finals(life)
            if not finals:
                yield f"lost: {job_id} has no end; its events: {_told(evidence, job_id)}"
            elif len(finals) > 1:
                yield f"ended twice: {job_id}: {_told(evidence, job_id)}"


def _never_sent(evidence: Evidence, failed: set[str]) -> set[str]:
    """Steps of a canvas behind one that has failed, or never came itself."""
    missing: set[str] = set()
    for send in evidence.sends:
        if send.kind == "chain":
            for before, after in zip(send.ids, send.ids[1:], strict=False):
                missing |= {after} if before in failed | missing and after not in evidence.traces else set()
        elif send.kind == "chord" and failed & set(send.ids[:-1]) and send.ids[-1] not in evidence.traces:
            missing.add(send.ids[-1])
    return missing


def canvas_out_of_turn(evidence: Evidence) -> Iterator[str]:
    """No step of a canvas begins before the functions of all that it waits for have returned."""
    for send in evidence.sends:
        if send.kind in ("chain", "chord"):
            waits_for = {send.ids[-1]: send.ids[:-1]}
            if send.kind == "chain":
                waits_for = {after: [before] for before, after in zip(send.ids, send.ids[1:], strict=False)}
            for step, before in waits_for.items():
                undone = set(before) - evidence.returned
                if undone and any(event.kind == "active" for event in evidence.traces.get(step, [])):
                    yield f"out of turn: {step} ran before {sorted(undone)}"


def refused_and_there(evidence: Evidence) -> Iterator[str]:
    """What was refused for certain was not written."""
    for send in evidence.sends:
        if send.verdict == "refused" and send.ids and send.ids[0] in evidence.traces:
            yield f"refused, and yet there: {send.ids[0]}: {_told(evidence, send.ids[0])}"


def two_jobs_of_a_key(evidence: Evidence) -> Iterator[str]:
    """Sends with one deduplication key are one job."""
    jobs = defaultdict(set)
    for send in evidence.sends:
        if send.kind == "key" and send.verdict == "accepted":
            jobs[send.got[1]].add(send.got[0])
    yield from (f"two jobs of one key: {key}: {sorted(ids)}" for key, ids in jobs.items() if len(ids) > 1)


def unexplained(evidence: Evidence) -> Iterator[str]:
    """Every start beyond the first has an event that says why; nothing starts after the end."""
    for job_id, trace in evidence.traces.items():
        since: list[str] = ["added"]
        for event in trace:
            if event.kind == "active" and not {*EXPLAINS, "added"} & set(since):
                yield f"unexplained start {event.run} of {job_id}: {_told(evidence, job_id)}"
            since = [] if event.kind == "active" else [*since, event.kind]
        for life in _lives(trace):
            last = next((place for place, event in enumerate(life) if event.kind in FINAL), len(life))
            if any(event.kind not in AFTER_THE_END for event in life[last:]):
                yield f"went on after its end: {job_id}: {_told(evidence, job_id)}"


def doubles(evidence: Evidence) -> Iterator[str]:
    """One start in Redis is one run of the function at most, and no function runs without."""
    told = {(job_id, event.run) for job_id, trace in evidence.traces.items() for event in trace if event.kind == "active"}
    for (job_id, run), times in Counter((start.id, start.run) for start in evidence.starts).items():
        if times > 1:
            yield f"ran {times} times in one start: {job_id}, start {run}"
        if (job_id, run) not in told:
            yield f"ran without a start: {job_id}, start {run}: {_told(evidence, job_id)}"


def effects(evidence: Evidence) -> Iterator[str]:
    """At most one effect a job, exactly one a completed job."""
    for send in evidence.sends:
        if send.kind == "effect":
            done = "completed" in _finals(evidence.traces.get(send.ids[0], []))
            number = evidence.effects[send.ids[0]]
            if number > 1 or (done and number != 1):
                yield f"{number} effects of {send.ids[0]}, {'' if done else 'not '}completed"


CHECKS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    lost, canvas_out_of_turn, refused_and_there, two_jobs_of_a_key, unexplained, doubles, effects,
)  # fmt: skip


def _lives(trace: list[Event]) -> list[list[Event]]:
    """What was told of a job, cut where it was replayed."""
    cuts = [place for place, event in enumerate(trace) if event.kind == REPLAYED]
    return [trace[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(trace)], strict=True)]


def _finals(trace: list[Event]) -> list[str]:
    return [event.kind for event in trace if event.kind in FINAL]


def _told(evidence: Evidence, job_id: str) -> str:
    return " ".join(event.kind for event in evidence.traces.get(job_id, [])) or "none"


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
