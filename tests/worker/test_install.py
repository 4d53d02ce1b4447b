"""What `install` does to an app and to nothing else: orders, explicit settings, refusals, two apps in one process."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery, Task, _state, signals
from celery.contrib.testing.worker import start_worker as start_worker_thread
from celery.exceptions import Reject
from kombu.transport.redis import Transport as StockTransport

from queue_kit import ConfigurationError, fixed, install, job
from queue_kit.observe.reading import open_census
from queue_kit.states import State
from queue_kit.worker.consumer import Consumer
from queue_kit.worker.refusals import check_sender, check_worker
from tests.support.fixtures import OwnRedis, StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

APP = "tests.apps.traps_app"


def stock(redis_server: RedisServer, **conf: Any) -> Celery:
    app = Celery("shop", broker=redis_server.url(), set_as_current=False)
    app.conf.update(conf)
    return app


def ours(redis_server: RedisServer, **conf: Any) -> Celery:
    app = stock(redis_server, **conf)
    install(app)
    return app


# -- the project's own settings -------------------------------------------------------------------------------------------


class New:
    task_acks_late = False
    worker_prefetch_multiplier = 4


class Namespaced:
    CELERY_TASK_ACKS_LATE = False
    CELERY_WORKER_PREFETCH_MULTIPLIER = 4


class Old:
    CELERY_ACKS_LATE = False
    CELERYD_PREFETCH_MULTIPLIER = 4


def object_before(app: Celery) -> None:
    app.config_from_object(New)
    install(app)


def object_after(app: Celery) -> None:
    install(app)
    app.config_from_object(New)


def object_after_a_first_use(app: Celery) -> None:
    install(app)
    assert app.conf.task_acks_late is True
    app.config_from_object(New)


def django_style_before(app: Celery) -> None:
    app.config_from_object(Namespaced, namespace="CELERY")
    install(app)


def django_style_after(app: Celery) -> None:
    install(app)
    app.config_from_object(Namespaced, namespace="CELERY")


def names_of_celery_3(app: Celery) -> None:
    app.config_from_object(Old)
    install(app)


def update_before(app: Celery) -> None:
    app.conf.update(task_acks_late=False, worker_prefetch_multiplier=4)
    install(app)


def update_after(app: Celery) -> None:
    install(app)
    app.conf.update(task_acks_late=False, worker_prefetch_multiplier=4)


def update_after_a_first_use(app: Celery) -> None:
    install(app)
    assert app.conf.task_acks_late is True
    app.conf.update(task_acks_late=False, worker_prefetch_multiplier=4)


WAYS = [
    object_before, object_after, object_after_a_first_use, django_style_before, django_style_after, names_of_celery_3,
    update_before, update_after, update_after_a_first_use,
]  # fmt: skip


@pytest.mark.parametrize("configure", WAYS, ids=lambda way: way.__name__)
def test_what_the_project_sets_on_purpose_wins(configure: Callable[[Celery], None]) -> None:
    """K16: `acks_late=False` for a whole app keeps Celery's meaning, wherever it is said."""
    app = Celery("shop", set_as_current=False)
    configure(app)
    assert (app.conf.task_acks_late, app.conf.worker_prefetch_multiplier) == (False, 4)


@pytest.mark.parametrize("configure", WAYS, ids=lambda way: way.__name__)
def test_what_the_project_does_not_set_is_what_the_promises_need(configure: Callable[[Celery], None]) -> None:
    app = Celery("shop", set_as_current=False)
    configure(app)
    assert app.conf.task_reject_on_worker_lost is True
    assert app.conf.broker_connection_max_retries is None
    assert app.conf.worker_consumer.endswith("Consumer")


def test_tasks_of_an_app_that_says_nothing_are_acknowledged_late(redis_server: RedisServer) -> None:
    app = ours(redis_server)

    @app.task(name="shop.pack", shared=False)
    def pack() -> None: ...

    @app.task(name="shop.charge", shared=False, acks_late=False)
    def charge() -> None: ...

    assert (pack.acks_late, charge.acks_late) == (True, False)


# -- refusals -------------------------------------------------------------------------------------------------------------

REFUSED = {
    "task_retry_on_worker_lost": True,
    "task_acks_on_failure": False,
    "task_acks_on_timeout": False,
    "task_acks_on_failure_or_timeout": False,
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    "task_protocol": 1,
}


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_a_setting_that_bypasses_or_loses_is_refused_at_the_first_send(
    redis_server: RedisServer, client: redis.Redis, name: str, value: Any
) -> None:
    app = ours(redis_server, **{name: value})
    for _ in range(2):
        with pytest.raises(ConfigurationError) as refusal:
            app.send_task("shop.pack")
        [problem] = refusal.value.problems
        assert problem.startswith(f"{name}: leave it out; ")
    assert client.keys("*") == []


