"""A real prefork pool in a real event loop, with ours in between: `python -m tests.apps.prefork_pool SCENARIO`.

In a process of its own: that of the tests has threads, and a child forked beside them may wait for ever for what one held.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from select import PIPE_BUF
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded
from celery.concurrency.asynpool import AsynPool
from kombu.asynchronous import Hub, set_event_loop

from queue_kit.worker.running.prefork import Prefork
from tests.support.waiting import let_pass, wait_until

CHILDREN = 2


class Stage:
    """A pool of two processes in a loop that turns while a test waits. calls: what the loop has asked the kernel for."""

    def __init__(self) -> None:
        self.hub = Hub()
        set_event_loop(self.hub)
        self.processes = AsynPool(CHILDREN, threads=False, putlocks=False, enable_timeouts=True)
        self.prefork = Prefork(self.processes)
        self.connect()
        self.calls: list[str] = []
        self.results: list[Any] = []
        self.turn_until(lambda: len(self.processes._all_inqueues) == CHILDREN)
        for name in ("register", "unregister"):
            setattr(self.hub.poller, name, self._counted(name, getattr(self.hub.poller, name)))

    def connect(self) -> None:
        """What the worker does whenever it has connected."""
        self.processes.register_with_event_loop(self.hub)
        self.prefork.attend(self.hub)

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any) -> Any:
            self.calls.append(name)
            return call(*args)

        return counting

    def send(self, function: Callable[..., Any], *args: Any, **limits: float) -> None:
        """Have a child call a function; what it returns, or the error, joins `results`."""

        def failed(info: Any, **kwargs: Any) -> None:
            self.results.append(getattr(info.exception, "exc", info.exception))

        self.processes.apply_async(function, args, callback=self.results.append, error_callback=failed, **limits)

    def turn_until(self, done: Callable[[], bool]) -> None:
        def turned() -> bool:
            self.hub.call_later(0.01, int)
            self.hub.run_once()
            return done()

        wait_until(turned, says="the loop has done it", within_s=20, every_s=0)

    def close(self) -> None:
        self.processes.terminate()
        self.processes.join()
        self.hub.close()
        set_event_loop(None)


def size_of(text: str) -> tuple[int, int]:
    return os.getpid(), len(text)


def outlast(seconds: float) -> str:
    try:
        let_pass(seconds, because="its limit has to come first")
    except SoftTimeLimitExceeded:
        return "asked to stop"
    return "done"


def messages_of_every_size_arrive_whole_and_in_turn(stage: Stage) -> None:
    """A short one is written in one piece; a long one, in as many as the pipe takes, as Celery writes it."""
    sizes = [1, PIPE_BUF - 200, PIPE_BUF - 50, PIPE_BUF, PIPE_BUF + 1, 70_000, 500_000, 2, 1_000_000, 3]
    for size in sizes:
        stage.send(size_of, "x" * size)
    stage.turn_until(lambda: len(stage.results) == len(sizes))
    assert sorted(size for _, size in stage.results) == sorted(sizes)
    assert len({pid for pid, _ in stage.results}) == CHILDREN


def a_job_asks_the_kernel_for_nothing_but_its_messages(stage: Stage) -> None:
    for _ in range(50):
        stage.send(size_of, "x")
    stage.turn_until(lambda: len(stage.results) == 50)
    assert stage.calls == []


def jobs_with_a_limit_that_have_ended_leave_no_timers_behind(stage: Stage) -> None:
    """Celery keeps one for each until its time has come, which in a minute of short jobs is many."""
    for _ in range(200):
        stage.send(size_of, "x", soft_timeout=30.0, timeout=45.0)
    stage.turn_until(lambda: len(stage.results) == 200)
    limits = [entry for entry in stage.hub.timer._queue if entry.eta > time.monotonic() + 20]
    assert len(limits) <= 1


def each_limit_ends_its_own_run(stage: Stage) -> None:
    stage.send(outlast, 30, soft_timeout=0.4, timeout=20)
    stage.send(outlast, 30, timeout=0.2)
    stage.turn_until(lambda: len(stage.results) == 2)
    assert isinstance(stage.results[0], TimeLimitExceeded)
    assert stage.results[1] == "asked to stop"


def a_hard_limit_follows_a_soft_one_that_was_not_heeded(stage: Stage) -> None:
    stage.send(stubborn, soft_timeout=0.1, timeout=0.4)
    stage.turn_until(lambda: len(stage.results) == 1)
    assert isinstance(stage.results[0], TimeLimitExceeded)


def stubborn() -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            let_pass(0.01, because="its limit has to come first")
        except SoftTimeLimitExceeded:
            continue


def a_limit_is_kept_when_a_broken_connection_has_taken_the_timers(stage: Stage) -> None:
    """Celery cancels what was registered since it connected, and registers the pool again."""
    stage.send(outlast, 30, timeout=1)
    stage.turn_until(lambda: bool(stage.prefork._due))
    stage.hub.timer.clear()
    stage.hub.reset()
    stage.connect()
    stage.turn_until(lambda: len(stage.results) == 1)
    assert isinstance(stage.results[0], TimeLimitExceeded)


def a_child_that_is_killed_is_replaced_and_its_place_is_fed(stage: Stage) -> None:
    gone = {process.pid for process in stage.processes._pool}
    for pid in gone:
        os.kill(pid, 9)
    stage.turn_until(lambda: len({p.pid for p in stage.processes._pool} - gone) == CHILDREN)
    for _ in range(10):
        stage.send(size_of, "x")
    stage.turn_until(lambda: len(stage.results) == 10)
    assert not {pid for pid, _ in stage.results} & gone


def a_job_written_to_a_child_that_has_just_died_runs_in_another(stage: Stage) -> None:
    """Its pipe takes the job all the same, and the loop has not yet heard that nobody reads it."""
    gone = stage.processes._pool[0].pid
    os.kill(gone, 9)
    for _ in range(6):
        stage.send(size_of, "x" * 100)
    stage.turn_until(lambda: len(stage.results) == 6)
    assert gone not in {pid for pid, _ in stage.results}


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        messages_of_every_size_arrive_whole_and_in_turn,
        a_job_asks_the_kernel_for_nothing_but_its_messages,
        jobs_with_a_limit_that_have_ended_leave_no_timers_behind,
        each_limit_ends_its_own_run,
        a_hard_limit_follows_a_soft_one_that_was_not_heeded,
        a_limit_is_kept_when_a_broken_connection_has_taken_the_timers,
        a_child_that_is_killed_is_replaced_and_its_place_is_fed,
        a_job_written_to_a_child_that_has_just_died_runs_in_another,
    )
}

if __name__ == "__main__":
    with closing(Stage()) as made:
        SCENARIOS[sys.argv[1]](made)
