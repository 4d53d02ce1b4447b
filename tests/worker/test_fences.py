"""A run that has lost its lease says nothing any more, and a retry that cannot be sent is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord

from queue_kit import QueueUnavailable
from tests.support.events import events
from tests.support.fixtures import OwnProxy
from tests.support.waiting import Stopwatch, wait_until
from tests.worker.attempts import Hall, hall
from tests.worker.stack import QUEUE, fresh_id, show_logs

pytestmark = pytest.mark.crash


@pytest.fixture
def room(tmp_path: Path, engine: Path) -> Iterator[Hall]:
    """A hall without a worker."""
    with hall(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Hall]:
    """A hall with two workers, of which one may be frozen for a while."""
    with hall(tmp_path_factory.mktemp("fences")) as made:
        made.worker(concurrency=1)
        made.worker(concurrency=1)
        yield made


@pytest.fixture
def stale(shared: Hall, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Send a job and let its first run lose its lease: a function from the job to its id and the gate of both its runs."""
    show_logs(request, *shared.stack.workers)
    frozen = []

    def lose(send: Any) -> tuple[str, str]:
        gate = fresh_id("gate")
        job = send(gate)
        shared.await_gate(f"{gate}:1")
        name = shared.stack.record(job)["worker"]
        (worker,) = [worker for worker in shared.stack.workers if f":{worker.pid}:" in name]
        worker.sigstop()
        frozen.append(worker)
        shared.await_gate(f"{gate}:2")
        return job, gate

    yield lose
    for worker in frozen:
        worker.sigcont()


def ends(room: Hall, job: str) -> list[str]:
    """How Celery saw each run of a job end, where it ran."""
    found: Any = room.stack.notes.lrange(f"ends:{job}", 0, -1)
    return list(found)


def result_of(room: Hall, job: str) -> Any:
    return room.app.AsyncResult(job)


@pytest.mark.parametrize("how", ["returns", "raises", "retries", "rejects", "replaces"])
def test_a_run_without_its_lease_neither_stores_nor_sends(shared: Hall, stale: Any, how: str) -> None:
    """K17: given a job with callback and errback, whose worker is frozen past the lease; another runs it. Then the child of
    the first ends, in each way there is: no result, no callback, no retry, no canvas of it is seen; the second run decides."""
    callback, errback = fresh_id("callback"), shared.app.tasks["attempts.notes_failure"].s()
    link = shared.app.tasks["attempts.plain"].s().set(task_id=callback)
    job, gate = stale(lambda gate: shared.send("outruns_its_lease", gate, how, link=[link], link_error=[errback]).id)
    shared.open_gate(f"{gate}:1")
    wait_until(lambda: len(ends(shared, job)) == 1, says="the first run has ended")
    assert ends(shared, job) == ["IGNORED"]
    assert result_of(shared, job).state == "PENDING"
    assert not shared.stack.record(callback)
    assert shared.stack.record(job)["state"] == "active"
    shared.open_gate(f"{gate}:2")
    shared.ended(job)
    shared.ended(callback)
    assert result_of(shared, job).get(timeout=5) == "run 2"
    assert result_of(shared, callback).get(timeout=5) == "run 2"
    assert shared.trace(job) == ["added", "waiting", "active", "waiting", "stalled", "active", "completed"]
    assert "duplicated" not in shared.trace(callback)
    assert not shared.stack.notes.exists(f"told:{job}")


def test_a_run_without_its_lease_sends_no_next_step(shared: Hall, stale: Any) -> None:
    """K17: in a chain, after the other run has completed."""
    after = fresh_id("after")
    step = shared.app.tasks["attempts.plain"].s().set(task_id=after)

    def send(gate: str) -> str:
        first = shared.app.tasks["attempts.outruns_its_lease"].s(gate).set(task_id=fresh_id("first"))
        return str(chain(first, step).apply_async().parent.id)

    job, gate = stale(send)
    shared.open_gate(f"{gate}:2")
    shared.ended(after)
    shared.open_gate(f"{gate}:1")
    wait_until(lambda: len(ends(shared, job)) == 2, says="both runs have ended")
    assert sorted(ends(shared, job)) == ["IGNORED", "SUCCESS"]
    assert shared.trace(after) == ["added", "waiting", "active", "completed"]
    assert result_of(shared, job).get(timeout=5) == "run 2"


