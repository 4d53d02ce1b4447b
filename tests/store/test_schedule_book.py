"""Schedules as Redis keeps them: counted from when they were written, fired forwards only."""

from __future__ import annotations

import pytest

from queue_kit.store.schedule_book import ScheduleBook
from tests.store.desk import Desk
from tests.support.fixtures import OwnRedis

MINUTELY = {"name": "tests.sweep", "payload": {}, "timing": "every 60000"}


@pytest.fixture
def book(desk: Desk) -> ScheduleBook:
    return ScheduleBook(desk.client, "qwk")


def test_a_schedule_counts_from_when_it_was_written(book: ScheduleBook) -> None:
    before = book.now_ms()
    assert book.put("a", MINUTELY) is True
    assert before <= book.last()["a"] <= book.now_ms()
    assert book.all() == {"a": MINUTELY}


def test_other_times_count_anew_and_another_payload_does_not(book: ScheduleBook) -> None:
    book.put("a", MINUTELY)
    fire = book.now_ms() + 60_000
    assert book.fired("a", fire) is True
    assert book.put("a", {**MINUTELY, "payload": {"x": 1}}) is False
    assert book.last() == {"a": fire}
    book.put("a", {**MINUTELY, "timing": "every 1000"})
    assert book.last()["a"] < fire


def test_a_fire_time_is_news_once_and_never_goes_back(book: ScheduleBook) -> None:
    book.put("a", MINUTELY)
    fire = book.now_ms() + 60_000
    assert [book.fired("a", fire), book.fired("a", fire), book.fired("a", fire - 1)] == [True, False, False]
    assert book.last() == {"a": fire}


def test_what_is_removed_leaves_nothing(book: ScheduleBook) -> None:
    book.put("a", MINUTELY)
    assert (book.remove("a"), book.remove("a")) == (True, False)
    assert book.fired("a", book.now_ms() + 60_000) is False
    assert (book.all(), book.last()) == ({}, {})


def test_a_full_server_still_lets_beats_go_on(own_redis: OwnRedis) -> None:
    """H6: what has been sent is remembered, and a schedule can be removed."""
    client = own_redis(policy="noeviction").client()
    book = ScheduleBook(client, "qwk")
    book.put("a", MINUTELY)
    client.config_set("maxmemory", 1)
    assert book.fired("a", book.now_ms() + 60_000) is True
    assert book.remove("a") is True
    client.config_set("maxmemory", 0)
