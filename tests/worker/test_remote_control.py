"""Remote control works on jobs as it does on Celery's own messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import TaskRevokedError

from tests.support.events import events
from tests.support.waiting import stays_true, wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.attempts import Hall, hall
from tests.worker.stack import QUEUE, fresh_id, show_logs

SLOTS = 2


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Hall]:
    """A hall with one worker that sends events, runs two jobs at a time and takes two more ahead."""
    with hall(tmp_path_factory.mktemp("control")) as made:
        options = ("--without-gossip", "--without-mingle", "--task-events", "--prefetch-multiplier", "2")
        made.worker(concurrency=SLOTS, options=options)
        yield made


@pytest.fixture(autouse=True)
def _logs(room: Hall, request: pytest.FixtureRequest) -> None:
    show_logs(request, *room.stack.workers)


@pytest.fixture
def node(room: Hall) -> str:
    """The worker's name."""
    return room.stack.workers[0].hostname


@pytest.fixture
def inspect(room: Hall, node: str) -> Any:
    return room.app.control.inspect([node], timeout=5, limit=1)


def hold_slots(room: Hall, slots: int = SLOTS) -> tuple[str, list[str]]:
    """Fill the worker's slots; return the gate and the ids."""
    gate = fresh_id("gate")
    jobs = [room.enqueue("gated", {"gate": gate}) for _ in range(slots)]
    room.await_gate(gate, slots)
    return gate, jobs


def ids(answer: dict[str, list[dict[str, Any]]], node: str) -> set[str]:
    return {request["id"] for request in answer[node]}


def await_reachable(room: Hall, worker: WorkerProcess) -> None:
    """Wait until a worker answers; one on gevent says that it is ready before it listens."""
    pong = [{worker.hostname: {"ok": "pong"}}]
    wait_until(
        lambda: room.app.control.ping([worker.hostname], timeout=1, limit=1) == pong,
        says=f"{worker.hostname} answers a ping",
    )


def test_a_worker_answers_a_ping(room: Hall, node: str) -> None:
    """Issue 2: `ping`."""
    assert room.app.control.ping([node], timeout=5, limit=1) == [{node: {"ok": "pong"}}]


def test_a_worker_tells_what_it_knows_and_does(room: Hall, node: str, inspect: Any) -> None:
    """Issue 2: `inspect` active, reserved, registered, stats, scheduled, active_queues, query_task."""
    gate, running = hold_slots(room)
    ahead = [room.enqueue("gated", {"gate": gate}) for _ in range(2)]
    delayed = room.enqueue("brief", delay_ms=600_000)
    wait_until(lambda: ids(inspect.reserved(), node) == set(ahead), says="two jobs are taken ahead")
    active = inspect.active()
    assert ids(active, node) == set(running)
    assert {(r["name"], r["kwargs"]["gate"]) for r in active[node]} == {("attempts.gated", gate)}
    assert "attempts.plain" in inspect.registered()[node]
    assert inspect.stats()[node]["pool"]["max-concurrency"] == SLOTS
    assert [queue["name"] for queue in inspect.active_queues()[node]] == [QUEUE]
    assert inspect.query_task(running[0])[node][running[0]][0] == "active"
    # It waits in Redis, not in a worker.
    assert inspect.scheduled()[node] == []
    room.open_gate(gate, 4)
    for job in (*running, *ahead):
        room.ended(job)
    assert inspect.stats()[node]["total"]["attempts.gated"] >= 4
    room.stack.promote(delayed)
    room.ended(delayed)


@pytest.mark.parametrize("name", ["plain", "brief"])
def test_a_revoked_job_that_waits_never_runs(room: Hall, name: str) -> None:
    """Issue 2: `revoke`; the job is cancelled, cause `revoked`, and its caller is told."""
    gate, running = hold_slots(room)
    job = room.enqueue(name) if name == "brief" else str(room.send(name, 1).id)
    room.app.control.revoke(job, reply=True, timeout=5, limit=1)
    room.open_gate(gate, SLOTS)
    room.ended(job, "cancelled")
    assert room.stack.record(job)["cause"] == "revoked"
    assert room.starts(job) == []
    with pytest.raises(TaskRevokedError):
        room.app.AsyncResult(job).get(timeout=10)
    for other in running:
        room.ended(other)


