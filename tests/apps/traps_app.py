"""Tasks that step into the traps of stock Celery on Redis, in an app whose every setting a test may choose.

Without it each trap would need an app of its own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from billiard import process
from celery import Celery, Task, shared_task, signals
from celery.worker.control import inspect_command

from queue_kit import current_job, fixed, install, job
from queue_kit.transport.poller import JobPoller
from queue_kit.transport.queues import JobQueues
from tests.support.waiting import wait_until

SHORT = {"WORKER_LOCK_DURATION_MS": 1000, "WORKER_STALLED_INTERVAL_MS": 200, "REDIS_RETRY_MAX_MS": 500}


class OwnBase(Task):
    """A base class as projects write it: from Celery's Task, not from the app's."""

    abstract = True


def make(broker_url: str | None = None, **conf: Any) -> Celery:
    """Make an app. A worker's gets settings of Celery, as JSON, from the environment variable TRAPS_CONF."""
    app = Celery("traps", broker=broker_url, set_as_current=False)
    app.conf.update(json.loads(os.environ.get("TRAPS_CONF", "{}")), **conf)
    install(app, {name: os.environ.get(name, short) for name, short in SHORT.items()})
    return app


def folder() -> Path:
    """Where gates and the book of what ran lie."""
    return Path(os.environ["TRAPS_FOLDER"])


def note(what: str) -> None:
    """Write a line into the book."""
    with (folder() / "book").open("a") as book:
        book.write(what + "\n")


def await_gate(gate: str) -> None:
    """Wait until the test opens a gate, or, so that no process outlives a failed test for long, give up."""
    wait_until((folder() / gate).exists, says=f"gate {gate} is open", within_s=60)


@job("traps.hold")
def hold(gate: str) -> str:
    """Wait for a gate."""
    note(f"hold {current_job().id}")
    await_gate(gate)
    return "held"


@job("traps.echo")
def echo(value: Any = None) -> Any:
    """Give back what came."""
    note(f"echo {value}")
    return value


@job("traps.out_of_memory", attempts=2, backoff=fixed(0))
def out_of_memory() -> None:
    """Say that memory ran out, as an import of a huge file does."""
    note("out_of_memory")
    raise MemoryError


@job("traps.exit", attempts=2, backoff=fixed(0))
def leave(code: int = 3) -> None:
    """End the process, as a library that was written for scripts does."""
    note("exit")
    sys.exit(code)


@job("traps.overrun", attempts=2, backoff=fixed(0), time_limit=1)
def overrun() -> None:
    """Pass the hard time limit in a wait that nothing but a kill ends."""
    note("overrun")
    await_gate("never")


@shared_task(name="traps.plain")
def plain(kind: str = "") -> str:
    """A task of stock Celery, which asks for nothing."""
    note(f"plain {kind}")
    if kind == "memory":
        raise MemoryError
    if kind == "exit":
        sys.exit(1)
    return kind


@signals.task_failure.connect
def note_failure(sender: Any, task_id: str, **kwargs: Any) -> None:
    """Write down each time that Celery says that a task has failed, and in which process."""
    where = "child" if multiprocessing_parent() else "main"
    note(f"task_failure {sender.name} {task_id} {where}")


def multiprocessing_parent() -> bool:
    """Whether this is a child of the prefork pool."""
    return type(process.current_process()).__name__ != "_MainProcess"


@inspect_command()  # type: ignore[untyped-decorator]
def holdings(state: Any) -> dict[str, int]:
    """What the worker's main process holds of things that could grow: answered to `inspect`."""
    gc.collect()
    consumer, kit = state.consumer, state.app.queue_kit
    hub = consumer.hub
    kinds = [type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, JobQueues | JobPoller)]
    return {
        "jobs": len(kit.held.jobs()),
        "running": len(kit.running),
        "settles": len(kit.held._pending),
        "timers": sum(not due.entry.canceled for due in hub.timer.queue) if hub else 0,
        "ticks": len(hub.on_tick) if hub else 0,
        "readers": len(hub.readers) if hub else 0,
        "threads": threading.active_count(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "channels": kinds.count("Channel"),
        "pollers": kinds.count("JobPoller"),
    }


app = make()
