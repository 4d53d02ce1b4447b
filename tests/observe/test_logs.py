"""The log as JSON: one line a transition, the same fields on each, no secrets; under every pool, and off unless chosen."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queue_kit import cancel, open_census
from queue_kit.observe import transitions
from queue_kit.observe.correlation import correlation_id, running_job
from queue_kit.observe.logs import json_formatter, json_logging
from queue_kit.states import State
from tests.apps import logs_app
from tests.support.fixtures import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.worker.stage import POOLS, Stage

SECRET = "hunter2hunter2"


class Log:
    """A logger of this test's own, whose lines are read back."""

    def __init__(self, redact: str = "password,token") -> None:
        self._out = io.StringIO()
        self.logger = logging.Logger("tried", logging.DEBUG)  # noqa: LOG001 - none that others would hear
        handler = logging.StreamHandler(self._out)
        handler.setFormatter(json_formatter(redact))
        self.logger.addHandler(handler)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.getvalue().splitlines()]

    def line(self, *words: Any, **fields: Any) -> dict[str, Any]:
        """Log one line at INFO, and read it."""
        self.logger.info(*words, extra=fields)
        return self.lines[-1]


# -- one line -------------------------------------------------------------------------------------------------------------


def test_a_line_is_one_object_with_time_level_logger_and_fields() -> None:
    line = Log().line("said %s", "twice\nover", queue="q", attempt=2, ratio=0.5, ok=True, none=None)
    assert line.pop("at").endswith("Z")
    assert line == {
        "event": "said twice\nover", "logger": "tried", "level": "info", "queue": "q", "attempt": 2, "ratio": 0.5, "ok": True,
        "none": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"password": SECRET}, {"api": {"User-Token": SECRET}}, {"many": [{"password": SECRET}]}, {"told": f"token={SECRET}"},
        {"where": f"redis://u:{SECRET}@host/0"}, {"where": [f"amqp://:{SECRET}@host"]}, {"odd": (f"password: {SECRET}",)},
    ],
)  # fmt: skip
def test_no_field_shows_a_secret(fields: dict[str, Any]) -> None:
    assert SECRET not in json.dumps(Log().line("x", **fields))


def test_neither_words_nor_a_stack_show_a_secret() -> None:
    log = Log()
    try:
        raise ConnectionError(f"cannot reach sentinel://me:{SECRET}@host with password='{SECRET}'")
    except ConnectionError:
        log.logger.exception("lost redis://:%s@host", SECRET)
    (line,) = log.lines
    assert SECRET not in json.dumps(line)
    assert "ConnectionError: cannot reach" in line["exception"]


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no words for this")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"), (b"bytes", "b'bytes'"), (Odd(), "<Odd>"), ({1: {2}}, {"1": [2]}), ("\ud800", "\ud800"),
        (State.ACTIVE, "active"), ("</script>", "</script>"),
    ],
)  # fmt: skip
def test_whatever_a_field_holds_the_line_can_be_read(value: Any, shown: Any) -> None:
    assert Log().line("x", field=value)["field"] == shown


def test_a_line_knows_the_request_or_the_job_it_is_written_in() -> None:
    log = Log()
    token = correlation_id.set("click-1")
    assert log.line("in a request")["correlation_id"] == "click-1"
    inner = running_job.set(lambda: {"job_id": "j", "correlation_id": "c", "attempt": 2, "queue": None})
    line = log.line("in a job", attempt=1)
    assert {name: line.get(name) for name in ("job_id", "correlation_id", "attempt", "queue")} == {
        "job_id": "j", "correlation_id": "c", "attempt": 1, "queue": None,
    }  # fmt: skip
    running_job.reset(inner)
    correlation_id.reset(token)
    assert not {"job_id", "correlation_id"} & log.line("outside").keys()


def test_what_is_hidden_follows_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEAD_LETTER_REDACT", "pin")
    assert json_logging()["formatters"]["json"]["redact"] == "pin"
    assert json_logging(redact="code")["formatters"]["json"]["redact"] == "code"


def test_the_configuration_is_one_that_logging_takes(tmp_path: Any) -> None:
    """Applied in a process of its own kind: all loggers afterwards are as they were."""
    root = logging.getLogger()
    before, level, quiet = list(root.handlers), root.level, transitions.logger.level
    try:
        logging.config.dictConfig(json_logging("WARNING", logfile=str(tmp_path / "log")))
        logging.getLogger("anything").warning("heard")
        logging.getLogger("anything").info("not heard")
        transitions.told("completed", job_id="j")
        root.handlers[0].flush()
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    finally:
        root.handlers[0].close()
        root.handlers[:] = before
        root.setLevel(level)
        transitions.logger.setLevel(quiet)
    assert [line["event"] for line in lines] == ["heard", "job completed"]


# -- workers --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The transitions that this process logs, switched on."""
    with caplog.at_level(logging.INFO, transitions.logger.name):
        yield caplog


FIELDS = {"queue", "job_id", "job_name", "correlation_id", "attempt", "transition", "from", "to"}


