"""Tasks that canvases are made of, on an app that is stock or ours by environment: the same code runs on both.

Without one module for both, a difference between the two stacks could lie in the tasks instead of the transport.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import redis
from celery import Celery, Task, chain, chord, group, signals
from celery.concurrency.asynpool import AsynPool

from queue_kit import install

#: A lease that outlasts every task here many times, and reaping soon enough for a test that kills.
QUICK = {"WORKER_LOCK_DURATION_MS": 2000, "WORKER_STALLED_INTERVAL_MS": 200}
JOURNAL = "canvas:journal"
NAME = "canvas"


def make(with_kit: bool, broker_url: str | None = None, backend_url: str | None = None) -> Celery:
    """Make an app with all tasks below; URLs left out come from Celery's own environment variables."""
    app = Celery(NAME, broker=broker_url, backend=backend_url, set_as_current=False)
    app.conf.update(result_extended=True, task_send_sent_event=True, result_expires=600)
    if with_kit:
        install(app, QUICK)
    else:
        app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)
        # The stock pool may notice a dead child only when it next looks, each five seconds: too long for a test.
        AsynPool.timers = property(lambda pool: {pool.maintain_pool: 0.2})
    for function, options in TASKS:
        app.task(name=f"canvas.{function.__name__}", **options)(function)
    return app


def store() -> redis.Redis:
    """The Redis where tasks write down what they did: the result backend's."""
    return redis.Redis.from_url(os.environ["CELERY_RESULT_BACKEND"], decode_responses=True)


TASKS: list[tuple[Any, dict[str, Any]]] = []


def task(function: Any = None, **options: Any) -> Any:
    """Note a function to be made a task of every app."""
    if function is None:
        return lambda function: task(function, **options)
    TASKS.append((function, options))
    return function


@task
def add(x: Any, y: Any) -> Any:
    return x + y


@task
def mul(x: int, y: int) -> int:
    return x * y


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task
def echo(value: Any = None) -> Any:
    return value


@task
def keep(*args: Any, **kwargs: Any) -> Any:
    return [list(args), dict(sorted(kwargs.items()))]


@task
def fail(*args: Any, text: str = "no") -> None:
    raise ValueError(text)


@task
def count_up(numbers: list[int]) -> list[int]:
    return [n + 1 for n in numbers]


@task(ignore_result=True)
def forget(*args: Any) -> str:
    return "nobody asks"


@task(bind=True)
def stamps(self: Task, *args: Any) -> Any:
    return {header: self.request.stamps[header] for header in sorted(self.request.stamped_headers or [])}


# -- trouble on the way ------------------------------------------------------------------------------------------------


@task(bind=True, max_retries=5)
def retried(self: Task, x: int, y: int, times: int = 2) -> int:
    if self.request.retries < times:
        raise self.retry(countdown=0.05)
    return x + y


@task(bind=True, max_retries=5)
def retried_with(self: Task, x: int, y: int) -> int:
    """Each retry moves one from x to y."""
    if x > 0:
        raise self.retry(args=(x - 1, y + 1), countdown=0)
    return y


@task(bind=True, autoretry_for=(KeyError,), retry_backoff=False, default_retry_delay=0.05, max_retries=3)
def retried_by_itself(self: Task, x: int, y: int, times: int = 2) -> int:
    if self.request.retries < times:
        raise KeyError("not yet")
    return x + y


@task(bind=True, max_retries=1)
def retried_in_vain(self: Task, *args: Any) -> None:
    try:
        raise KeyError("never")
    except KeyError as error:
        raise self.retry(exc=error, countdown=0.05) from error


@task(bind=True)
def killed(self: Task, x: int, y: int) -> int:
    """The first run of each job loses its process before it returns."""
    if store().incr(f"canvas:runs:{self.request.id}") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return x + y


# -- replacements ------------------------------------------------------------------------------------------------------


@task(bind=True)
def by_task(self: Task, x: int, y: int) -> Any:
    return self.replace(self.app.tasks["canvas.add"].s(x, y))


@task(bind=True)
def by_chain(self: Task, x: int, y: int) -> Any:
    t = self.app.tasks
    return self.replace(chain(t["canvas.add"].s(x, y), t["canvas.mul"].s(2), t["canvas.add"].s(1)))


@task(bind=True)
def by_group(self: Task, x: int, y: int) -> Any:
    t = self.app.tasks
    return self.replace(group(t["canvas.add"].s(x, y), t["canvas.mul"].s(x, y), t["canvas.echo"].s(7)))


