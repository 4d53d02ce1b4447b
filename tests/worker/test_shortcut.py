"""The short way of a single send gives what the long way gives, and is left where it would not."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery, signals

from queue_kit import InvalidPayload, enqueue
from tests.apps.enqueue_app import Order
from tests.support.redis_server import RedisServer
from tests.worker.sending import job_of, sending

VALUES: list[Any] = [
    None, 1, "x" * 2_000, "quotes ' \" \\ \n \u2028 é \U0001f600", {"a": [1, {"b": None}]}, [1.5, True], dt.date(2026, 1, 2),
    b"bytes", "\ud800",
]  # fmt: skip


@pytest.fixture
def app(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    """An app whose sends nobody listens to; apps of other tests may have left listeners in this process."""
    for signal in (signals.before_task_publish, signals.after_task_publish):
        monkeypatch.setattr(signal, "receivers", [])
    with sending(redis_server.url()) as app:
        yield app


class Count:
    """How many messages an app has made by the long way."""

    def __init__(self, app: Celery) -> None:
        self.made = 0
        self._make = app.amqp.create_task_message
        app.amqp.create_task_message = self

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.made += 1
        return self._make(*args, **options)

    def of(self, send: Callable[[], Any]) -> int:
        """How many a send has made."""
        before = self.made
        send()
        return self.made - before


def learnt(app: Celery, job: str = "enq.free", **kwargs: Any) -> Count:
    """Send until the short way is known."""
    count = Count(app)
    for _ in range(4):
        app.tasks[job].delay(**kwargs)
    assert count.of(lambda: app.tasks[job].delay(**kwargs)) == 0
    return count


def view(app: Celery, job_id: str) -> dict[str, Any]:
    job = job_of(app, job_id)
    return {"message": job.message.replace(job_id, "ID"), "queue": job.queue, "name": job.name, "priority": job.priority,
            "state": job.state, "correlation_id": job.correlation_id.replace(job_id, "ID")}  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_both_ways_send_the_same(app: Celery, value: Any) -> None:
    """SPEC 5: letter for letter, by `delay` and by `enqueue`."""
    long = view(app, app.tasks["enq.free"].delay(value=value).id)
    count = learnt(app)
    ids: list[str] = []
    assert count.of(lambda: ids.append(app.tasks["enq.free"].delay(value=value).id)) == 0
    assert count.of(lambda: ids.append(enqueue("enq.free", {"value": value}).id)) == 0
    assert [view(app, job_id) for job_id in ids] == [long, long]


def test_a_payload_is_checked_on_both(app: Celery) -> None:
    """SPEC 5: complete and plain, its faults named; nothing is sent of one that is wrong."""
    good = {"number": 1, "name": "ada", "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)}
    long = view(app, enqueue("enq.order", good).id)
    count = learnt(app, "enq.order", number=1, name="ada")
    assert view(app, enqueue("enq.order", Order.model_validate(good)).id) == long
    for wrong, words in (({"number": 0, "name": "x"}, "number"), ({"number": 1, "name": "x", "lines": [1]}, "lines")):
        with pytest.raises(InvalidPayload, match=words):
            enqueue("enq.order", wrong)
    with pytest.raises(InvalidPayload, match="at most"):
        enqueue("enq.order", {**good, "lines": ["x" * 20_000]})
    with pytest.raises(TypeError, match="unexpected"):
        app.tasks["enq.free"].delay(valeu=1)
    assert count.made <= 4


def test_the_result_says_the_same(app: Celery) -> None:
    task = app.tasks["enq.free"]
    long = task.delay(value=1)
    learnt(app)
    short = task.delay(value=1)
    for said in ("ignored", "deduplicated", "existing_state", "parent"):
        assert getattr(short, said) == getattr(long, said), said
    assert type(short) is type(long)
    assert short.backend is long.backend


def _listen(app: Celery) -> None:
    signals.before_task_publish.connect(_heard)


def _heard(**told: Any) -> None:
    """Somebody wants to see each send."""


CHANGES: dict[str, Callable[[Celery], Any]] = {
    "a setting": lambda app: app.conf.update(task_default_queue="other"),
    "one setting": lambda app: setattr(app.conf, "task_default_priority", 3),
    "the task": lambda app: setattr(app.tasks["enq.free"], "priority", 7),
    "its queue": lambda app: setattr(app.tasks["enq.free"], "queue", "elsewhere"),
    "a route": lambda app: (app.conf.update(task_routes={"enq.free": "routed"}), app.amqp.flush_routes()),
    "a queue": lambda app: app.amqp.queues.add("one.more"),
    "a listener": _listen,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_seen_by_the_next_send(app: Celery, change: str) -> None:
    """Whatever a message follows from, beside its arguments: the next one is made by the long way."""
    count, task = learnt(app), app.tasks["enq.free"]
    CHANGES[change](app)
    try:
        ids: list[str] = []
        assert count.of(lambda: ids.append(task.delay().id)) == 1
        ids += [task.delay().id for _ in range(4)]
        views = [view(app, job_id) for job_id in ids]
        assert all(one == views[0] for one in views)
    finally:
        signals.before_task_publish.disconnect(_heard)


def test_a_listener_hears_each_send(app: Celery) -> None:
    heard: list[str] = []

    def listen(sender: str, **told: Any) -> None:
        heard.append(sender)

    learnt(app)
    signals.after_task_publish.connect(listen)
    try:
        for _ in range(5):
            app.tasks["enq.free"].delay()
    finally:
        signals.after_task_publish.disconnect(listen)
    assert heard == ["enq.free"] * 5


def test_an_option_takes_the_long_way(app: Celery) -> None:
    count, task = learnt(app), app.tasks["enq.free"]
    for send in (
        lambda: task.apply_async(kwargs={}, priority=3), lambda: enqueue("enq.free", correlation_id="c-1"),
        lambda: task.delay(1), lambda: task.apply_async(countdown=60), lambda: enqueue("enq.free", idempotency_key="k"),
    ):  # fmt: skip
        assert count.of(send) == 1


def test_each_thread_learns_its_own_way(app: Celery) -> None:
    """A reply address is a thread's own."""
    learnt(app)
    seen: list[Any] = []

    def send() -> None:
        task = app.tasks["enq.free"]
        seen.extend(view(app, task.delay().id)["message"] for _ in range(5))

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert len(set(seen)) == 1
    assert seen[0] != view(app, app.tasks["enq.free"].delay().id)["message"]


def test_eager_tasks_run_here(app: Celery) -> None:
    learnt(app)
    app.conf.task_always_eager = True
    assert [app.tasks["enq.free"].delay(value=n).get() for n in range(4)] == [0, 1, 2, 3]