def test_a_run_without_its_lease_is_no_part_of_a_chord(shared: Hall, stale: Any) -> None:
    """K17: else the chord would count it twice, and run its body without the other member."""
    member, other = fresh_id("member"), fresh_id("other")
    body = shared.app.tasks["attempts.plain"].s().set(task_id=fresh_id("body"))
    results = []

    def send(gate: str) -> str:
        first = shared.app.tasks["attempts.outruns_its_lease"].s(gate).set(task_id=member)
        second = shared.app.tasks["attempts.plain"].s("other").set(task_id=other, countdown=600)
        results.append(chord([first, second], body).apply_async())
        return member

    job, gate = stale(send)
    shared.open_gate(f"{gate}:1")
    wait_until(lambda: len(ends(shared, job)) == 1, says="the first run has ended")
    shared.open_gate(f"{gate}:2")
    shared.ended(member)
    assert not shared.stack.record(body.options["task_id"])
    shared.stack.promote(other)
    assert results[0].get(timeout=10) == ["run 2", "other"]


@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_the_end_of_a_canvas_is_not_taken_for_the_run_that_gave_way_to_it(
    room: Hall, pool: str, request: pytest.FixtureRequest
) -> None:
    """A13: given a run that gave way to a chord, and is slow to end, in the very process where the chord's last part ends.
    What that sends under the job's id is the job's next part, not the old run's own retry, which is over."""
    env = {**room.stack.env, "ATTEMPTS_SLOWLY": "1"}
    show_logs(request, room.worker(pool, concurrency=4, env=env))
    result = room.send("gives_way", "chord", task_id=fresh_id("slow"))
    assert result.get(timeout=10) == 3
    room.ended(result.id)
    assert room.copies(result.id) == ["completed"]


@pytest.mark.parametrize(
    ("name", "how", "gives"),
    [
        ("retries_behind_a_gate", "same", "same"),
        ("retries_behind_a_gate", "with others", "other arguments"),
        ("fails_behind_a_gate", "same", "same"),
    ],
)
def test_a_retry_that_cannot_be_sent_is_made_by_the_worker(
    room: Hall, own_proxy: OwnProxy, name: str, how: str, gives: str, request: pytest.FixtureRequest
) -> None:
    """K9: given a run whose retry cannot be sent, since Redis is not there for a while. Then the job is still there, and
    runs again, with the arguments that the retry gave it (stock: deleted)."""
    proxy = own_proxy(room.stack.server)
    env = {"ATTEMPTS_LEASE_MS": "5000", "REDIS_RETRY_MAX_MS": "200"}
    show_logs(request, room.stack.start_worker(broker_url=proxy.url(room.stack.db), env={**room.stack.env, **env}))
    gate = fresh_id("gate")
    job = room.enqueue(name, {"gate": gate, "how": how}) if "fails" in name else room.send(name, gate, how).id
    room.await_gate(gate)
    proxy.cut()
    room.open_gate(gate)
    wait_until(lambda: ends(room, job), says="the first run has ended")
    proxy.restore()
    room.ended(job)
    assert room.trace(job) == ["added", "waiting", "active", "delayed", "waiting", "active", "completed"]
    assert room.stack.counters(job) == (2, 2, 0)
    assert room.stack.dead_letters(job) == []
    assert result_of(room, job).get(timeout=5) == gives


def test_a_retry_that_can_never_be_sent_fails(shared: Hall) -> None:
    """K9: what no serializer takes is no fault of Redis: the job fails, with its dead letter."""
    job = shared.send("retries_with_what_cannot_be_sent").id
    shared.ended(job, "failed")
    assert len(shared.starts(job)) == 1
    (letter,) = shared.stack.dead_letters(job)
    assert "EncodeError" in letter["reason"]
    assert result_of(shared, job).state == "FAILURE"
    assert [e.kind for e in events(shared.stack.jobs, QUEUE, job)][-1] == "dead-lettered"


def test_a_send_that_names_its_queue_does_not_wait_for_a_frozen_server(room: Hall) -> None:
    """K7: as a retry does, which names the queue of its job: within a second in all, though Celery's options look as if an
    exchange had been asked for."""
    room.send("plain", 1, queue=QUEUE)
    room.stack.server.freeze()
    watch = Stopwatch()
    with pytest.raises(QueueUnavailable):
        room.send("plain", 2, queue=QUEUE)
    assert watch.elapsed_ms < 1.2 * 1000 + 250
    room.stack.server.thaw()
