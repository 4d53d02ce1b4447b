"""Jobs that hold, burn, die and take others along, and an app that kills or freezes itself at a named point.

Without it a crash test would need a sleep in the job and luck with the moment. What runs and when is written down in a file,
not in Redis: Redis is among what dies.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import Celery, shared_task, signals
from greenlet import GreenletExit

from queue_kit import current_job, exponential, install, job
from queue_kit.transport import points
from tests.support.waiting import wait_until

LEASE_MS, REAP_MS = 1000, 200
SHORT = {"WORKER_LOCK_DURATION_MS": LEASE_MS, "WORKER_STALLED_INTERVAL_MS": REAP_MS, "REDIS_RETRY_MAX_MS": 500}


def make(broker_url: str | None = None, **settings: Any) -> Celery:
    """Make an app with all jobs below. A worker's comes from the environment, which wins over the short leases here; so does
    the name of a primary, for Sentinels."""
    app = Celery("crash", broker=broker_url, set_as_current=False)
    if "CRASH_PRIMARY" in os.environ:
        app.conf.broker_transport_options = {"master_name": os.environ["CRASH_PRIMARY"]}
    install(app, {**{name: os.environ.get(name, short) for name, short in SHORT.items()}, **settings})
    return app


def folder() -> Path:
    """Where jobs write down what they do, and look for what they wait for."""
    return Path(os.environ["CRASH_FOLDER"])


def note(what: str, **facts: Any) -> None:
    """Write a line into the book, which all processes share."""
    line = json.dumps({"what": what, "at": time.time(), "pid": os.getpid(), **facts}) + "\n"
    with (folder() / "book").open("a") as book:
        book.write(line)


def begin() -> Any:
    """Write down that a run has begun, with what it knows of itself."""
    run = current_job()
    facts = {"attempts_made": run.attempts_made, "attempts_started": run.attempts_started}
    note("start", id=run.id, stalled_count=run.stalled_count, main=main_pid(), **facts)
    return run


def main_pid() -> int:
    """The worker's main process, seen from a child of its pool or from within."""
    return int(os.environ.get("CRASH_MAIN_PID", os.getpid()))


def await_gate(gate: str, run: Any = None) -> None:
    """Wait until the test opens a gate (or, so that no process outlives a failed test for long, give up). Write down when
    the run is told to stop meanwhile, and go on waiting."""
    told = run is None

    def is_open() -> bool:
        nonlocal told
        if not told and run.cancelled:
            told = True
            note("told", id=run.id, reason=run.cancel_reason)
        return (folder() / f"gate-{gate}").exists()

    wait_until(is_open, says=f"gate {gate} is open", within_s=60)


# -- jobs -----------------------------------------------------------------------------------------------------------------


@job("crash.hold", attempts=5)
def hold(gate: str, each: bool = False) -> str:
    """Wait for a gate; with `each` every run has one of its own, `<gate>1` for the first."""
    run = begin()
    await_gate(f"{gate}{run.attempts_started}" if each else gate, run)
    note("end", id=run.id)
    return "held"


@job("crash.burn", attempts=5)
def burn(seconds: float = 1.0) -> int:
    """Keep a processor busy in pure Python, without a pause in which anything else could run."""
    run, turns = begin(), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        turns += 1
    note("end", id=run.id)
    return turns


@job("crash.quick", attempts=5)
def quick() -> None:
    """Be done at once."""
    note("end", id=begin().id)


@job("crash.pause", attempts=5)
def pause(seconds: float) -> None:
    """Take a while without using the processor."""
    run = begin()
    time.sleep(seconds)
    note("end", id=run.id)


@job("crash.flaky", attempts=5, backoff=exponential(0))
def flaky(failures: int = 1) -> None:
    """Fail a number of times, then succeed."""
    run = begin()
    if run.attempts_made < failures:
        raise ConnectionError("not yet")
    note("end", id=run.id)


@job("crash.die", attempts=5)
def die(whom: str = "self", deaths: int = 1000, signum: int = signal.SIGKILL, gate: str = "") -> None:
    """Kill the process it runs in, the worker's main process, or the greenlet, or leave by `os._exit`, in each of the first
    runs; the first waits for a gate."""
    run = begin()
    if gate:
        await_gate(gate)
    if run.attempts_started <= deaths:
        if whom == "greenlet":
            raise GreenletExit
        if whom == "exit":
            os._exit(signum)
        os.kill(main_pid() if whom == "worker" else os.getpid(), signum)
        await_gate("never")  # a signal to another process takes a moment
    note("end", id=run.id)


@shared_task(name="crash.limited", rate_limit="30/m")
def limited() -> None:
    """Be held back by Celery's own rate limit."""
    note("end", id=begin().id)


@shared_task(name="crash.plain")
def plain() -> str:
    """A plain Celery task with a result."""
    note("end", id=begin().id)
    return "done"


# -- what happens at points -----------------------------------------------------------------------------------------------


def _at(point: str, nth: int, act: Callable[[], None]) -> Callable[[str], None]:
    seen = 0

    def watcher(reached: str) -> None:
        nonlocal seen
        seen += reached == point
        if reached == point and seen == nth and _first_here(point):
            note("point", point=point)
            act()

    return watcher


def _first_here(point: str) -> bool:
    """Whether no process has come by before: a child that is forked anew begins to count at none."""
    try:
        (folder() / f"been at {point}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _term() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _hang() -> None:
    note("hangs")
    await_gate("hang")


def _break() -> None:
    raise RuntimeError("broken on purpose")


def watch_from_environment() -> None:
    """`CRASH_AT=kill:settle sent:2` kills this process when it reaches that point for the second time."""
    action, _, where = os.environ.get("CRASH_AT", "").partition(":")
    if action:
        point, _, nth = where.partition(":")
        points.watch(_at(point, int(nth or 1), _ACTIONS[action]))


_ACTIONS = {"kill": _kill, "freeze": _freeze, "hang": _hang, "break": _break, "term": _term}


@signals.celeryd_init.connect
def _remember_main(**_: Any) -> None:
    os.environ["CRASH_MAIN_PID"] = str(os.getpid())
    watch_from_environment()


app = make()
