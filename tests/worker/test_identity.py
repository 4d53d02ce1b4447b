"""One id is one job, whoever dies when: what a run sends under its own id, and what it sends on, exists once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group

from queue_kit import enqueue
from tests.support.events import count, events
from tests.support.waiting import wait_until
from tests.worker.attempts import Hall, hall
from tests.worker.stack import QUEUE, fresh_id, show_logs

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module", params=["prefork", "threads"])
def room(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Hall]:
    """A hall where a kill takes the child of a worker (prefork), or a whole worker that has another beside it (threads)."""
    with hall(tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture(autouse=True)
def _enough_workers(room: Hall, request: pytest.FixtureRequest) -> None:
    pool = request.node.callspec.params["room"]
    room.await_killed()
    for _ in range(sum(worker.running for worker in room.stack.workers), 1 if pool == "prefork" else 2):
        room.worker(pool)
    show_logs(request, *(worker for worker in room.stack.workers if worker.running))


def plain(room: Hall, value: Any) -> Any:
    """A signature of a plain task whose id says which it is."""
    return room.app.tasks["attempts.plain"].si(value)


@pytest.mark.parametrize("name", ["retries", "retries_itself", "flaky"])
def test_a_kill_after_a_retry_was_sent_leaves_one_job(room: Hall, name: str) -> None:
    """A12: given a run that has sent its retry. Killed: its process, before the run ends. Then one copy of the job and one
    further run; plain Celery has two."""
    room.kill_after_sending(f"attempts.{name}")
    job = room.enqueue(name, {"fails": 1}) if name == "flaky" else room.send(name, 1).id
    room.ended(job)
    assert room.has_killed(f"attempts.{name}")
    assert room.copies(job) == ["completed"]
    assert len(room.starts(job)) == 2
    assert room.stack.counters(job) == (2, 2, 0)
    assert "stalled" not in room.trace(job)


def test_an_id_that_is_there_keeps_its_first_payload(room: Hall) -> None:
    """E9: `duplicated`; the second call says so and where the job is."""
    first = room.enqueue("gated", {"gate": "first", "value": 1})
    room.await_gate("first")
    again = enqueue("attempts.gated", {"gate": "second", "value": 2}, job_id=first)
    assert (again.id, again.deduplicated, again.existing_state) == (first, True, "active")
    room.open_gate("first")
    room.ended(first)
    assert room.app.AsyncResult(first).get(timeout=5) == 1
    assert [e.kind for e in events(room.stack.jobs, QUEUE, first)] == [
        "added",
        "waiting",
        "active",
        "duplicated",
        "completed",
    ]
    assert enqueue("attempts.gated", {"gate": "third"}, job_id=first).existing_state == "completed"
    assert len(room.starts(first)) == 1


def test_the_next_step_of_a_chain_runs_once(room: Hall) -> None:
    """E10: given a step that has sent the next one. Killed: its process. Then it runs again, the next step once."""
    first, second = fresh_id("step"), fresh_id("step")
    room.kill_after_sending("attempts.plain")
    gate = room.app.tasks["attempts.retries"].si(0)
    result = chain(gate.set(task_id=first), plain(room, 2).set(task_id=second)).apply_async()
    assert result.get(timeout=15) == 2
    room.ended(first)
    assert (len(room.starts(first)), len(room.starts(second))) == (2, 1)
    assert room.stack.counters(first) == (1, 2, 1)
    assert room.copies(second) == ["completed"]


def _canvas(kind: str, note: Any) -> list[Any]:
    """Callbacks of one kind, all made of the same task."""
    kinds = {
        "task": lambda: [note()],
        "two tasks": lambda: [note(), note()],
        "chain": lambda: [chain(note(), note())],
        "group": lambda: [group(note(), note())],
        "chord": lambda: [chord([note(), note()], note())],
        "chord in a chain": lambda: [chain(note(), chord([note(), note()], note()), note())],
        "chord in a chord": lambda: [chord([chord([note(), note()], note()), note()], note())],
        "chord as body": lambda: [chord([note(), note()], chord([note(), note()], note()))],
    }
    return kinds[kind]()


CANVASES = {"task": 1, "two tasks": 2, "chain": 2, "group": 2, "chord": 3, "chord in a chain": 5, "chord in a chord": 5,
            "chord as body": 5}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "nth"), [(kind, n) for kind, size in CANVASES.items() for n in range(1, min(size, 2) + 1)]
)
def test_a_callback_runs_once(room: Hall, kind: str, nth: int) -> None:
    """E10: given a job with `link` callbacks. Killed: the process that has sent the first or second task of them. Then
    each of these tasks runs once, and the canvas comes to its end."""
    label = fresh_id("link")
    task = room.app.tasks["attempts.notes"]
    room.kill_after_sending("attempts.notes", nth)
    result = room.send("retries", 0, link=_canvas(kind, lambda: task.si(label)))
    room.ended(result.id)
    wait_until(lambda: room.noted(label) >= CANVASES[kind], says="every callback has run")
    room.settled()
    assert room.has_killed("attempts.notes")
    assert room.noted(label) == CANVASES[kind]


def test_a_chords_body_runs_once(room: Hall) -> None:
    """E10: given the last part of a chord, which has sent the body. Killed: its process. Then the body runs once."""
    label = fresh_id("body")
    room.kill_after_sending("attempts.notes")
    result = chord([plain(room, 1), plain(room, 2)], room.app.tasks["attempts.notes"].si(label)).apply_async()
    assert result.get(timeout=15) == label
    room.settled()
    assert room.has_killed("attempts.notes")
    assert room.noted(label) == 1


def test_a_chords_body_is_sent_by_the_rerun_of_a_part_that_died_before_it(room: Hall) -> None:
    """E10: given the last part of a chord, which has claimed to send the body. Killed: its process, before it does. Then it
    runs again, within the time of that claim, and sends the body."""
    label = fresh_id("body")
    room.kill_before_sending("attempts.notes")
    result = chord([plain(room, 1), plain(room, 2)], room.app.tasks["attempts.notes"].si(label)).apply_async()
    assert result.get(timeout=15) == label
    room.settled()
    assert room.noted(label) == 1


def test_a_chord_whose_last_part_stalls_out_before_the_body_comes_to_its_end(
    room: Hall, request: pytest.FixtureRequest
) -> None:
    """K15: the same with its rerun killed, too. Then the part has failed, what it returned is there, and the body runs once."""
    label = fresh_id("body")
    room.worker(request.node.callspec.params["room"])
    for _ in range(2):
        room.kill_before_sending("attempts.notes")
    result = chord([plain(room, 1), plain(room, 2)], room.app.tasks["attempts.notes"].si(label)).apply_async()
    assert result.get(timeout=20) == label
    room.settled()
    assert room.noted(label) == 1


@pytest.mark.parametrize(
    ("to", "gives"), [("task", 3), ("chain", 3), ("group", [3, 3]), ("chord", 3), ("nest", [3, 3])]
)
def test_a_canvas_that_replaces_a_job_runs_once(room: Hall, to: str, gives: Any) -> None:
    """E10: given a run that gives way to a canvas, and has sent its first task. Killed: its process. Then each task of the
    canvas runs once, and the result arrives under the id."""
    job = fresh_id(f"way-{to}")
    room.kill_after_sending("attempts.plain")
    before = count(room.stack.jobs, QUEUE, "added")
    result = room.send("gives_way", to, task_id=job)
    assert result.get(timeout=20) == gives
    room.ended(job)
    room.settled()
    assert room.has_killed("attempts.plain")
    assert room.copies(job) == ["completed"]
    assert (
        count(room.stack.jobs, QUEUE, "added") - before
        == {"task": 1, "chain": 3, "group": 3, "chord": 3, "nest": 8}[to]
    )
