"""Settings and sends with anything in them: taken as what they say, or refused by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st

from queue_kit import QueueKitError, State, enqueue, enqueue_many
from queue_kit.errors import ConfigurationError
from queue_kit.settings import Settings, load
from tests.fuzz.strategies import junk, profile, texts, words
from tests.support.redis_server import RedisServer
from tests.worker.sending import census_of, job_of, sending

NAMES = [item.name.upper() for item in fields(Settings)]
SECRET = "hunter2hunter2"


@profile(500)
@given(st.dictionaries(st.sampled_from(NAMES) | texts, junk | st.just(SECRET), max_size=5))
def test_settings_are_read_or_refused_by_name(options: dict[str, Any]) -> None:
    said = _said(options, {})
    assert SECRET not in said
    assert said or set(map(str.upper, options)) <= set(NAMES)


@profile(500)
@given(st.dictionaries(st.sampled_from(NAMES), texts | words | st.just(SECRET), max_size=5))
def test_so_is_the_environment(environ: dict[str, str]) -> None:
    assert SECRET not in _said({}, environ)


def _said(options: dict[str, Any], environ: dict[str, str]) -> str:
    """What is wrong with these settings, if anything is."""
    try:
        load(options, environ)
    except ConfigurationError as error:
        return str(error)
    return ""


OPTIONS = (
    "delay_ms", "attempts", "backoff", "timeout_ms", "job_id", "priority", "correlation_id", "idempotency_key",
    "idempotency_ttl_ms", "dedup",
)  # fmt: skip
options = st.dictionaries(st.sampled_from(OPTIONS), junk, max_size=3)
#: What a caller is told; anything else would be our mistake, not his.
REFUSALS = (QueueKitError, ValueError, TypeError)


@pytest.fixture
def app(redis_server: RedisServer) -> Iterator[Celery]:
    with sending(redis_server.url()) as app:
        yield app


def test_a_send_is_refused_by_name_or_can_be_read_again(app: Celery) -> None:
    @profile(400)
    @given(st.sampled_from(["enq.free", "enq.order"]) | texts, junk, options)
    def send(name: str, payload: Any, given_: dict[str, Any]) -> None:
        try:
            sent = enqueue(name, payload, **given_)
        except REFUSALS:
            return
        assert job_of(app, sent.id).name in ("enq.free", "enq.order")

    @profile(100)
    @given(st.lists(junk, max_size=4), options)
    def send_many(payloads: list[Any], given_: dict[str, Any]) -> None:
        try:
            sent = enqueue_many("enq.free", payloads, **given_)
        except REFUSALS:
            return
        assert [job_of(app, one.id).name for one in sent if one.error is None] == ["enq.free"] * len(payloads)

    send()
    send_many()


arguments = st.lists(junk, max_size=3)
CELERYS = (
    "countdown", "priority", "expires", "task_id", "headers", "eta", "queue", "retries", "time_limit", "correlation_id",
)  # fmt: skip


def test_what_celerys_own_way_lets_through_can_be_read_again(app: Celery) -> None:
    """What it refuses, it refuses in its own words."""

    @profile(300)
    @given(arguments, st.dictionaries(texts, junk, max_size=2), st.dictionaries(st.sampled_from(CELERYS), junk, max_size=2))
    def send(args: list[Any], kwargs: dict[str, Any], given_: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            app.tasks["enq.plain"].apply_async(args, kwargs, **given_)

    send()
    census = census_of(app)
    for queue in census.queues():
        for state in State:
            assert all(job.name == "enq.plain" for job in census.jobs(queue, state, 1000))