@pytest.mark.parametrize("pool", POOLS)
def test_every_transition_is_one_line_with_the_same_fields_under_every_pool(
    redis_server: RedisServer, queue_name: str, start_worker: StartWorker, told: pytest.LogCaptureFixture, pool: str
) -> None:
    """SPEC 11: sent here, run, retried and completed there; and all that the worker writes is JSON without a secret."""
    app = logs_app.make(redis_server.url())
    job = app.tasks["logs.retried"]
    sent = job.apply_async(kwargs={"password": SECRET}, queue=queue_name, correlation_id="click-1")
    worker = start_worker("tests.apps.logs_app", pool=pool, backend_url="", concurrency=1)

    def lines() -> list[dict[str, Any]]:
        """All that comes after Celery's banner."""
        text = worker.logs()
        return [json.loads(line) for line in text[text.find("\n{") : text.rfind("\n")].strip().splitlines()]

    def moves() -> list[dict[str, Any]]:
        return [line for line in lines() if "transition" in line]

    wait_until(lambda: moves() and moves()[-1]["transition"] == "completed", says="it has run", within_s=40)
    (added,) = [record for record in told.records if record.name == transitions.logger.name]
    assert (added.transition, added.job_id, added.correlation_id) == ("added", sent.id, "click-1")  # type: ignore[attr-defined]
    assert [(line["transition"], line["attempt"]) for line in moves()] == [
        ("active", 1), ("retrying", 1), ("active", 2), ("completed", 2),
    ]  # fmt: skip
    assert all(line.keys() >= FIELDS and line["correlation_id"] == "click-1" for line in moves())
    own = [line for line in lines() if line["event"] == "in the run"]
    assert [(line["job_id"], line["job_name"], line["attempt"]) for line in own] == [
        (sent.id, "logs.retried", number) for number in (1, 2)
    ]
    assert SECRET not in worker.logs()


def test_a_failure_and_a_cancel_are_lines_too(
    redis_server: RedisServer, queue_name: str, start_worker: StartWorker, told: pytest.LogCaptureFixture
) -> None:
    app = logs_app.make(redis_server.url())
    worker = start_worker("tests.apps.logs_app", pool="threads", backend_url="", concurrency=1)
    app.tasks["logs.failing"].apply_async(queue=queue_name)
    wait_until(lambda: '"transition": "failed"' in worker.logs(), says="its failure is a line")
    delayed = app.tasks["logs.failing"].apply_async(queue=queue_name, countdown=3600)
    cancel(delayed.id, app)
    assert [record.transition for record in told.records if hasattr(record, "transition")] == ["added", "added", "cancelled"]


@pytest.mark.crash
def test_a_stall_is_a_line_of_whoever_finds_it(
    redis_server: RedisServer, queue_name: str, start_worker: StartWorker
) -> None:
    """B12: given a worker frozen past its lease; then another says which job stalled, with all its fields."""
    app = logs_app.make(redis_server.url())
    sent = app.tasks["logs.held"].apply_async(queue=queue_name, correlation_id="click-1")
    frozen = start_worker("tests.apps.logs_app", pool="solo", backend_url="")
    wait_until(lambda: "in the run" in frozen.logs(), says="it runs")
    os.killpg(frozen.pid, signal.SIGSTOP)
    other = start_worker("tests.apps.logs_app", pool="solo", backend_url="", queues=["idle"])
    wait_until(lambda: '"transition": "stalled"' in other.logs(), says="the stall is a line", within_s=20)
    (line,) = [json.loads(line) for line in other.logs().splitlines() if '"stalled"' in line]
    assert {name: line[name] for name in ("queue", "job_id", "job_name", "correlation_id", "attempt", "from", "to")} == {
        "queue": queue_name, "job_id": sent.id, "job_name": "logs.held", "correlation_id": "click-1", "attempt": 1,
        "from": "active", "to": "waiting",
    }  # fmt: skip


def test_unless_they_are_chosen_no_transition_is_logged(
    redis_server: RedisServer, queue_name: str, tmp_path: Path, start_worker: StartWorker
) -> None:
    stage = Stage(redis_server.url(), queue_name, tmp_path, start_worker)
    worker = stage.worker("threads")
    stage.await_end(stage.send("quick"))
    wait_until(lambda: "succeeded" in worker.logs(), says="Celery says what it always says")
    assert "job completed" not in worker.logs()
    assert not transitions.logger.isEnabledFor(logging.INFO)


@pytest.mark.parametrize("plain", ["", "1"])
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_at_debug_level_no_secret_is_written_either(
    redis_server: RedisServer, queue_name: str, start_worker: StartWorker, pool: str, plain: str
) -> None:
    """SPEC 11: neither as JSON nor in Celery's own lines; Celery's pools would write each job's whole message."""
    worker = start_worker("tests.apps.logs_app", pool=pool, backend_url="", loglevel="DEBUG", env={"LOGS_PLAIN": plain})
    app = logs_app.make(redis_server.url())
    sent = app.tasks["logs.failing"].apply_async(kwargs={"password": SECRET, "note": "seen"}, queue=queue_name)
    census = open_census(app)
    wait_until(lambda: (job := census.job(sent.id)) and job.state == State.FAILED, says="the job has failed")
    assert worker.stop() == 0
    assert sent.id in worker.logs()
    assert SECRET not in worker.logs()
