"""Tasks of unusual shapes: bases and request classes of their own, odd retries, time limits, results nobody can store.

Without them only tasks as we would write them would be known to work.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from celery import Celery, Task
from celery.exceptions import Retry, SoftTimeLimitExceeded
from celery.worker.request import Request

from queue_kit import TransientError, current_job, exponential, fixed, install, job
from tests.apps.attempts_app import hold, note_start, store

LEASE_MS, REAP_MS = 1200, 200
TASKS: list[tuple[Any, dict[str, Any]]] = []


def make(broker_url: str | None = None, backend_url: str | None = None, **conf: Any) -> Celery:
    """Make an app with all plain tasks below; SHAPES_BACKEND names a result backend other than the tasks' own notebook."""
    app = Celery("shapes", broker=broker_url, backend=backend_url, set_as_current=False)
    app.conf.update(result_extended=True, result_expires=600, accept_content=["json", "pickle"], **conf)
    app.conf.result_chord_retry_interval = 0.1
    if os.environ.get("SHAPES_BACKEND"):
        app.backend_cls = os.environ["SHAPES_BACKEND"]
    install(app, {"WORKER_LOCK_DURATION_MS": LEASE_MS, "WORKER_STALLED_INTERVAL_MS": REAP_MS})
    for function, options in TASKS:
        app.task(**{"name": f"shapes.{function.__name__}", **options})(function)
    return app


def task(function: Any = None, **options: Any) -> Any:
    """Note a function to be made a plain task of every app."""
    if function is None:
        return lambda function: task(function, **options)
    TASKS.append((function, options))
    return function


class Greeting(Task):
    """A base that knows nothing of any app, with all of Celery's hooks, each of which is written down."""

    abstract = True

    def _hook(self, name: str, task_id: str) -> None:
        store().rpush(f"hooks:{task_id}", name)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        self._hook("before_start", task_id)

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        self._hook("on_success", task_id)

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._hook("on_retry", task_id)

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._hook("on_failure", task_id)

    def after_return(self, status: Any, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self._hook(f"after_return {status}", task_id)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return f"hello {super().__call__(*args, **kwargs)}"


class Countersigned(Request):
    """A request class of a project's own."""

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        super().on_accepted(pid, time_accepted)
        store().rpush(f"hooks:{self.id}", "accepted")


class Registered(Greeting):
    abstract = True
    Request = Countersigned


@task(bind=True, base=Greeting, max_retries=3)
def greets(self: Task, name: str, fails: int = 0) -> str:
    note_start()
    if self.request.retries < fails:
        raise self.retry(countdown=0.05)
    return name


@task(bind=True, base=Registered)
def registers(self: Task, name: str) -> str:
    note_start()
    return name


@task(base=Greeting)
def greets_in_vain(name: str) -> None:
    note_start()
    raise ValueError(name)


@job("shapes.declared_on_a_base", base=Greeting, attempts=3, backoff=fixed(50))
def declared_on_a_base(name: str, fails: int = 0) -> str:
    note_start()
    if current_job().attempts_made < fails:
        raise TransientError("not yet")
    return name


@job("shapes.own_backoff", retry_backoff=1, retry_jitter=False, attempts=3)
def own_backoff(fails: int = 0) -> str:
    note_start()
    if current_job().attempts_made < fails:
        raise TransientError("not yet")
    return "done"


@job("shapes.own_max_retries", max_retries=1, backoff=exponential(0))
def own_max_retries() -> None:
    note_start()
    raise TransientError("never")


@job("shapes.unlimited", max_retries=None, backoff=fixed(0))
def unlimited(fails: int = 0) -> int:
    note_start()
    if current_job().attempts_made < fails:
        raise TransientError("not yet")
    return current_job().attempts_made


@job("shapes.asks_for_more", bind=True, attempts=2, backoff=fixed(0))
def asks_for_more(self: Task, max_retries: int | None = None) -> None:
    """Retry by hand, with a limit of its own if told so."""
    note_start()
    raise self.retry(exc=TransientError("by hand"), max_retries=max_retries)


@job("shapes.eager")
def eager(name: str) -> str:
    return current_job().name


# -- odd retries -------------------------------------------------------------------------------------------------------


@task(bind=True, max_retries=3)
def retries_and_goes_on(self: Task, then: str = "returns") -> str:
    """`throw=False`: the retry is sent, and the run goes on."""
    note_start()
    if self.request.retries == 0:
        self.retry(countdown=0.05, throw=False)
        if then == "raises":
            raise ValueError("after the retry")
        return "first"
    return "second"


@task(bind=True, autoretry_for=(KeyError,), retry_kwargs={"max_retries": 2, "countdown": 0})
def limited_by_its_call(self: Task) -> None:
    note_start()
    raise KeyError("never")


@task(bind=True, max_retries=None)
def raises_a_retry_by_hand(self: Task) -> str:
    """A Retry that was never sent: stock Celery loses the task here."""
    note_start()
    if len(store().lrange(f"starts:{self.request.id}", 0, -1)) == 1:
        raise Retry("made by hand", when=0)
    return "done"


@task(bind=True, acks_late=False, max_retries=3)
def at_most_once_retries(self: Task) -> str:
    note_start()
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return "done"


@task(bind=True)
def sends_itself_from_a_thread(self: Task, again: bool = True) -> str:
    """What a thread of the run sends under the run's id moves the job, too."""
    note_start()
    if not again:
        return "second"
    job_id, app = self.request.id, self.app
    send = threading.Thread(
        target=lambda: app.send_task("shapes.sends_itself_from_a_thread", kwargs={"again": False}, task_id=job_id)
    )
    send.start()
    send.join()
    return "first"


# -- limits and results ------------------------------------------------------------------------------------------------


@task(soft_time_limit=0.3, time_limit=10)
def softly_limited() -> str:
    note_start()
    try:
        time.sleep(5)
    except SoftTimeLimitExceeded:
        return "softly"
    return "not at all"


@task(soft_time_limit=0.3, time_limit=10)
def softly_limited_in_vain() -> None:
    note_start()
    time.sleep(5)


@task(time_limit=0.5)
def hardly_limited() -> None:
    note_start()
    hold("never")


@task(ignore_result=True)
def keeps_no_result(value: Any = None) -> Any:
    note_start()
    return value


@task(ignore_result=True)
def keeps_no_failure() -> None:
    note_start()
    raise ValueError("nobody asks")


@task
def cannot_be_stored() -> Any:
    note_start()
    return object()


@task
def has_no_memory() -> None:
    note_start()
    raise MemoryError("none left")


@task
def takes_two(first: Any, second: Any) -> Any:
    note_start()
    return [first, second]


@task(bind=True)
def reads_headers(self: Task) -> Any:
    note_start()
    return {"own": (self.request.headers or {}).get("tenant"), "priority": self.request.delivery_info["priority"]}


@task(bind=True)
def describes_itself(self: Task, *args: Any, **kwargs: Any) -> Any:
    """All that its request says, but for what differs from run to run."""
    note_start()
    said = dict(vars(self.request))
    for own in ("properties", "delivery_info", "hostname", "called_directly", "_children", "id", "root_id", "correlation_id"):
        said.pop(own, None)
    return {**said, "priority": self.request.delivery_info["priority"]}


@task
def loses_its_process() -> None:
    note_start()
    os._exit(1)


app = make()