@task(bind=True)
def by_chord(self: Task, x: int, y: int) -> Any:
    t = self.app.tasks
    return self.replace(chord([t["canvas.add"].s(x, y), t["canvas.mul"].s(x, y)], t["canvas.total"].s()))


@task(bind=True)
def by_chain_with_group(self: Task, x: int, y: int) -> Any:
    t = self.app.tasks
    return self.replace(chain(t["canvas.add"].s(x, y), group(t["canvas.add"].s(1), t["canvas.mul"].s(3))))


@task(bind=True)
def by_nest(self: Task, x: int, y: int) -> Any:
    add, total = self.app.tasks["canvas.add"], self.app.tasks["canvas.total"]
    inner = chord([chord([add.s(x, y), add.s(1, 1)], total.s()), add.s(2, 2)], total.s())
    return self.replace(chain(inner, chord([add.s(1), add.s(2)], total.s()), add.s(3)))


@task(bind=True)
def by_itself(self: Task, x: int, left: int = 2) -> Any:
    """Replace itself by itself, `left` times."""
    if left == 0:
        return x
    return self.replace(self.app.tasks["canvas.by_itself"].s(x + 1, left=left - 1))


@task(bind=True)
def by_replaced_chain(self: Task, x: int, y: int) -> Any:
    """Two floors of replacement."""
    t = self.app.tasks
    return self.replace(chain(t["canvas.by_chain"].s(x, y), t["canvas.by_task"].s(1)))


@task(bind=True)
def by_replaced_group(self: Task, x: int, y: int) -> Any:
    t = self.app.tasks
    return self.replace(group(t["canvas.by_chain"].s(x, y), t["canvas.by_chord"].s(x, y), t["canvas.echo"].s(7)))


@task(bind=True)
def by_failing_chain(self: Task, *args: Any) -> Any:
    t = self.app.tasks
    return self.replace(chain(t["canvas.add"].s(1, 1), t["canvas.fail"].s(text="within"), t["canvas.add"].s(1)))


@task(bind=True)
def by_failing_group(self: Task, *args: Any) -> Any:
    t = self.app.tasks
    return self.replace(group(t["canvas.add"].s(1, 1), t["canvas.fail"].s(text="within")))


@task(bind=True)
def by_retried_chain(self: Task, x: int, y: int) -> Any:
    t = self.app.tasks
    return self.replace(chain(t["canvas.retried"].s(x, y), t["canvas.retried_by_itself"].s(1)))


@task(bind=True, max_retries=3)
def retried_then_by_chain(self: Task, x: int, y: int) -> Any:
    if self.request.retries < 1:
        raise self.retry(countdown=0.05)
    t = self.app.tasks
    return self.replace(chain(t["canvas.add"].s(x, y), t["canvas.mul"].s(10)))


@task(bind=True)
def by_killed_chain(self: Task, x: int, y: int) -> Any:
    t = self.app.tasks
    return self.replace(chain(t["canvas.killed"].s(x, y), t["canvas.killed"].s(1)))


@task(bind=True)
def by_killed_group(self: Task, x: int, y: int) -> Any:
    t = self.app.tasks
    return self.replace(group(t["canvas.killed"].s(x, y), t["canvas.killed"].s(1, 1)))


@task(bind=True)
def by_chain_total(self: Task, numbers: list[int]) -> Any:
    t = self.app.tasks
    return self.replace(chain(t["canvas.total"].s(numbers), t["canvas.mul"].s(2), t["canvas.add"].s(1)))


@task(bind=True)
def joins_chord(self: Task, x: int) -> int:
    """Add one more member to the chord that it is a member of."""
    self.add_to_chord(self.app.tasks["canvas.echo"].s(100))
    return x


# -- what was done -----------------------------------------------------------------------------------------------------


@task
def noted(result: Any, label: str = "") -> None:
    store().rpush("canvas:notes", f"{label}={result}")


@task
def noted_failure(request: Any, error: BaseException, trace: Any) -> None:
    """An errback of three arguments: Celery calls it where the task has failed."""
    store().rpush("canvas:notes", f"failed={type(error).__name__}")


@signals.task_prerun.connect
def _note_run(task_id: str = "", task: Any = None, args: Any = None, kwargs: Any = None, **rest: Any) -> None:
    # The signal is that of every app in this process, which may be the test run's own, with others that run jobs in it.
    if task.app.main != NAME:
        return
    request = task.request
    facts = [task.name, repr(args), repr(kwargs), str(request.retries), request.group or "", request.parent_id or "",
             request.root_id or ""]  # fmt: skip
    store().rpush(JOURNAL, "\t".join([task_id, *facts]))


app = make(with_kit=os.environ.get("CANVAS_STOCK") != "1")
