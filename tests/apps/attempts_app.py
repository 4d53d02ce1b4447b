"""Jobs and plain tasks that fail, retry, give way, are killed at a chosen place, and write down every start.

Without it each test would have a task of its own, and what differs between two tests could be the task. What happened stands in
the result backend's Redis, where a worker that is killed cannot lose it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import redis
from celery import Celery, Task, chain, chord, current_task, group, signals
from celery.exceptions import Ignore, Reject

from queue_kit import TransientError, current_job, fixed, install, job
from queue_kit.transport import points
from tests.support.waiting import let_pass

LEASE_MS, REAP_MS = int(os.environ.get("ATTEMPTS_LEASE_MS", "1200")), 200
TASKS: list[tuple[Any, dict[str, Any]]] = []


def make(broker_url: str | None = None, backend_url: str | None = None, **settings: Any) -> Celery:
    """Make an app with all plain tasks below; URLs left out come from Celery's own environment variables."""
    app = Celery("attempts", broker=broker_url, backend=backend_url, set_as_current=False)
    app.conf.update(result_extended=True, result_expires=600, accept_content=["json", "pickle"])
    install(app, {"WORKER_LOCK_DURATION_MS": LEASE_MS, "WORKER_STALLED_INTERVAL_MS": REAP_MS, **settings})
    for function, options in TASKS:
        app.task(**{"name": f"attempts.{function.__name__}", **options})(function)
    if os.environ.get("ATTEMPTS_BEAT"):
        app.conf.beat_schedule = {"tick": {"task": "attempts.tick", "schedule": 1.0}}
    return app


def task(function: Any = None, **options: Any) -> Any:
    """Note a function to be made a plain task of every app."""
    if function is None:
        return lambda function: task(function, **options)
    TASKS.append((function, options))
    return function


def store() -> redis.Redis:
    """Where tasks write down what they did: the result backend's Redis."""
    return redis.Redis.from_url(os.environ["CELERY_RESULT_BACKEND"], decode_responses=True, socket_timeout=None)


def note_start(**more: Any) -> None:
    """Write down that the current job has begun, with what it knows of itself."""
    run = current_job()
    facts = {"attempts_made": run.attempts_made, "attempts_started": run.attempts_started,
             "stalled_count": run.stalled_count, "at": time.time(), "pid": os.getpid(), **more}  # fmt: skip
    store().rpush(f"starts:{run.id}", json.dumps(facts))


def hold(gate: str, within_s: float = 30) -> None:
    """Say that somebody waits at this gate, and wait until the test opens it."""
    store().rpush(f"at:{gate}", current_job().id)
    store().blpop([f"gate:{gate}"], timeout=within_s)


def _in_a_worker() -> bool:
    return "CELERY_RESULT_BACKEND" in os.environ


@signals.before_task_publish.connect
def _die_before_sending(sender: str = "", **rest: Any) -> None:
    """Where a test has asked for it: the process is killed when a run in it is about to send the nth task of this name."""
    _die_if_asked(f"kill-before:{sender}")


@signals.after_task_publish.connect
def _die_after_sending(sender: str = "", **rest: Any) -> None:
    """The same, right after it was sent."""
    _die_if_asked(f"kill-after:{sender}")


def _die_if_asked(key: str) -> None:
    if _in_a_worker() and current_task and store().lpop(key) == "kill":
        store().rpush("killed", os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)


@signals.task_postrun.connect
def _note_end(task_id: str = "", state: str | None = None, **rest: Any) -> None:
    if _in_a_worker():
        store().rpush(f"ends:{task_id}", str(state))
    if os.environ.get("ATTEMPTS_SLOWLY") and task_id.startswith("slow"):
        let_pass(0.2, because="what follows this run is to be quicker than its own end")


def _linger(point: str) -> None:
    if point == "move sending":
        let_pass(0.4, because="the job is to be settled before it is moved")


if os.environ.get("ATTEMPTS_SLOWLY"):
    points.watch(_linger)


# -- declared ----------------------------------------------------------------------------------------------------------


@job("attempts.flaky", attempts=3, backoff=fixed(0))
def flaky(fails: int = 0, text: str = "not yet") -> int:
    """Fail as often as told, then give the number of attempts made before."""
    note_start()
    made = current_job().attempts_made
    if made < fails:
        raise TransientError(text)
    return made


@job("attempts.gated", attempts=3, backoff=fixed(0))
def gated(gate: str, value: Any = None) -> Any:
    note_start()
    hold(gate)
    return value


