"""Django's own tasks on queue_kit, with a real worker. Collected where Django 6 or later is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import checks
from django.db import transaction
from django.tasks import TaskResultStatus, task_backends
from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist, TaskResultMismatch
from django.tasks.signals import task_enqueued

from deploy import celery_app
from queue_kit import QueueUnavailable, cancel, control, dead_letters
from queue_kit.django.conf import project_settings
from queue_kit.django.models import OutboxJob
from queue_kit.django.relay import Relay
from queue_kit.django.tasks_backend import QueueKitBackend, priority_of
from queue_kit.observe.reading import open_census
from queue_kit.states import State
from tests.apps import django_tasks as tasks
from tests.support.redis_server import RedisServer
from tests.support.site import PORT
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

PATH = "tests.apps.django_tasks"


@pytest.fixture(scope="module")
def redis_of_site(engine: object) -> Iterator[RedisServer]:
    celery_app.set_current()
    with RedisServer(port=PORT) as server:
        yield server


@pytest.fixture(scope="module")
def worker(redis_of_site: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A worker of the site that knows the tasks; none of these tests ends it but one, which starts it again."""
    folder = tmp_path_factory.mktemp("worker")
    env = {
        "REDIS_URL": redis_of_site.url(), "DATABASE_URL": f"sqlite:///{folder / 'db.sqlite3'}",
        "DJANGO_SETTINGS_MODULE": "deploy.settings", "WORKER_LOCK_DURATION_MS": "1000", "WORKER_STALLED_INTERVAL_MS": "200",
    }  # fmt: skip
    words = ("--without-gossip", "--without-mingle", "-I", PATH)
    worker = WorkerProcess(
        "deploy", redis_of_site.url(), folder, queues=("celery", "grading"), env=env, options=words, concurrency=2
    )
    yield worker.start()
    worker.kill_all()


def ended(result: Any) -> Any:
    """The result, once it is final."""

    def is_finished() -> bool:
        result.refresh()
        return bool(result.is_finished)

    wait_until(is_finished, says=f"{result.task.name} is finished", within_s=30)
    return result


def test_a_task_runs_and_its_result_is_read(worker: WorkerProcess) -> None:
    result = tasks.add.enqueue(2, b=3)
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [2], {"b": 3})
    done = ended(tasks.add.get_result(result.id))
    assert (done.status, done.return_value, done.errors, done.attempts) == (TaskResultStatus.SUCCESSFUL, 5, [], 1)
    assert [name.split(":")[1] for name in done.worker_ids] == [str(worker.pid)]
    assert done.enqueued_at <= done.started_at == done.last_attempted_at <= done.finished_at
    assert (done.task, done.args, done.kwargs, done.backend) == (tasks.add, [2], {"b": 3}, "default")


def test_a_task_is_told_of_its_run(worker: WorkerProcess) -> None:
    """`takes_context`, a queue and a priority of its own."""
    result = tasks.tell.enqueue("hello")
    done = ended(result)
    assert done.return_value == {"word": "hello", "attempt": 1, "id": result.id, "same": True, "status": "RUNNING"}
    view = open_census(celery_app).job(result.id)
    assert view is not None
    assert (view.name, view.queue, view.priority) == (f"{PATH}.tell", "grading", 4)


def test_a_context_knows_which_attempt_this_is(worker: WorkerProcess) -> None:
    done = ended(tasks.count.enqueue(2))
    assert (done.return_value, done.attempts) == (3, 3)


def test_a_coroutine_runs_and_all_may_be_awaited(worker: WorkerProcess) -> None:
    async def way() -> Any:
        result = await tasks.later.aenqueue({"a": [1]})
        assert (await tasks.later.aget_result(result.id)).id == result.id
        return result

    result = asyncio.run(way())
    assert ended(result).return_value == {"a": [1]}


