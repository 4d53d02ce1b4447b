"""Questions to Redis whose askers never wait longer than they have time for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from queue_kit.errors import QueueUnavailable
from queue_kit.observe import reading
from queue_kit.observe.reading import within
from tests.support.waiting import Stopwatch, wait_until


def test_an_answer_in_time_is_returned_and_an_error_raised() -> None:
    assert within(5.0, lambda: 42) == 42
    with pytest.raises(KeyError):
        within(5.0, lambda: {}["missing"])


def test_a_question_without_an_answer_is_left_behind() -> None:
    go = threading.Event()
    watch = Stopwatch()
    with pytest.raises(QueueUnavailable, match=r"no answer within 0\.2 s"):
        within(0.2, lambda: go.wait(20))
    assert watch.elapsed_s >= 0.2
    go.set()


def test_many_that_hang_make_no_threads_without_end_and_nobody_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred askers each is told, though only a few of their questions are under way; then all is as before."""
    monkeypatch.setattr(reading, "_UNDER_WAY", threading.BoundedSemaphore(4))
    go, before = threading.Event(), threading.active_count()

    def asker(_: int) -> str:
        try:
            return str(within(0.3, lambda: go.wait(20)))
        except QueueUnavailable as error:
            return type(error).__name__

    with ThreadPoolExecutor(100) as pool:
        assert set(pool.map(asker, range(100))) == {"QueueUnavailable"}
    assert threading.active_count() <= before + 4
    go.set()
    wait_until(lambda: threading.active_count() <= before, says="what was left behind has ended")
    assert within(5.0, lambda: 42) == 42


def test_where_no_thread_is_to_be_had_it_is_said_and_nothing_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_UNDER_WAY", threading.BoundedSemaphore(1))

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with pytest.raises(QueueUnavailable, match="can't start new thread"):
                within(1.0, lambda: 42)
    assert within(5.0, lambda: 42) == 42
