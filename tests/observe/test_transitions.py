"""Each move of a job is one line of whoever made it, from which state to which and why: read as a chain, none is missing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from celery import Celery

from queue_kit import JobNotFound, control
from queue_kit.observe import transitions
from queue_kit.store import Message
from queue_kit.worker.operating.letters import dead_letters
from tests.apps import logs_app
from tests.support.fixtures import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

LOGGER = transitions.logger.name

Move = tuple[str, str, str, str]


@dataclass
class Logs:
    """The lines of this process and of a worker, one life at a time."""

    app: Celery
    queue: str
    worker: WorkerProcess
    caplog: pytest.LogCaptureFixture

    def send(self, name: str, **options: Any) -> str:
        return str(self.app.tasks[f"logs.{name}"].apply_async(queue=self.queue, **options).id)

    def own(self, job_id: str) -> list[Move]:
        """What this process has written about a job."""
        return moves(job_id, (vars(record) for record in self.caplog.records if record.name == LOGGER))

    def workers(self, job_id: str) -> list[Move]:
        """What the worker has written about it."""
        text = self.worker.logs()
        lines = text[: text.rfind("\n") + 1].splitlines()  # what comes after is being written
        return moves(job_id, (json.loads(line) for line in lines if line.startswith("{") and '"transition"' in line))

    def await_workers(self, job_id: str, *told: Move) -> None:
        wait_until(lambda: len(self.workers(job_id)) >= len(told), says=f"the worker has {len(told)} lines about {job_id}")
        assert self.workers(job_id) == list(told)


def moves(job_id: str, lines: Iterable[Mapping[str, Any]]) -> list[Move]:
    """Transition, from, to and cause."""
    return [
        (line["transition"], line.get("from", ""), line.get("to", ""), line.get("cause", ""))
        for line in lines if line["job_id"] == job_id
    ]  # fmt: skip


@pytest.fixture
def logs(
    redis_server: RedisServer, queue_name: str, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> Iterator[Logs]:
    worker = start_worker("tests.apps.logs_app", pool="threads", backend_url="", concurrency=1)
    with caplog.at_level(logging.INFO, LOGGER):
        yield Logs(logs_app.make(redis_server.url()), queue_name, worker, caplog)


CLAIMED = ("active", "waiting", "active", "claimed")
DUE = ("promoted", "delayed", "waiting", "due")
FAILED = ("failed", "active", "failed", "non_retryable")


def test_a_delayed_job_that_is_tried_twice_is_told_from_its_send_to_its_end(logs: Logs) -> None:
    job = logs.send("retried", countdown=0.2)
    retried, completed = ("retrying", "active", "waiting", "transient"), ("completed", "active", "completed", "")
    logs.await_workers(job, DUE, CLAIMED, retried, CLAIMED, completed)
    assert logs.own(job) == [("added", "", "delayed", "")]


def test_one_that_failed_and_is_replayed_is_told_by_who_replays_it(logs: Logs) -> None:
    job = logs.send("failing")
    logs.await_workers(job, CLAIMED, FAILED)
    letters = dead_letters(logs.app)
    assert [done.error for done in letters.replay_each(letters.ids(), "ann")] == [None]
    logs.await_workers(job, CLAIMED, FAILED, CLAIMED, FAILED)
    assert logs.own(job) == [("added", "", "waiting", ""), ("replayed", "failed", "waiting", "replayed")]
    replayed = logs.caplog.records[-1]
    assert (replayed.queue, replayed.job_name, replayed.attempt) == (logs.queue, "logs.failing", 1)  # type: ignore[attr-defined]


def test_one_that_expires_in_line_is_told_by_the_worker_that_meets_it(logs: Logs) -> None:
    control.pause(logs.queue, logs.app)
    sent_at = time.monotonic()
    job = logs.send("retried", expires=0.1)
    wait_until(lambda: time.monotonic() > sent_at + 0.2, says="it has expired")
    control.resume(logs.queue, logs.app)
    logs.await_workers(job, ("cancelled", "waiting", "cancelled", "expired"))


def test_what_somebody_asks_of_a_job_is_told_if_it_is_done(logs: Logs) -> None:
    job, other = logs.send("retried", countdown=3600), logs.send("retried", countdown=3600)
    control.promote(job, logs.app)
    assert logs.own(job)[1:] == [("promoted", "delayed", "waiting", "asked for")]
    control.cancel(other, logs.app)
    control.remove(other, logs.app)
    assert logs.own(other)[1:] == [("cancelled", "", "cancelled", "asked for"), ("removed", "", "", "asked for")]
    with pytest.raises(JobNotFound):
        control.cancel(other, logs.app)
    assert len(logs.own(other)) == 3
    wait_until(lambda: len(logs.workers(job)) == 4, says="what was promoted has run")


def test_a_message_that_cannot_be_read_is_told_as_it_fails(logs: Logs) -> None:
    kit = logs.app.queue_kit
    message = json.dumps({"body": "", "headers": {"task": "logs.retried", "id": "odd", "timelimit": 5}, "properties": {}})
    kit.sender.run(kit.moves.add("odd", Message(message, logs.queue, "logs.retried")))
    logs.await_workers("odd", ("failed", "active", "failed", "malformed"))


@pytest.mark.crash
def test_what_a_dead_worker_held_is_told_by_its_warden(logs: Logs) -> None:
    """B11: given a worker that is killed while a job runs; then its warden says of each what has become of it."""
    job = logs.send("held")
    logs.await_workers(job, CLAIMED)
    logs.worker.sigkill()
    logs.await_workers(job, CLAIMED, ("stalled", "active", "waiting", "its worker is lost"))
    logs.worker.wait_for_log("1 jobs of its given back")
    warden = [line for line in logs.worker.logs().splitlines() if "queue_kit.warden" in line]
    assert json.loads(warden[0]).items() >= {"queue": logs.queue, "job_name": "logs.held", "attempt": 1}.items()
