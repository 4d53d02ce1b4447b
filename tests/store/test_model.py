"""All moves at random against the plain model: every answer, every list, every counter, after every step.

Several workers, two queues, few ids, so that the moves meet: tokens that went stale, canvases that end early, reapers that
come in between. Time is moved inside Redis: a lease runs out, a delay comes due, where the test says so.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import Any

import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from queue_kit.states import FINAL, MOVES
from queue_kit.store import AT_ONCE
from queue_kit.store.dead_letter_moves import Fresh, replay
from queue_kit.store.moves import Unique
from queue_kit.store.roster import abandon
from tests.store.desk import HOUR_MS, LATER, LISTS, Desk
from tests.store.keys_model import MODES as MODES_OF_KEYS
from tests.store.keys_model import WITH_TTL, Key, Send, facts_of
from tests.store.model import NEVER, Job, Model
from tests.support.events import PREFIX, events

QUEUES = ("q1", "q2")
IDS = ("a", "b", "c", "d", "e")
WORKERS = ("w1", "w2", "w3")
MAX_STALLED = 1
GRACE_MS = 600_000

ids = st.sampled_from(IDS)
queue_names = st.sampled_from(QUEUES)
orders = st.permutations(QUEUES)
flags = st.booleans()
KEYS = ("k", "l")
keys = st.sampled_from(KEYS)
rarely = st.sampled_from([False, False, False, True])

Lease = tuple[str, str]
Pick = tuple[int, bool]
picks = st.tuples(st.integers(0, 99), st.sampled_from([True, True, True, False]))

#: What some verbs do to a job on their way, before the move they are named for.
ALSO = {"claim": ("promote", "expire"), "reap": ("stall",), "abandon": ("stall",), "recall": ("release",)}


@dataclass
class Seen:
    """What Redis holds at one moment, read in one trip."""

    records: dict[str, dict[str, str]]
    lists: dict[tuple[str, str], list[str]]
    marks: dict[str, int]
    kinds: dict[str, list[str]]
    notes: set[str]
    keys: dict[Key, Any]

    @classmethod
    def read(cls, desk: Desk) -> Seen:
        places = list(itertools.product(QUEUES, LISTS))
        pipe = desk.client.pipeline(transaction=False)
        for job_id in IDS:
            pipe.hgetall(desk.keys.job(job_id))
        for queue, part in places:
            pipe.zrange(desk.key(part, queue), 0, -1)
        for queue in QUEUES:
            pipe.llen(desk.key("wake", queue))
        for queue in QUEUES:
            pipe.xrange(desk.key("events", queue))
        pipe.zrange(desk.keys.notes, 0, -1)
        for queue, key in itertools.product(QUEUES, KEYS):
            pipe.hgetall(desk.keys.dedup(queue, "work", key))
            pipe.pttl(desk.keys.dedup(queue, "work", key))
        replies = iter(pipe.execute())
        return cls(
            records={job_id: next(replies) for job_id in IDS},
            lists={place: next(replies) for place in places},
            marks={queue: next(replies) for queue in QUEUES},
            kinds={queue: [fields["event"] for _, fields in next(replies)] for queue in QUEUES},
            notes=set(next(replies)),
            keys={place: facts_of(next(replies), next(replies)) for place in itertools.product(QUEUES, KEYS)},
        )


def counters(record: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(record.get(name, 0)) for name in ("attempts_made", "attempts_started", "stalled_count"))


def same(job: Job, record: dict[str, str]) -> None:
    """Assert that a record says what the model says."""
    assert (record["state"], record["queue"], counters(record)) == (job.state, job.queue, job.counters)
    assert (record.get("token", ""), record.get("cancel", "")) == (job.token, job.cancel)
    assert ("dedup" in record) == (job.dedup is not None)
    assert record.get("moved", "").split() == job.moved
    assert ("trimmed" in record) == job.trimmed
    if not job.trimmed:
        assert tuple(int(record.get(name, 0)) for name in ("priority", "nesting")) == (job.priority, job.nesting)


def reachable(state: str, verb: str) -> set[str]:
    """The states in which this verb may leave a job, by the table; '' stands for no record."""
    found = {state}
    for part in (*ALSO.get(verb, ()), verb):
        sources, targets = MOVES.get(part, ((), ()))
        if found & {source or "" for source in sources}:
            found |= {target or "" for target in targets}
    return found


def has_leases(machine: Moves) -> bool:
    return bool(machine.leases)


class Moves(RuleBasedStateMachine):
    """Each rule makes one move in Redis and in the model, and compares the answers."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.desk = Desk(self.client, QUEUES[0], lease_ms=HOUR_MS, renewal_ms=GRACE_MS, max_stalled=MAX_STALLED)
        self.moves = self.desk.moves
        self.model = Model(QUEUES, MAX_STALLED, grace_from=self.desk.now_ms() - GRACE_MS)
        self.numbers = itertools.count(1)
        self.attentive: set[str] = set()
        self.leases: list[Lease] = []
        self.verb = ""
        self.states: dict[str, str] = {}
        self.counters: dict[str, tuple[int, ...]] = {}

    def run(self, call: Any) -> Any:
        """Make one move in Redis."""
        self.verb = call.script.name
        return self.desk.run(call)

    def picked(self, pick: Pick, places: tuple[str, ...] = ("active", "reserved")) -> Lease:
        """Mostly a lease that holds its job, which then is in one of these places; else one of all there ever were, but
        none by which a worker would settle as done what it has not begun."""
        number, live = pick
        held = {lease: self.model.jobs[lease[0]].place for lease in self.leases if self.holds(lease)}
        wanted = [lease for lease, place in held.items() if place in places]
        others = [lease for lease in self.leases if held.get(lease, places[0]) in places]
        choice = wanted if live and wanted else others or [("a", "none.0")]
        return choice[number % len(choice)]

    def holds(self, lease: Lease) -> bool:
        job = self.model.jobs.get(lease[0])
        return job is not None and job.token == lease[1]

    @initialize(priorities=st.lists(st.sampled_from([0, 5]), max_size=4))
    def some_jobs_wait(self, priorities: list[int]) -> None:
        """Most sequences are about jobs that run, so let there be some."""
        for job_id, priority in zip(IDS, priorities, strict=False):
            self.add(job_id=job_id, queue=QUEUES[0], priority=priority, delayed=False, expired=False, nesting=0)

    # -- jobs come in -------------------------------------------------------------------------------------------------

    @rule(job_id=ids, queue=queue_names, priority=st.sampled_from([0, 0, 5, 9]), delayed=rarely, expired=rarely,
          nesting=st.sampled_from([0, 0, 0, 1, 2]))  # fmt: skip
    def add(self, job_id: str, queue: str, priority: int, delayed: bool, expired: bool, nesting: int) -> None:
        added = self.run(self.moves.add(
            job_id, self.desk.message(queue=queue, nesting=nesting), priority=priority, when=LATER if delayed else AT_ONCE,
            expires_at_ms=1 if expired else None,
        ))  # fmt: skip
        expected = self.model.add(job_id, queue, priority, nesting, delayed=delayed, expired=expired)
        assert (added.outcome, added.state) == expected

    @rule(job_id=ids, queue=queue_names, key=keys, mode=st.sampled_from(MODES_OF_KEYS), delayed=flags,
          priority=st.sampled_from([0, 5]))  # fmt: skip
    def add_unique(self, job_id: str, queue: str, key: str, mode: str, delayed: bool, priority: int) -> None:
        ttl_ms = HOUR_MS if mode in WITH_TTL else None
        added = self.run(self.moves.add(
            job_id, self.desk.message(queue=queue), priority=priority, when=LATER if delayed else AT_ONCE,
            unique=Unique(key, mode, ttl_ms),
        ))  # fmt: skip
        expected = self.model.add_unique(Send(job_id, queue, (queue, key), mode, priority, delayed))
        assert (added.outcome, added.state, added.id) == expected

    @rule(queue=queue_names, key=keys)
    def a_keys_time_is_over(self, queue: str, key: str) -> None:
        hold = self.model.keys.get((queue, key))
        if hold is not None and hold.ttl:
            self.client.delete(self.desk.keys.dedup(queue, "work", key))
            del self.model.keys[queue, key]

    @rule(queue=queue_names, key=keys)
    def free(self, queue: str, key: str) -> None:
        name = self.desk.keys.dedup(queue, "work", key)
        assert self.run(self.moves.free(name, "work")) == self.model.free((queue, key))

    @rule(job_id=ids)
    def promote(self, job_id: str) -> None:
        assert self.run(self.moves.promote(job_id)) == self.model.promote(job_id)

    @rule(job_id=ids)
    def postpone(self, job_id: str) -> None:
        assert self.run(self.moves.postpone(job_id, HOUR_MS)) == self.model.postpone(job_id)

    @rule(job_id=ids, priority=st.sampled_from([0, 5]))
    def replay(self, job_id: str, priority: int) -> None:
        answer = self.run(replay(PREFIX, job_id, Fresh("body", priority, 0), "operator"))
        assert answer.outcome == self.model.replay(job_id, priority)

    @precondition(lambda self: self.model.letters)
    @rule(number=st.integers(0, 99), priority=st.sampled_from([0, 5]))
    def replay_letter(self, number: int, priority: int) -> None:
        letter_id = sorted(self.model.letters)[number % len(self.model.letters)]
        letter = self.model.letters[letter_id]
        call = replay(PREFIX, letter.job_id, Fresh("body", priority, 0), "operator", letter_id=f"dlq-{letter_id}")
        outcome = self.run(call).outcome
        if letter.doubtful and outcome == "replayed":
            return
        assert outcome == self.model.replay_letter(letter_id, priority)

    @rule(job_id=ids)
    def comes_due(self, job_id: str) -> None:
        job = self.model.jobs.get(job_id)
        if job and job.place == "delayed":
            job.due = next(self.numbers)
            self.client.zadd(self.desk.key("delayed", job.queue), {job_id: job.due}, xx=True)

    # -- runs begin ---------------------------------------------------------------------------------------------------

    @rule(worker=st.sampled_from(WORKERS), queues=orders, limit=st.integers(1, 3), ahead=st.integers(0, 2),
          suspects=st.integers(0, 2), avoid=st.lists(ids, max_size=1), once=rarely)  # fmt: skip
    def claim(
        self, worker: str, queues: Any, limit: int, ahead: int, suspects: int, avoid: list[str], once: bool
    ) -> None:
        self.claimed(worker, queues, limit, max(0, limit - ahead), suspects, avoid, once=once)

    @rule(worker=st.sampled_from(WORKERS), queues=orders, limit=st.integers(1, 3))
    def wake_and_claim(self, worker: str, queues: Any, limit: int) -> None:
        """An idle worker takes one mark, if there is one, and claims; a busy one that had room claims again."""
        if worker not in self.attentive and not any(self.desk.take_mark(queue) for queue in queues):
            return
        self.claimed(worker, queues, limit, limit, 3, [], once=False)

    def claimed(
        self, worker: str, queues: Any, limit: int, begin: int, suspects: int, avoid: list[str], *, once: bool
    ) -> None:
        base = f"{worker}.{next(self.numbers)}"
        names = {"once": {"work"} if once else ()}
        room = self.desk.room(limit, begin, suspects, avoid)
        claim = self.run(self.moves.claim(worker, base, room, self.desk.traits(**names), queues))
        expected = self.model.claim(base, queues, limit, begin, suspects, avoid, once=once)
        taken = [(job.id, job.begun, job.attempts_started, job.attempts_made, job.stalled_count) for job in claim.jobs]
        assert taken == expected
        has_room = 0 < len(taken) < limit
        self.attentive = self.attentive | {worker} if has_room else self.attentive - {worker}
        self.leases += [(job.id, job.token) for job in claim.jobs]

    @precondition(has_leases)
    @rule(pick=picks, once=rarely)
    def begin(self, pick: Pick, once: bool) -> None:
        job_id, token = self.picked(pick, ("reserved",))
        expected = self.model.begin(job_id, token, once=once)
        assert self.run(self.moves.begin(job_id, token, once)) == expected

    # -- leases -------------------------------------------------------------------------------------------------------

    @precondition(has_leases)
    @rule(pick=picks)
    def renew(self, pick: Pick) -> None:
        lease = self.picked(pick)
        assert self.run(self.moves.renew([lease])) == [self.model.renew(*lease)]

    @rule(job_id=ids, old=flags)
    def lease_runs_out(self, job_id: str, old: bool) -> None:
        job = self.model.jobs.get(job_id)
        if job and job.place in ("active", "reserved"):
            job.lease_end = self.desk.now_ms() - (2 * GRACE_MS if old else GRACE_MS // 2) - next(self.numbers)
            self.client.zadd(self.desk.key(job.place, job.queue), {job_id: job.lease_end}, xx=True)

    @rule()
    def reap(self) -> None:
        self.verb = "reap"
        assert {(row.id, row.outcome) for row in self.desk.reap()} == self.model.reap()

    @rule(worker=st.sampled_from(WORKERS))
    def abandon(self, worker: str) -> None:
        """Its next incarnation has the same name here, so the mark that keeps a dead one's late claims off is taken away."""
        held = [
            job_id for queue in QUEUES for part in ("active", "reserved") for job_id in self.desk.listed(part, queue)[::-1]
        ]
        found = self.run(abandon(self.moves, worker, 100))
        assert {(row.id, row.outcome) for row in found} == self.model.abandon(worker, held)
        self.client.delete(f"{PREFIX}:recalled:{worker}")

    @precondition(has_leases)
    @rule(pick=picks)
    def stall(self, pick: Pick) -> None:
        lease = self.picked(pick)
        assert self.run(self.moves.stall(*lease)).outcome == self.model.stall(*lease)

    @precondition(has_leases)
    @rule(pick=picks)
    def recall(self, pick: Pick) -> None:
        lease = self.picked(pick)
        base = lease[1].rpartition(".")[0]
        held = [
            job_id for queue in QUEUES for part in ("active", "reserved") for job_id in self.desk.listed(part, queue)
        ]
        assert len(self.run(self.moves.recall(base, QUEUES))) == self.model.recall(base, held)

    # -- runs end -----------------------------------------------------------------------------------------------------

    @precondition(has_leases)
    @rule(pick=picks)
    def complete(self, pick: Pick) -> None:
        lease = self.picked(pick, ("active",))
        assert self.run(self.moves.complete(*lease)) == self.model.complete(*lease)

    @precondition(has_leases)
    @rule(pick=picks, delayed=flags, counted=flags, queue=st.sampled_from(["", *QUEUES]), nesting=st.integers(0, 2))
    def retry(self, pick: Pick, delayed: bool, counted: bool, queue: str, nesting: int) -> None:
        lease = self.picked(pick, ("active",))
        message = self.desk.message(queue=queue, nesting=nesting) if queue else None
        call = self.moves.retry(*lease, LATER if delayed else AT_ONCE, message=message, counted=counted)
        expected = self.model.retry(*lease, delayed=delayed, counted=counted, queue=queue, nesting=nesting)
        assert self.run(call) == expected

    @precondition(has_leases)
    @rule(pick=picks, side=st.sampled_from(["head", "tail"]), delayed=rarely)
    def release(self, pick: Pick, side: Any, delayed: bool) -> None:
        lease = self.picked(pick)
        call = self.moves.release(*lease, side=side, delay_ms=HOUR_MS if delayed else None)
        assert self.run(call) == self.model.release(*lease, side, delayed=delayed)

    @precondition(has_leases)
    @rule(pick=picks, tell=flags)
    def fail(self, pick: Pick, tell: bool) -> None:
        lease = self.picked(pick)
        assert self.run(self.moves.fail(*lease, "exhausted", "no", tell=tell)).outcome == self.model.fail(
            *lease, tell=tell
        )

    @precondition(has_leases)
    @rule(pick=picks)
    def replace(self, pick: Pick) -> None:
        lease = self.picked(pick, ("active",))
        assert self.run(self.moves.replace(*lease)) == self.model.replace(*lease)

    @rule(job_id=ids, nesting=st.integers(0, 3))
    def a_step_of_its_canvas_fails(self, job_id: str, nesting: int) -> None:
        answer = self.run(self.moves.fail(job_id, "replaced", "exhausted", "no", nesting=nesting))
        assert answer.outcome == self.model.fail(job_id, "replaced", tell=False, nesting=nesting)

    # -- jobs are stopped and go --------------------------------------------------------------------------------------

    @rule(job_id=ids)
    def cancel(self, job_id: str) -> None:
        assert self.run(self.moves.cancel(job_id, "cancelled")) == self.model.cancel(job_id, "cancelled", "")

    @precondition(has_leases)
    @rule(pick=picks, cause=st.sampled_from(["revoked", "expired"]))
    def cancel_by_its_holder(self, pick: Pick, cause: str) -> None:
        job_id, token = self.picked(pick)
        assert self.run(self.moves.cancel(job_id, cause, token)) == self.model.cancel(job_id, cause, token)

    @rule(job_id=ids)
    def expire(self, job_id: str) -> None:
        assert self.run(self.moves.expire(job_id)) == self.model.expire(job_id)

    @rule(job_id=ids)
    def remove(self, job_id: str) -> None:
        assert self.run(self.moves.remove(job_id)) == self.model.remove(job_id)

    @rule(queue=queue_names, state=st.sampled_from(sorted(FINAL)))
    def trim(self, queue: str, state: str) -> None:
        assert self.run(self.moves.trim(queue, state, 0, 0, HOUR_MS)) == self.model.trim(queue, state)

    @precondition(lambda self: self.model.notes)
    @rule(data=st.data())
    def tell(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.model.notes)))
        assert self.run(self.moves.strike(job_id)) == 1
        self.model.notes.discard(job_id)

    # -- limits -------------------------------------------------------------------------------------------------------

    @rule(queue=queue_names, paused=rarely, concurrency=st.sampled_from([None, None, 1, 2]))
    def limit(self, queue: str, paused: bool, concurrency: int | None) -> None:
        rules = self.model.queues[queue]
        assert self.run(self.moves.pause(queue, paused)) == (rules.paused != paused)
        self.run(self.moves.limit(queue, concurrency=concurrency))
        rules.paused, rules.concurrency = paused, concurrency

    # -- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def what_always_holds(self) -> None:
        seen = Seen.read(self.desk)
        self.redis_and_the_model_agree(seen)
        self.each_job_is_in_one_list(seen)
        self.every_lease_has_a_holder_and_every_holder_a_lease(seen)
        self.counters_only_go_up(seen)
        self.every_move_is_in_the_table(seen)
        for queue in QUEUES:
            self.nothing_that_could_be_taken_is_forgotten(seen, queue)
            self.drained_is_said_once_for_each_time(seen, queue)

    def redis_and_the_model_agree(self, seen: Seen) -> None:
        assert {job_id for job_id in IDS if seen.records[job_id]} == set(self.model.jobs)
        for job in self.model.jobs.values():
            same(job, seen.records[job.id])
        assert seen.notes == self.model.notes
        assert {key: held for key, held in seen.keys.items() if held} == {
            key: hold.facts() for key, hold in self.model.keys.items()
        }

    def each_job_is_in_one_list(self, seen: Seen) -> None:
        """One at most, that of its state; a replaced or trimmed job in none; nobody else in any."""
        for queue in QUEUES:
            assert seen.lists[queue, "wait"] == [job.id for job in self.model.listed("wait", queue)]
            for part in LISTS[1:]:
                assert set(seen.lists[queue, part]) == {job.id for job in self.model.listed(part, queue)}

    def every_lease_has_a_holder_and_every_holder_a_lease(self, seen: Seen) -> None:
        leased = {job_id for queue in QUEUES for part in ("active", "reserved") for job_id in seen.lists[queue, part]}
        assert leased == {job_id for job_id in IDS if seen.records[job_id].get("token", "") not in ("", "replaced")}

    def counters_only_go_up(self, seen: Seen) -> None:
        before, self.counters = self.counters, {}
        for job_id, record in seen.records.items():
            if record and "trimmed" not in record:
                self.counters[job_id] = counters(record)
                assert all(a <= b for a, b in zip(before.get(job_id, (0, 0, 0)), counters(record), strict=True))

    def every_move_is_in_the_table(self, seen: Seen) -> None:
        states = {job_id: record.get("state", "") for job_id, record in seen.records.items()}
        for job_id, state in states.items():
            before = self.states.get(job_id, "")
            if not before and self.model.jobs.get(job_id) and self.model.jobs[job_id].dedup:
                continue  # a payload that was kept, become a job by whatever ended the one before
            assert state in reachable(before, self.verb), (
                f"{self.verb}: {before or 'no record'} to {state or 'no record'}"
            )
        self.states = states

    def nothing_that_could_be_taken_is_forgotten(self, seen: Seen, queue: str) -> None:
        """A wake mark, or a worker that had room and is about to claim again."""
        assert seen.marks[queue] <= 1
        takable = [job.id for job in self.model.listed("wait", queue) if not self.model.suspect(job)]
        if takable and self.model.room(queue) > 0:
            assert seen.marks[queue] == 1 or self.attentive, f"{takable} wait and nobody knows"

    def drained_is_said_once_for_each_time(self, seen: Seen, queue: str) -> None:
        kinds = [kind for kind in seen.kinds[queue] if kind in ("waiting", "drained")]
        assert ("drained", "drained") not in itertools.pairwise(kinds)
        idle = not any(self.model.listed(part, queue) for part in ("wait", "reserved", "active"))
        if idle and not any(job.due < NEVER for job in self.model.listed("delayed", queue)):
            assert kinds[-1:] in ([], ["drained"])

    def teardown(self) -> None:
        """The events of a job say what its counters say."""
        seen = [event for queue in QUEUES for event in events(self.client, queue)]
        for job in self.model.jobs.values():
            kinds = [event.kind for event in seen if event.job_id == job.id]
            if "removed" not in kinds and not job.trimmed and not job.rebuilt:
                assert (kinds.count("active"), kinds.count("stalled")) == (job.started, job.stalls)
                assert kinds.count("added") == 1
                assert sum(kinds.count(state) for state in FINAL) == job.replays + (job.state in FINAL)
        letters = set(self.client.keys(f"{PREFIX}:dead:*"))
        assert letters == {f"{PREFIX}:dead:dlq-{letter}" for letter in self.model.letters}


#: The same runs each time, so that CI fails for a change and not by chance. EXAMPLES asks for a longer, random search.
LONG = int(os.environ.get("EXAMPLES", "0"))
PROFILE = settings(
    max_examples=LONG or 200,
    stateful_step_count=80,
    derandomize=not LONG,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


def test_any_sequence_of_moves_does_what_the_model_says(client: redis.Redis) -> None:
    Moves.client = client
    run_state_machine_as_test(Moves, settings=PROFILE)
    client.flushall()