def test_a_revoked_job_that_is_delayed_never_runs(room: Hall) -> None:
    """Issue 2: the workers remember, and cancel it when it is due."""
    job = room.enqueue("brief", delay_ms=300)
    room.app.control.revoke(job, reply=True, timeout=5, limit=1)
    room.ended(job, "cancelled")
    assert room.starts(job) == []


@pytest.mark.crash
@pytest.mark.parametrize("name", ["gated", "plain_gated"])
@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_a_job_that_runs_can_be_terminated(room: Hall, name: str, signal: str) -> None:
    """Issue 2: `revoke(terminate=True)`: the child is killed, the job cancelled and neither retried nor stalled; the slot is
    free again."""
    gate = fresh_id("gate")
    job = room.enqueue(name, {"gate": gate}) if name == "gated" else str(room.send(name, gate).id)
    room.await_gate(gate)
    room.app.control.revoke(job, terminate=True, signal=signal, reply=True, timeout=5, limit=1)
    room.ended(job, "cancelled")
    assert room.stack.record(job)["cause"] == "revoked"
    with pytest.raises(TaskRevokedError):
        room.app.AsyncResult(job).get(timeout=10)
    assert room.trace(job) == ["added", "waiting", "active", "cancelled"]
    gate, jobs = hold_slots(room)
    room.open_gate(gate, SLOTS)
    for other in jobs:
        room.ended(other)
    assert len(room.starts(job)) == 1


def test_a_pool_that_grows_takes_more_jobs_and_less_when_it_shrinks(room: Hall, node: str) -> None:
    """Issue 2: `pool_grow` and `pool_shrink`; what is claimed follows the slots."""
    control = room.app.control
    assert control.pool_grow(2, [node], reply=True, timeout=5)[0][node]["ok"]
    gate, jobs = hold_slots(room, SLOTS + 2)
    room.open_gate(gate, SLOTS + 2)
    for job in jobs:
        room.ended(job)
    assert control.pool_shrink(2, [node], reply=True, timeout=5)[0][node]["ok"]
    gate, jobs = hold_slots(room)
    late = room.enqueue("gated", {"gate": gate})
    stays_true(lambda: not room.starts(late), says="the third job waits", for_s=0.5)
    room.open_gate(gate, SLOTS + 1)
    for job in (*jobs, late):
        room.ended(job)


def test_a_worker_can_be_given_a_queue_and_relieved_of_it(room: Hall, node: str) -> None:
    """Issue 2: `add_consumer` and `cancel_consumer`, while it runs."""
    control, queue = room.app.control, fresh_id("more")
    first = room.send("plain", 1, queue=queue)
    assert "ok" in control.add_consumer(queue, destination=[node], reply=True, timeout=5)[0][node]
    assert first.get(timeout=10) == 1
    assert "ok" in control.cancel_consumer(queue, destination=[node], reply=True, timeout=5)[0][node]
    second = room.send("plain", 2, queue=queue)
    stays_true(lambda: not room.starts(second.id), says="nobody takes it", for_s=1.2)
    assert room.stack.record(second.id)["state"] == "waiting"
    assert "ok" in control.add_consumer(queue, destination=[node], reply=True, timeout=5)[0][node]
    assert second.get(timeout=10) == 2
    control.cancel_consumer(queue, destination=[node], reply=True, timeout=5)
    assert room.send("plain", 3).get(timeout=10) == 3