@pytest.mark.parametrize(
    ("option", "value"),
    [(name.removeprefix("task_"), value) for name, value in REFUSED.items() if name.startswith(("task_retry", "task_acks"))],
)
def test_a_task_that_bypasses_or_loses_is_refused_by_name(redis_server: RedisServer, option: str, value: Any) -> None:
    app = ours(redis_server)

    @app.task(name="shop.pack", shared=False, **{option: value})
    def pack() -> None: ...

    with pytest.raises(ConfigurationError) as refusal:
        pack.delay()
    [problem] = refusal.value.problems
    assert problem.startswith(f"task shop.pack: leave out {option}={value}; ")


def test_every_fault_is_named_at_once(redis_server: RedisServer) -> None:
    app = ours(redis_server, task_protocol=1, task_acks_on_timeout=False)

    @app.task(name="shop.pack", shared=False, retry_on_worker_lost=True)
    def pack() -> None: ...

    assert pack.name == "shop.pack"
    with pytest.raises(ConfigurationError) as refusal:
        check_sender(app)
    named = [problem.partition(": ")[0] for problem in refusal.value.problems]
    assert named == ["task_acks_on_timeout", "task_protocol", "task shop.pack"]


def refused_at_boot(worker: WorkerProcess) -> list[str]:
    """Wait for a worker that cannot start; return what it said."""
    assert worker.wait_exit(within_s=30) == 1
    said = worker.logs()
    assert "Traceback" not in said
    return [line.strip() for line in said.splitlines() if line.strip()]


def test_a_worker_refuses_the_same_at_boot_with_one_message(start_worker: StartWorker, redis_server: RedisServer) -> None:
    conf = '{"task_acks_on_failure": false, "broker_transport_options": {"visibility_timeout": 5}}'
    worker = start_worker(APP, env={"TRAPS_CONF": conf}, wait=False)
    said = refused_at_boot(worker)
    assert said[-2:] == ["The worker cannot start:", "task_acks_on_failure: leave it out; on Redis it deletes what fails"]


@pytest.mark.parametrize(
    ("urls", "problem"),
    [
        ("amqp://guest:secret@localhost", "broker_url: amqp scheme; queue_kit keeps jobs in Redis: use redis, "),
        ("redis://:secret@localhost/0;amqp://guest:secret@localhost", "broker_url: amqp scheme; "),
        (["redis://localhost/0", "sqs://"], "broker_url: sqs scheme; "),
        ("localhost", "broker_url: no scheme; "),
        ("redis://:secret@localhost/jobs", "broker_url: the path must be the number of a database, "),
        ("redis://:secret@localhost:port/0", "broker_url: Port could not be cast to integer value "),
        ("sentinel://localhost:26379", "broker_transport_options: Sentinel needs "),
    ],
)
def test_a_broker_url_that_cannot_hold_jobs_is_refused_and_not_echoed(urls: Any, problem: str) -> None:
    app = Celery("shop", broker=urls, set_as_current=False)
    install(app)
    with pytest.raises(ConfigurationError) as refusal:
        check_worker(app)
    [named] = refusal.value.problems
    assert named.startswith(problem)
    assert "secret" not in named


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        ({"broker_write_url": "redis://other/0"}, "broker_write_url: leave it out, as broker_read_url; "),
        ({"broker_transport_options": {"ack_emulation": False}}, "broker_transport_options: leave out ack_emulation; "),
    ],
)
def test_settings_of_the_broker_that_would_lose_jobs_are_refused(conf: dict[str, Any], problem: str) -> None:
    app = Celery("shop", broker="redis://localhost/0", set_as_current=False)
    app.conf.update(conf)
    install(app)
    with pytest.raises(ConfigurationError) as refusal:
        check_worker(app)
    [named] = refusal.value.problems
    assert named.startswith(problem)


def test_the_sentinels_of_one_primary_must_name_one_database() -> None:
    app = Celery("shop", broker="sentinel://one:26379;sentinel://two:26379/3", set_as_current=False)
    app.conf.broker_transport_options = {"master_name": "main"}
    install(app)
    with pytest.raises(ConfigurationError, match="give the URL of every Sentinel the same database"):
        check_worker(app)