def test_an_attempt_that_failed_is_kept_with_its_error_and_the_next_is_made(worker: WorkerProcess) -> None:
    done = ended(tasks.flaky.enqueue(3))
    assert (done.status, done.return_value, done.attempts) == (TaskResultStatus.SUCCESSFUL, "attempt 3", 3)
    assert [error.exception_class for error in done.errors] == [tasks.Boom, tasks.Boom]
    assert "in flaky" in done.errors[0].traceback
    assert "attempt 2" in done.errors[1].traceback


def test_a_task_that_fails_for_good_leaves_a_dead_letter(worker: WorkerProcess) -> None:
    done = ended(tasks.hopeless.enqueue())
    assert done.status == TaskResultStatus.FAILED
    assert [error.exception_class_path for error in done.errors] == ["queue_kit.errors.NonRetryableError"]
    with pytest.raises(ValueError, match="Task failed"):
        assert done.return_value
    letters = dead_letters(celery_app).each()
    assert [letter.cause for letter in letters if letter.job_id == done.id] == ["non_retryable"]


def test_a_result_that_json_cannot_say_fails_the_task_for_good(worker: WorkerProcess) -> None:
    done = ended(tasks.unsayable.enqueue())
    assert (done.status, done.attempts) == (TaskResultStatus.FAILED, 1)
    assert done.errors[0].exception_class_path == "queue_kit.errors.NonRetryableError"
    assert "JSON cannot say what it has returned" in done.errors[0].traceback


def test_django_is_told_what_becomes_of_a_task(worker: WorkerProcess) -> None:
    """Its own log of tasks listens to the same signals as everybody."""
    done, failed = ended(tasks.add.enqueue(1)), ended(tasks.hopeless.enqueue())
    said = [f"Task id={done.id} path={PATH}.add state={state}" for state in ("RUNNING", "SUCCESSFUL")]
    said += [f"Task id={failed.id} path={PATH}.hopeless state={state}" for state in ("RUNNING", "FAILED")]
    for words in said:
        worker.wait_for_log(words)


@pytest.mark.crash
def test_a_task_whose_worker_is_killed_runs_again_on_the_next(worker: WorkerProcess) -> None:
    """B1: a stall is no failure of the task, and tells of itself."""
    result = tasks.slow.enqueue(2)
    wait_until(lambda: result.refresh() or result.status == TaskResultStatus.RUNNING, says="it runs", within_s=20)
    worker.kill_all()
    worker.wait_exit()
    worker.start()
    done = ended(result)
    assert (done.return_value, done.attempts) == ("done", 2)
    assert [error.exception_class_path for error in done.errors] == ["queue_kit.errors.JobStalledError"]


# -- without a worker --------------------------------------------------------------------------------------------------


@pytest.fixture
def paused(redis_of_site: RedisServer) -> Iterator[None]:
    """No task begins."""
    for queue in ("celery", "grading"):
        control.pause(queue, celery_app)
    yield
    for queue in ("celery", "grading"):
        control.drain(queue, app=celery_app)
        control.resume(queue, celery_app)


def state_of(result: Any) -> State | None:
    view = open_census(celery_app).job(result.id)
    return view.state if view is not None else None


def test_run_after_is_a_delay_in_redis(paused: None) -> None:
    """C7."""
    due = datetime.now(UTC) + timedelta(hours=1)
    result = tasks.add.using(run_after=due, priority=-100).enqueue(1)
    assert state_of(result) == State.DELAYED
    read = tasks.add.get_result(result.id)
    assert (read.status, read.task.run_after, read.task.priority) == (TaskResultStatus.READY, due, -100)
    assert read.attempts == 0
    control.remove(result.id, celery_app)


@pytest.mark.parametrize(("given", "ours"), [(100, 0), (50, 2), (1, 4), (0, 4), (-50, 7), (-100, 9)])
def test_the_highest_of_djangos_priorities_is_the_lowest_of_ours(given: int, ours: int) -> None:
    """D7."""
    assert priority_of(given) == ours