@job("attempts.brief", attempts=3, backoff=fixed(0))
def brief(value: Any = None, takes_s: float = 0.0) -> Any:
    """Note how many of its kind run at the same time."""
    running = store().incr("running")
    note_start(running=running)
    store().blpop(["never"], timeout=takes_s or 0.001)
    store().decr("running")
    return value


# -- plain -------------------------------------------------------------------------------------------------------------


@task
def plain(value: Any = None) -> Any:
    note_start()
    return value


@task
def notes(label: str) -> str:
    """Write down which jobs of this label have run."""
    note_start()
    store().sadd(f"noted:{label}", current_job().id)
    return label


@task
def tick() -> None:
    note_start()


@task
def plain_fails(value: Any = None) -> None:
    note_start()
    raise ValueError("plain")


@task
def plain_gated(gate: str, value: Any = None) -> Any:
    note_start()
    hold(gate)
    return value


@task(acks_late=False)
def at_most_once(gate: str) -> str:
    note_start()
    hold(gate)
    return "done"


@task(bind=True, max_retries=3)
def retries(self: Task, times: int = 1, countdown: float = 0.1) -> int:
    note_start()
    if self.request.retries < times:
        raise self.retry(countdown=countdown)
    return int(self.request.retries)


@task(bind=True, autoretry_for=(KeyError,), max_retries=3, default_retry_delay=0.1)
def retries_itself(self: Task, times: int = 1) -> int:
    note_start()
    if self.request.retries < times:
        raise KeyError("not yet")
    return int(self.request.retries)


@task(autoretry_for=(Exception,), max_retries=3, default_retry_delay=0)
def refuses(requeue: bool = False) -> None:
    note_start()
    raise Reject("no", requeue=requeue)


@task
def refuses_once() -> str:
    note_start()
    if store().llen(f"starts:{current_job().id}") == 1:
        raise Reject("later", requeue=True)
    return "accepted"


@task
def ignores() -> None:
    note_start()
    raise Ignore("nothing to see")


@task(bind=True)
def gives_way(self: Task, to: str) -> Any:
    """Replace itself by a canvas of the plain tasks here; all of them give 3, or a list of it."""
    note_start()
    give = self.app.tasks["attempts.plain"].si
    canvases = {
        "task": lambda: give(3),
        "chain": lambda: chain(give(1), give(2), give(3)),
        "group": lambda: group(give(3), give(3)),
        "chord": lambda: chord([give(1), give(2)], give(3)),
        "nest": lambda: chain(chord([chord([give(1), give(2)], give(3)), give(4)], give(5)), group(give(3), give(3))),
    }
    return self.replace(canvases[to]())


# -- for tests that take something away ----------------------------------------------------------------------------------


@task(bind=True, max_retries=3)
def outruns_its_lease(self: Task, gate: str, how: str = "returns") -> str:
    """Wait at a gate of one's own; the first run then ends as told, any later one returns."""
    note_start()
    turn = current_job().attempts_started
    hold(f"{gate}:{turn}")
    if turn > 1:
        return f"run {turn}"
    if how == "raises":
        raise ValueError("the first run")
    if how == "retries":
        raise self.retry(countdown=0)
    if how == "rejects":
        raise Reject("the first run", requeue=False)
    if how == "replaces":
        return str(
            self.replace(self.app.tasks["attempts.plain"].si("replaced") | self.app.tasks["attempts.plain"].si("by it"))
        )
    return f"run {turn}"


@task(bind=True, max_retries=3)
def retries_behind_a_gate(self: Task, gate: str, how: str) -> str:
    note_start()
    if self.request.retries == 0:
        hold(gate)
        if how == "with others":
            raise self.retry(args=("no gate", "other arguments"), countdown=0.05)
        raise self.retry(countdown=0.05)
    return how


@job("attempts.fails_behind_a_gate", attempts=3, backoff=fixed(50))
def fails_behind_a_gate(gate: str, how: str) -> str:
    note_start()
    if current_job().attempts_made == 0:
        hold(gate)
        raise TransientError("and Redis is not there")
    return how


@task(bind=True, max_retries=3)
def retries_with_what_cannot_be_sent(self: Task, value: Any = None) -> None:
    note_start()
    raise self.retry(kwargs={"value": object()}, countdown=0)


@task
def kills(value: Any = None) -> None:
    """Take the process along, each time."""
    note_start()
    os.kill(os.getpid(), signal.SIGKILL)


@task
def notes_failure(request: Any, error: BaseException, trace: Any) -> None:
    """An errback of three arguments, which Celery calls where it tells of the failure."""
    store().rpush(f"told:{request.id}", type(error).__name__)


app = make()