def test_a_worker_with_a_foreign_broker_url_says_so_and_ends(start_worker: StartWorker) -> None:
    worker = start_worker(APP, broker_url="amqp://guest:secret@127.0.0.1:1//", backend_url="cache+memory://", wait=False)
    said = refused_at_boot(worker)
    assert said[-2] == "The worker cannot start:"
    assert said[-1].startswith("broker_url: amqp scheme; queue_kit keeps jobs in Redis")
    assert "secret" not in "".join(said)


def test_a_send_to_a_foreign_broker_is_refused() -> None:
    app = Celery("shop", broker="amqp://guest:secret@127.0.0.1:1//", set_as_current=False)
    install(app)
    with pytest.raises(ConfigurationError, match=r"^broker_url: queue_kit keeps jobs in Redis"):
        app.send_task("shop.pack")


def test_a_wrong_setting_of_ours_is_refused_where_install_is_called() -> None:
    with pytest.raises(ConfigurationError, match="WORKER_LOCK_DURATION_MS: a whole number from"):
        install(Celery("shop", set_as_current=False), {"WORKER_LOCK_DURATION_MS": "soon"})
    with pytest.raises(ConfigurationError, match="did you mean WORKER_LOCK_DURATION_MS"):
        install(Celery("shop", set_as_current=False), {"WORKER_LOCK_DURATION": 1000})


def test_a_worker_with_a_wrong_setting_ends_and_names_it_last(start_worker: StartWorker) -> None:
    worker = start_worker(APP, env={"WORKER_LOCK_DURATION_MS": "soon"}, wait=False)
    assert worker.wait_exit(within_s=30) != 0
    assert "ConfigurationError: WORKER_LOCK_DURATION_MS: a whole number from" in worker.logs()


def test_a_consumer_class_of_the_projects_own_must_be_derived_from_ours(redis_server: RedisServer) -> None:
    class Derived(Consumer): ...

    check_worker(ours(redis_server, worker_consumer=Derived))
    with pytest.raises(ConfigurationError, match="worker_consumer: leave it out, or derive it"):
        check_worker(ours(redis_server, worker_consumer="celery.worker.consumer:Consumer"))


@pytest.mark.crash
def test_an_app_whose_jobs_run_at_most_once_keeps_to_it(
    redis_server: RedisServer, start_worker: StartWorker, queue_name: str, tmp_path: Path
) -> None:
    """K16: `task_acks_late=False` of the whole app, the worker killed in a job."""
    app = ours(redis_server)
    env = {"TRAPS_FOLDER": str(tmp_path), "TRAPS_CONF": '{"task_acks_late": false}'}
    worker = start_worker(APP, queues=[queue_name], env=env, concurrency=1)
    job = app.send_task("traps.hold", kwargs={"gate": "gate"}, queue=queue_name).id
    wait_until((tmp_path / "book").exists, says="the job runs")
    worker.kill_all()
    start_worker(APP, queues=[queue_name], env=env)
    census = open_census(app)
    view = wait_until(
        lambda: (found := census.job(job)) and found.state == State.FAILED and found, says="the job has failed"
    )
    assert (view.cause, view.attempts_started, view.stalled_count) == ("lost", 1, 1)


# -- in a test's own process ----------------------------------------------------------------------------------------------


@pytest.fixture
def process_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Celery's worker for tests makes its app the current one of the process, and leaves it so; it would also set the root
    logger to errors alone, for all tests that follow, were there nobody to say that logging is set up."""
    default, current = _state.default_app, _state._tls.current_app
    for name in ("CELERY_LOG_LEVEL", "CELERY_LOG_FILE"):
        monkeypatch.setenv(name, "")
    receivers, signals.setup_logging.receivers = signals.setup_logging.receivers, []
    signals.setup_logging.connect(_leave_logging_alone)
    yield
    signals.setup_logging.receivers = receivers
    logging.captureWarnings(False)
    _state.default_app, _state._tls.current_app = default, current


def _leave_logging_alone(**kwargs: Any) -> None:
    """What Celery asks before it sets logging up."""


@pytest.mark.usefixtures("process_restored")
def test_celerys_own_worker_for_tests_runs_jobs_and_leaves_nothing_behind(own_redis: OwnRedis) -> None:
    """As most projects' tests have it: a worker in a thread of the process, one after the other."""
    server = own_redis()
    app = ours(server, result_backend=server.url())

    @app.task(name="shop.sum", shared=False)
    def total(x: int, y: int) -> int:
        return x + y

    with server.client() as client:
        left = []
        for pool in ("solo", "threads") * 4:
            with start_worker_thread(app, pool=pool, perform_ping_check=False, shutdown_timeout=20.0):
                assert [total.delay(2, y).get(timeout=10) for y in range(3)] == [2, 3, 4]
            left.append(len(client.client_list()))
        # What sends and asks for results stays, once: it is this process's. Celery's result backend leaves the connections of a
        # pool's threads to the garbage collector: a few, not one for each of the eight workers.
        wait_until(
            lambda: gc.collect() >= 0 and len(client.client_list()) <= left[0] + 3,
            says=f"hardly more connections than after the first: {left}",
        )


