"""Plants faults into the evidence of a run that balances, and into its Redis, to see the books refuse each.

Without it a check that cannot fail would look like a run without faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import redis

from tests.apps.chaos_app import QUEUES
from tests.chaos.books import faults
from tests.chaos.evidence import FINAL, Event, Evidence, Look, Undone
from tests.chaos.leftovers import leftovers
from tests.support.events import PREFIX


def loss(evidence: Evidence) -> None:
    """A job that was accepted never ends."""
    job_id = _ended(evidence)
    evidence.traces[job_id] = [event for event in evidence.traces[job_id] if event.kind not in FINAL]


def vanishing(evidence: Evidence) -> None:
    """A job that was accepted was never there."""
    del evidence.traces[_ended(evidence)]


def second_end(evidence: Evidence) -> None:
    """A late outcome is accepted."""
    job_id = _ended(evidence)
    evidence.traces[job_id].append(Event("completed", 0))


def double(evidence: Evidence) -> None:
    """Two processes run one start."""
    evidence.starts.append(evidence.starts[0]._replace(pid=0))


def fork(evidence: Evidence) -> None:
    """A job starts again though nothing has happened to it."""
    trace = evidence.traces[_ended(evidence)]
    place = next(place for place, event in enumerate(trace) if event.kind == "active")
    trace.insert(place + 1, Event("active", trace[place].at_ms, trace[place].run + 1))


def second_effect(evidence: Evidence) -> None:
    """A job has its effect twice."""
    evidence.effects[next(send.ids[0] for send in evidence.sends if send.kind == "effect")] += 2


def unfinished_canvas(evidence: Evidence) -> None:
    """All before it have completed, and the last step of a chain is never sent."""
    whole = [s.ids for s in evidence.sends if s.kind == "chain" and all(_completed(evidence, one) for one in s.ids)]
    del evidence.traces[whole[0][-1]]


def step_too_soon(evidence: Evidence) -> None:
    """A step of a chain runs, and the one before it never came to its end."""
    whole = [s.ids for s in evidence.sends if s.kind == "chain" and all(_completed(evidence, one) for one in s.ids)]
    evidence.returned -= {whole[0][0]}


def write_in_spite(evidence: Evidence) -> None:
    """A send was refused for certain, and its job is there."""
    send = next(send for send in evidence.sends if send.verdict == "accepted" and send.kind == "pause")
    send.verdict = "refused"


def replacement_lost(evidence: Evidence) -> None:
    """A job that was replaced by a canvas has completed, and the canvas never ran."""
    whole = [s.ids for s in evidence.sends if s.kind == "replaced" and _completed(evidence, s.ids[1])]
    evidence.returned -= {whole[0][1]}


def row_lost(evidence: Evidence) -> None:
    """A row was committed, and its job was never sent."""
    del evidence.traces[_of_a_row(evidence)]


def row_taken_back(evidence: Evidence) -> None:
    """A job is sent, and its row was rolled back."""
    evidence.committed -= {_of_a_row(evidence)}


def fire_time_missed(evidence: Evidence) -> None:
    """A beat has looked, and what was due is no job."""
    fired = sorted((job_id for job_id in evidence.traces if job_id.startswith("schedule:quick:")), key=lambda i: i.split(":")[2])
    at_ms = int(fired[1].split(":")[2])
    evidence.looks.append(Look("planted", at_ms, at_ms + 1))
    del evidence.traces[fired[1]]


def fired_early(evidence: Evidence) -> None:
    """A beat sends the job of a time that has not come."""
    fired = next(job_id for job_id in evidence.traces if job_id.startswith("schedule:quick:"))
    evidence.traces[fired].insert(0, Event("added", int(fired.split(":")[2]) - 1))


def loss_of_what_was_waited_for(evidence: Evidence) -> None:
    """A fail-over takes a job that was accepted once a replica had it."""
    job_id = _ended(evidence)
    del evidence.traces[job_id]
    evidence.undone, evidence.waited = Undone({job_id}), True


def return_from_the_dead(evidence: Evidence) -> None:
    """A job that no replica had is there after the fail-over."""
    evidence.undone = Undone({_ended(evidence)})


PLANTS: tuple[Callable[[Evidence], None], ...] = (
    loss, vanishing, second_end, double, fork, second_effect, unfinished_canvas, step_too_soon, write_in_spite,
    replacement_lost, row_lost, row_taken_back, fire_time_missed, fired_early,
    loss_of_what_was_waited_for, return_from_the_dead,
)  # fmt: skip


def not_refused(evidence: Evidence) -> list[str]:
    """Return the names of the faults that the books do not see when they are planted into this evidence."""
    before = set(faults(evidence))
    missed = []
    for plant in PLANTS:
        planted = _copy(evidence)
        try:
            plant(planted)
        except (LookupError, StopIteration):
            missed.append(f"{plant.__name__}: the run is too short, there is nothing that it could befall")
            continue
        if not set(faults(planted)) - before:
            missed.append(plant.__name__)
    return missed


def leaks_not_seen(client: redis.Redis) -> list[str]:
    """Return which leaks are not seen when they are planted into this Redis; they are taken out again."""
    before, missed = set(leftovers(client)), []
    lease, record = f"{PREFIX}:q:{QUEUES[0]}:active", f"{PREFIX}:job:planted"
    client.zadd(lease, {"planted": 1})
    if not any(lease in line for line in set(leftovers(client)) - before):
        missed.append("a lease")
    client.zrem(lease, "planted")
    client.hset(record, "state", "completed")
    if not any(record in line for line in set(leftovers(client)) - before):
        missed.append("a record")
    client.delete(record)
    return missed


def _copy(evidence: Evidence) -> Evidence:
    """As deep as a plant reaches: of a long run there are a million events."""
    return replace(
        evidence, sends=[replace(send) for send in evidence.sends], starts=list(evidence.starts),
        traces={job_id: list(trace) for job_id, trace in evidence.traces.items()}, effects=Counter(evidence.effects),
        looks=list(evidence.looks),
    )  # fmt: skip


def _ended(evidence: Evidence) -> str:
    accepted = (send.ids[0] for send in evidence.sends if send.kind == "pause" and send.verdict == "accepted")
    return next(job_id for job_id in accepted if _completed(evidence, job_id))


def _of_a_row(evidence: Evidence) -> str:
    return next(s.ids[0] for s in evidence.sends if s.kind == "outbox" and s.ids[0] in evidence.committed)


def _completed(evidence: Evidence, job_id: str) -> bool:
    return any(event.kind == "completed" for event in evidence.traces.get(job_id, []))