def test_a_rate_limit_can_be_set_and_taken_away(room: Hall, node: str) -> None:
    """Issue 2: `rate_limit`; what it holds back is leased, not begun."""
    control = room.app.control
    assert "ok" in control.rate_limit("attempts.plain", "3/s", [node], reply=True, timeout=5)[0][node]
    results = [room.send("plain", n) for n in range(6)]
    for result in results:
        room.ended(result.id)
    began = [room.starts(result.id)[0]["at"] for result in results]
    # The bucket holds one to begin with: five more at three a second.
    assert max(began) - min(began) > 5 / 3 - 0.2
    assert [room.stack.counters(result.id) for result in results] == [(1, 1, 0)] * 6
    starts = [(e.at_ms, e.kind) for e in events(room.stack.jobs, QUEUE) if e.job_id == results[-1].id]
    assert [kind for _, kind in starts] == ["added", "waiting", "active", "completed"]
    assert starts[2][0] / 1000 == pytest.approx(max(began), abs=0.5)
    assert "ok" in control.rate_limit("attempts.plain", "0", [node], reply=True, timeout=5)[0][node]
    assert [room.send("plain", n).get(timeout=5) for n in range(6)] == list(range(6))


def test_a_worker_can_be_told_to_stop(room: Hall) -> None:
    """Issue 2: `shutdown`; in order, with exit status 0."""
    worker = room.worker(queues=[fresh_id("idle")])
    room.app.control.shutdown([worker.hostname])
    assert worker.wait_exit() == 0


@pytest.mark.parametrize("options", [("--max-tasks-per-child", "1"), ("--autoscale", "3,1")], ids=" ".join)
def test_children_may_come_and_go(room: Hall, options: tuple[str, ...], request: pytest.FixtureRequest) -> None:
    """Issue 2: a child that ends as it was told, or a pool that breathes, is no lost worker."""
    queue = fresh_id("breath")
    worker = room.worker(queues=[queue], options=("--without-gossip", "--without-mingle", *options))
    show_logs(request, worker)
    results = [room.send("plain", n, queue=queue) for n in range(8)]
    assert [result.get(timeout=20) for result in results] == list(range(8))
    for result in results:
        room.ended(result.id)
        assert room.stack.counters(result.id) == (1, 1, 0)
    worker.kill_all()


@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_other_pools_answer_too(room: Hall, pool: str, request: pytest.FixtureRequest) -> None:
    """Issue 2: `ping`, `inspect active`, and `revoke` of what waits, while the slots are taken."""
    queue, gate = fresh_id(pool), fresh_id("gate")
    worker = room.worker(pool, queues=[queue])
    show_logs(request, worker)
    running = [str(room.send("plain_gated", gate, queue=queue).id) for _ in range(SLOTS)]
    room.await_gate(gate, SLOTS)
    waits = str(room.send("plain", 1, queue=queue).id)
    await_reachable(room, worker)
    active = room.app.control.inspect([worker.hostname], timeout=5, limit=1).active()
    assert ids(active, worker.hostname) == set(running)
    room.app.control.revoke(waits, destination=[worker.hostname], reply=True, timeout=5, limit=1)
    room.open_gate(gate, SLOTS)
    room.ended(waits, "cancelled")
    for job in running:
        room.ended(job)
    assert room.starts(waits) == []
    worker.kill_all()


@pytest.mark.crash
def test_a_greenlet_can_be_terminated(room: Hall, request: pytest.FixtureRequest) -> None:
    """Issue 2: `revoke(terminate=True)` on gevent, as on processes."""
    queue, gate = fresh_id("gevent"), fresh_id("gate")
    worker = room.worker("gevent", queues=[queue])
    show_logs(request, worker)
    job = str(room.send("plain_gated", gate, queue=queue).id)
    room.await_gate(gate)
    await_reachable(room, worker)
    room.app.control.revoke(job, terminate=True, destination=[worker.hostname], reply=True, timeout=5, limit=1)
    room.ended(job, "cancelled")
    assert room.stack.record(job)["cause"] == "revoked"
    assert [event.kind for event in events(room.stack.jobs, queue, job)] == ["added", "waiting", "active", "cancelled"]
    assert room.send("plain", 1, queue=queue).get(timeout=10) == 1
    worker.kill_all()