def test_every_priority_has_its_place() -> None:
    ours = [priority_of(given) for given in range(-100, 101)]
    assert ours == sorted(ours, reverse=True)
    assert set(ours) == set(range(10))


def test_a_task_that_is_cancelled_has_failed(paused: None) -> None:
    """J4."""
    result = tasks.add.enqueue(1)
    cancel(result.id, celery_app)
    result.refresh()
    assert (result.status, result.errors) == (TaskResultStatus.FAILED, [])


def test_what_the_function_would_refuse_is_refused_to_the_caller(paused: None) -> None:
    with pytest.raises(TypeError, match=r"django_tasks\.add: missing a required argument: 'a'"):
        tasks.add.enqueue()
    with pytest.raises(TypeError, match=r"django_tasks\.tell: got an unexpected keyword argument 'context2'"):
        tasks.tell.enqueue("x", context2=1)
    with pytest.raises(TypeError):
        tasks.later.enqueue(object())
    with pytest.raises(InvalidTask, match="priority must be a whole number"):
        tasks.add.using(priority=101)


def test_only_what_is_a_result_of_this_task_is_read(paused: None) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result("nothing")
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(celery_app.send_task("elsewhere", queue="celery").id)
    result = tasks.add.enqueue(1)
    with pytest.raises(TaskResultMismatch):
        tasks.later.get_result(result.id)


def test_django_is_told_that_a_task_is_enqueued(paused: None) -> None:
    told: list[str] = []

    def hear(task_result: Any, **_: Any) -> None:
        told.append(task_result.id)

    task_enqueued.connect(hear)
    try:
        result = tasks.add.enqueue(1)
    finally:
        task_enqueued.disconnect(hear)
    assert told == [result.id]


def test_with_redis_down_the_caller_hears_of_it(redis_of_site: RedisServer) -> None:
    """H4."""
    redis_of_site.stop()
    try:
        with pytest.raises(QueueUnavailable):
            tasks.add.enqueue(1)
        with pytest.raises(QueueUnavailable):
            tasks.add.get_result("any")
    finally:
        redis_of_site.start()


# -- options -----------------------------------------------------------------------------------------------------------


def backend(settings: Any, **options: Any) -> None:
    path = "queue_kit.django.tasks_backend.QueueKitBackend"
    settings.TASKS = {"default": {"BACKEND": path, "QUEUES": [], "OPTIONS": options}}


@pytest.mark.django_db(transaction=True)
def test_a_task_may_be_sent_with_the_commit(paused: None, settings: Any) -> None:
    backend(settings, SEND="on_commit")
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        assert state_of(result) is None
    assert state_of(result) == State.WAITING


@pytest.mark.django_db(transaction=True)
def test_a_task_may_be_sent_by_the_outbox(paused: None, settings: Any) -> None:
    backend(settings, SEND="outbox")
    with transaction.atomic():
        result = tasks.tell.enqueue("x")
    assert (state_of(result), OutboxJob.objects.get().job_id) == (None, result.id)
    Relay(celery_app, "default", project_settings()).drain()
    assert state_of(result) == State.WAITING
    assert tasks.tell.get_result(result.id).task == tasks.tell


@pytest.mark.parametrize(
    ("options", "says"), [({"SENT": "outbox"}, "OPTIONS SENT: only SEND is known"), ({"SEND": "later"}, "SEND: use one of")]
)
def test_an_option_that_is_none_is_named(settings: Any, options: dict[str, str], says: str) -> None:
    backend(settings, **options)
    with pytest.raises(InvalidTaskBackend, match=says):
        assert task_backends["default"].alias


def test_a_queue_that_no_worker_asks_for_is_told_by_a_check() -> None:
    path = "queue_kit.django.tasks_backend.QueueKitBackend"
    one = QueueKitBackend("default", {"BACKEND": path, "QUEUES": ["default", "grading", "nowhere"]})
    assert [(type(said), "the queue nowhere" in said.msg) for said in one.check()] == [(checks.Warning, True)]
