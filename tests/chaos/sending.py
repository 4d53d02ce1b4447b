"""Balances what was sent against what is there: steps of a canvas, deduplication keys, the outbox, schedules.

Without it a job that nobody has sent, or that was sent twice, would count as one that has ended well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.apps.chaos_app import SCHEDULES
from tests.chaos.evidence import FINAL, Event, Evidence

#: Kinds of one job each that nobody but its producer sends.
ONCE = ("pause", "long", "later", "flaky", "snooze", "doomed", "effect")


def never_sent(evidence: Evidence, failed: set[str]) -> set[str]:
    """Steps of a canvas behind one that has failed, or never came itself."""
    missing: set[str] = set()
    for send in evidence.sends:
        behind = send.chain
        if send.kind == "chord":
            behind = [(part, send.ids[-1]) for part in send.ids[:-1]]
        elif send.kind == "replaced":
            behind = [*behind, (send.ids[1], send.ids[3])]
        for before, after in behind:
            missing |= {after} if before in failed | missing and after not in evidence.traces else set()
    return missing


def canvas_out_of_turn(evidence: Evidence) -> Iterator[str]:
    """No step of a canvas begins before the functions of all that it waits for have returned."""
    for send in evidence.sends:
        waits_for = {after: [before] for before, after in send.chain}
        if send.kind == "chord":
            waits_for = {send.ids[-1]: send.ids[:-1]}
        for step, before in waits_for.items():
            undone = set(before) - evidence.returned
            if undone and any(event.kind == "active" for event in evidence.traces.get(step, [])):
                yield f"out of turn: {step} ran before {sorted(undone)}"


def replaced_in_vain(evidence: Evidence) -> Iterator[str]:
    """A job that was replaced by a canvas has completed with that alone: each of its steps has run, one as this job."""
    for send in evidence.sends:
        if send.kind == "replaced":
            job_id, inner = send.ids[1], send.ids[3]
            ended = job_id in evidence.returned or "completed" in finals(evidence.traces.get(job_id, []))
            undone = {job_id, inner} - evidence.returned
            if ended and undone:
                yield f"replaced in vain: {job_id} has ended before {sorted(undone)}: {told(evidence, job_id)}"


def refused_and_there(evidence: Evidence) -> Iterator[str]:
    """What was refused for certain was not written."""
    for send in evidence.sends:
        if send.verdict == "refused" and send.ids and send.ids[0] in evidence.traces:
            yield f"refused, and yet there: {send.ids[0]}: {told(evidence, send.ids[0])}"


def two_jobs_of_a_key(evidence: Evidence) -> Iterator[str]:
    """Sends with one deduplication key are one job."""
    jobs = defaultdict(set)
    for send in evidence.sends:
        if send.kind == "key" and send.verdict == "accepted" and send.got[0] not in evidence.excused:
            jobs[send.got[1]].add(send.got[0])
    yield from (f"two jobs of one key: {key}: {sorted(ids)}" for key, ids in jobs.items() if len(ids) > 1)


def rows_and_jobs(evidence: Evidence) -> Iterator[str]:
    """A job of the outbox is there if the row that was written with it is, and only then."""
    for send in evidence.sends:
        if send.kind == "outbox":
            there, committed = send.ids[0] in evidence.traces, send.ids[0] in evidence.committed
            if there != committed and send.ids[0] not in evidence.excused:
                yield f"a {'row without its job' if committed else 'job without its row'}: {send.ids[0]}, {send.verdict}"


def undone_and_there(evidence: Evidence) -> Iterator[str]:
    """What only the lost primary had does not come back: a producer sends nothing twice."""
    for send in evidence.sends:
        if send.kind in ONCE and send.ids[0] in evidence.undone.added and send.ids[0] in evidence.traces:
            yield f"undone, and yet there: {send.ids[0]}"


def fire_times(evidence: Evidence) -> Iterator[str]:
    """What was due as a beat began to look is a job once it has looked, unless a later time was due by then."""
    fired = _fired(evidence)
    for name, every_ms in SCHEDULES.items():
        times = sorted(fired[name])
        for look in evidence.looks:
            due_ms = look.begin_ms // every_ms * every_ms
            place = bisect_left(times, due_ms)
            if place == len(times) or (times[place] > look.end_ms and place > 0):
                yield f"fire time missed: schedule:{name}:{due_ms}, looked at by {look}"


def fired_wrongly(evidence: Evidence) -> Iterator[str]:
    """Nothing is sent before its time, or at a time that is none."""
    for name, times in _fired(evidence).items():
        for at_ms in times:
            trace = evidence.traces.get(f"schedule:{name}:{at_ms}", [])
            if at_ms % SCHEDULES[name] or any(event.at_ms < at_ms for event in trace):
                yield f"fired wrongly: schedule:{name}:{at_ms}"


def _fired(evidence: Evidence) -> dict[str, set[int]]:
    """Fire times of each schedule that are jobs, or were."""
    fired: dict[str, set[int]] = defaultdict(set)
    for job_id in {*evidence.traces, *evidence.excused}:
        if job_id.startswith("schedule:"):
            _, name, at_ms = job_id.split(":")
            fired[name].add(int(at_ms))
    return fired


CHECKS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    canvas_out_of_turn, replaced_in_vain, refused_and_there, two_jobs_of_a_key, rows_and_jobs, undone_and_there,
    fire_times, fired_wrongly,
)  # fmt: skip


def finals(trace: list[Event]) -> list[str]:
    """The ends in a trace."""
    return [event.kind for event in trace if event.kind in FINAL]


def told(evidence: Evidence, job_id: str) -> str:
    """All that was told of a job, in words."""
    return " ".join(event.kind for event in evidence.traces.get(job_id, [])) or "none"
