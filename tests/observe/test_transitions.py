"""Each move of a job is one line of whoever made it, from which state to which and why: read as a chain, none is missing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from celery import Celery

from queue_kit import control, open_census
from queue_kit.observe import transitions
from queue_kit.states import State
from queue_kit.store import Message
from queue_kit.worker.operating.letters import dead_letters
from tests.apps import logs_app
from tests.support.fixtures import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

LOGGER = transitions.logger.name


@dataclass
class Logs:
    """The lines of this process and of a worker, one life at a time."""

    app: Celery
    queue: str
    worker: WorkerProcess
    caplog: pytest.LogCaptureFixture

    def send(self, name: str, **options: Any) -> str:
        return str(self.app.tasks[f"logs.{name}"].apply_async(queue=self.queue, **options).id)

    def await_state(self, job_id: str, state: State) -> None:
        census = open_census(self.app)
        wait_until(lambda: (job := census.job(job_id)) and job.state is state, says=f"{job_id} is {state}")

    def life(self, job_id: str) -> list[tuple[str, str, str, str]]:
        """Transition, from, to and cause of each line about a job, in their order."""
        lines = [{**vars(record), "instant": record.created} for record in self.caplog.records if record.name == LOGGER]
        for line in self.worker.logs().splitlines():
            if line.startswith("{") and LOGGER in line:
                told = json.loads(line)
                lines.append({**told, "instant": datetime.fromisoformat(told["at"]).timestamp()})
        ordered = sorted((line for line in lines if line["job_id"] == job_id), key=lambda line: line["instant"])
        return [tuple(line.get(name, "") for name in ("transition", "from", "to", "cause")) for line in ordered]  # type: ignore[misc]

    def await_life(self, job_id: str, *moves: tuple[str, str, str, str]) -> None:
        wait_until(lambda: len(self.life(job_id)) >= len(moves), says=f"{job_id} has {len(moves)} lines")
        assert self.life(job_id) == list(moves)


@pytest.fixture
def logs(
    redis_server: RedisServer, queue_name: str, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> Iterator[Logs]:
    worker = start_worker("tests.apps.logs_app", pool="threads", backend_url="", concurrency=1)
    with caplog.at_level(logging.INFO, LOGGER):
        yield Logs(logs_app.make(redis_server.url()), queue_name, worker, caplog)


CLAIMED = ("active", "waiting", "active", "claimed")
DUE = ("promoted", "delayed", "waiting", "due")


def test_a_delayed_job_that_is_tried_twice_is_told_from_its_send_to_its_end(logs: Logs) -> None:
    job = logs.send("retried", countdown=0.2)
    logs.await_life(
        job, ("added", "", "delayed", ""), DUE, CLAIMED, ("retrying", "active", "waiting", "transient"), CLAIMED,
        ("completed", "active", "completed", ""),
    )  # fmt: skip


def test_one_that_failed_and_is_replayed_is_told_by_who_replays_it(logs: Logs) -> None:
    job, failed = logs.send("failing"), ("failed", "active", "failed", "non_retryable")
    logs.await_state(job, State.FAILED)
    letters = dead_letters(logs.app)
    assert [done.error for done in letters.replay_each(letters.ids(), "ann")] == [None]
    replayed = ("replayed", "failed", "waiting", "replayed")
    logs.await_life(job, ("added", "", "waiting", ""), CLAIMED, failed, replayed, CLAIMED, failed)
    (record,) = [record for record in logs.caplog.records if getattr(record, "transition", "") == "replayed"]
    assert (record.queue, record.job_name, record.attempt) == (logs.queue, "logs.failing", 1)  # type: ignore[attr-defined]


def test_one_that_expires_in_line_is_told_by_the_worker_that_meets_it(logs: Logs) -> None:
    control.pause(logs.queue, logs.app)
    sent_at = time.monotonic()
    job = logs.send("retried", expires=0.1)
    wait_until(lambda: time.monotonic() > sent_at + 0.2, says="it has expired")
    control.resume(logs.queue, logs.app)
    logs.await_life(job, ("added", "", "waiting", ""), ("cancelled", "waiting", "cancelled", "expired"))


def test_what_somebody_asks_of_a_job_is_told_if_it_is_done(logs: Logs) -> None:
    job, other = logs.send("retried", countdown=3600), logs.send("retried", countdown=3600)
    control.promote(job, logs.app)
    logs.await_state(job, State.COMPLETED)
    assert logs.life(job)[1] == ("promoted", "delayed", "waiting", "asked for")
    control.cancel(other, logs.app)
    assert logs.life(other)[1:] == [("cancelled", "", "cancelled", "asked for")]


def test_a_message_that_cannot_be_read_is_told_as_it_fails(logs: Logs) -> None:
    kit = logs.app.queue_kit
    message = json.dumps({"body": "", "headers": {"task": "logs.retried", "id": "odd", "timelimit": 5}, "properties": {}})
    kit.sender.run(kit.moves.add("odd", Message(message, logs.queue, "logs.retried")))
    logs.await_life("odd", ("failed", "active", "failed", "malformed"))
