"""`queue_kit.testing`, as a project's own tests use it: inline without Redis, drained by a worker, killed at a point."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery, _state, signals

from queue_kit import ConfigurationError, NonRetryableError, State, enqueue, open_census
from queue_kit.observe.logs import json_logging_in_workers
from queue_kit.testing import KILL_POINTS, drain, kill_at, run_inline
from queue_kit.transport import points
from tests.apps import bakery_app
from tests.support.redis_server import RedisServer
from tests.worker.stack import current


@pytest.fixture
def bakery(redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """The project, on this test's Redis."""
    monkeypatch.setenv("BAKERY_FOLDER", str(tmp_path))
    monkeypatch.setenv("BAKERY_URL", redis_server.url())
    app, before = bakery_app.app, bakery_app.app.conf.broker_url
    app.conf.broker_url = redis_server.url()
    with current(app):
        yield app
    app.conf.broker_url = before


def bake(loaf: str, **payload: int) -> str:
    return enqueue("bakery.bake", {"loaf": loaf, **payload}).id


def book(folder: Path) -> list[str]:
    return (folder / "book").read_text().splitlines()


# -- inline ---------------------------------------------------------------------------------------------------------------


def test_inline_a_job_and_those_it_sends_have_run_when_the_send_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Redis: the app's URL leads nowhere."""
    monkeypatch.setenv("BAKERY_FOLDER", str(tmp_path))
    app = bakery_app.app
    with current(app), run_inline(app):
        bake("rye")
        with pytest.raises(NonRetryableError, match="no paper for stones"):
            enqueue("bakery.pack", {"loaf": "stone"})
    assert book(tmp_path) == ["rye 1"]
    assert app.conf.task_always_eager is False
    with current(app), run_inline(app, errors=False):
        assert enqueue("bakery.pack", {"loaf": "stone"}).id


# -- drained --------------------------------------------------------------------------------------------------------------


def test_a_drain_runs_all_that_waits_with_retries_and_what_jobs_send(bakery: Celery, tmp_path: Path) -> None:
    """Backoff and delay of a minute are not waited for; the jobs come back in the order of their ends."""
    rye = bake("rye", burns=2)
    stone = bake("stone")
    ended = drain("oven", "shop", app=bakery)
    assert {job.id for job in ended} >= {rye, stone}
    by_name = {(job.name, job.state): job for job in ended}
    assert by_name["bakery.pack", State.FAILED].cause == "non_retryable"
    assert by_name["bakery.bake", State.COMPLETED].attempts_made in (1, 3)
    assert len(ended) == 4
    assert sorted(book(tmp_path)) == ["rye 3", "stone 1"]
    assert drain("oven", "shop", app=bakery) == []


def test_a_drain_says_what_is_left_when_its_time_is_over(bakery: Celery) -> None:
    enqueue("bakery.pack", {"loaf": "rye"}, delay_ms=60_000)
    with pytest.raises(TimeoutError, match=r"not drained within 0.2 s: shop delayed 1"):
        drain("shop", app=bakery, at_once=False, within_s=0.2)


def test_a_drain_leaves_the_process_as_it_was(bakery: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the project has its workers log as JSON."""
    monkeypatch.setattr(signals.setup_logging, "receivers", [])
    json_logging_in_workers()

    def process() -> list[object]:
        root = logging.getLogger()
        return [_state.default_app, _state._tls.current_app, root.level, *root.handlers]

    before = process()
    drain("shop", app=bakery)
    assert process() == before
    assert len(signals.setup_logging.receivers) == 1


# -- killed ---------------------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_a_job_whose_worker_was_killed_after_its_work_runs_again(bakery: Celery, tmp_path: Path) -> None:
    """What a project would learn of its own task: it is done twice unless the task looks."""
    job_id = bake("rye")
    kill_at("function left", "tests.apps.bakery_app", ["oven"])
    [ended] = [job for job in drain("oven", app=bakery) if job.id == job_id]
    assert (ended.state, ended.stalled_count, ended.attempts_made) == (State.COMPLETED, 1, 1)
    assert book(tmp_path) == ["rye 1", "rye 2"]
    assert [run.cause for run in open_census(bakery).runs(job_id)] == ["stalled"]
    drain("shop", app=bakery)


def test_a_worker_that_does_not_get_there_is_an_error_with_its_log(bakery: Celery) -> None:
    with pytest.raises(AssertionError, match="not killed at 'function left':"):
        kill_at("function left", "tests.apps.bakery_app", ["oven"], within_s=3)


def test_every_point_that_can_be_named_exists_and_others_are_refused(bakery: Celery) -> None:
    assert set(KILL_POINTS) <= {*points.PARENT, *points.CHILD}
    with pytest.raises(ValueError, match="point: one of claim sent"):
        kill_at("lunch", "tests.apps.bakery_app")


def test_without_an_app_of_queue_kit_it_says_so() -> None:
    with pytest.raises(ConfigurationError, match="has no queue_kit: call"), run_inline(Celery("none", set_as_current=False)):
        pass