@pytest.mark.usefixtures("process_restored")
def test_celerys_own_worker_for_tests_refuses_as_any_other(redis_server: RedisServer) -> None:
    app = ours(redis_server, task_acks_on_failure=False)
    with (
        pytest.raises(ConfigurationError, match="task_acks_on_failure: leave it out"),
        start_worker_thread(app, pool="solo", perform_ping_check=False),
    ):
        raise AssertionError("it must not start")


# -- installing late, twice, beside another app ---------------------------------------------------------------------------


def test_a_second_install_of_one_app_is_refused(redis_server: RedisServer) -> None:
    with pytest.raises(ConfigurationError, match="this app has queue_kit already"):
        install(ours(redis_server))


def test_two_apps_in_one_process_on_one_redis_keep_their_transports(
    redis_server: RedisServer, client: redis.Redis
) -> None:
    """K19: the messages of each lie where its own workers look, and neither uses the other's connections."""
    plain, kit = stock(redis_server), ours(redis_server)
    for app in (plain, kit, plain, kit):
        app.send_task("shop.pack", queue="packing")
    assert client.llen("packing") == 2
    assert client.zcard("qwk:q:packing:wait") == 2
    assert plain.pool is not kit.pool
    with plain.connection_for_write() as connection, kit.connection_for_write() as other:
        assert type(connection.transport) is StockTransport
        assert type(other.transport) is not StockTransport
    client.delete("packing")


def test_an_app_that_has_sent_already_can_be_installed_and_leaves_others_their_connections(
    redis_server: RedisServer, client: redis.Redis
) -> None:
    """K19: Kombu gives two apps with one URL one pool; it must go on working for the app that stays stock."""
    plain, kit = stock(redis_server), stock(redis_server)
    for app in (plain, kit):
        app.send_task("shop.pack", queue="packing")
    assert plain.pool is kit.pool
    install(kit)
    for app in (plain, kit):
        app.send_task("shop.pack", queue="packing")
    assert client.llen("packing") == 3
    assert client.zcard("qwk:q:packing:wait") == 1
    client.delete("packing")


def test_install_after_tasks_were_used_says_why_not(redis_server: RedisServer) -> None:
    """K19: such a task has copied `acks_late` from the settings, as if it had asked for it."""
    app = stock(redis_server)

    @app.task(name="shop.pack", shared=False)
    def pack() -> None: ...

    assert pack.acks_late is False
    with pytest.raises(ConfigurationError, match=r"^install: call it before tasks are used, .*: shop\.pack cannot"):
        install(app)


def test_install_after_tasks_were_used_works_where_the_project_has_chosen(
    redis_server: RedisServer, client: redis.Redis
) -> None:
    app = stock(redis_server, task_acks_late=True)

    @app.task(name="shop.pack", shared=False, bind=True, autoretry_for=(Exception,))
    def pack(self: Any) -> None:
        raise Reject("never")

    pack.apply_async(queue="packing")
    install(app)
    pack.apply_async(queue="packing")
    assert (client.llen("packing"), client.zcard("qwk:q:packing:wait")) == (1, 1)
    assert pack.apply().state == "REJECTED"
    client.delete("packing")


class OwnBase(Task):
    abstract = True


def test_a_task_with_a_base_of_its_own_follows_the_policy_too(redis_server: RedisServer) -> None:
    """K12: `Reject` is not retried; attempts are those of the declaration."""
    runs: list[str] = []

    @job("install.fails", attempts=3, backoff=fixed(0), base=OwnBase)
    def fails() -> None:
        runs.append("fails")
        raise ValueError

    @job("install.refuses", attempts=3, backoff=fixed(0), base=OwnBase)
    def refuses() -> None:
        runs.append("refuses")
        raise Reject("never")

    app = ours(redis_server, task_always_eager=True)
    assert app.tasks["install.fails"].apply().state == "FAILURE"
    assert app.tasks["install.refuses"].apply().state == "REJECTED"
    assert runs == ["fails"] * 3 + ["refuses"]
    assert isinstance(app.tasks["install.fails"], OwnBase)
