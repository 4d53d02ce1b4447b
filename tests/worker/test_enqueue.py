"""What a send takes, what it refuses before Redis hears of it, and what its handle says."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery, chain, group, signals
from celery.utils.saferepr import saferepr
from hypothesis import given
from hypothesis import strategies as st

from queue_kit import (
    ConfigurationError,
    Enqueued,
    InvalidPayload,
    QueueUnavailable,
    UnknownJob,
    enqueue,
    enqueue_many,
    exponential,
    fixed,
)
from queue_kit.rules.brief import brief_repr
from queue_kit.worker.sending.prepare import prepare
from tests.apps.enqueue_app import Order
from tests.store.desk import Desk
from tests.support.engine import newer_engine
from tests.support.events import trace
from tests.support.fixtures import OwnProxy, OwnRedis
from tests.support.ports import LOOPBACK
from tests.support.redis_server import RedisServer
from tests.support.services import service_missing
from tests.support.waiting import wait_until
from tests.worker.sending import job_of, sending
from tests.worker.stage import Stage

GOOD = {"number": 1, "name": "ada"}


@pytest.fixture
def app(redis_server: RedisServer) -> Iterator[Celery]:
    with sending(redis_server.url()) as app:
        yield app


@pytest.fixture
def desk(app: Celery, client: redis.Redis) -> Desk:
    return Desk(client, "celery")


def kwargs_of(app: Celery, job_id: str) -> Any:
    return json.loads(json.loads(job_of(app, job_id).message)["body"])[1]


def headers_of(app: Celery, job_id: str) -> dict[str, Any]:
    headers: dict[str, Any] = json.loads(job_of(app, job_id).message)["headers"]
    return headers


def nothing_was_sent(client: redis.Redis) -> bool:
    return client.keys("qwk:*") == []


# -- payloads -------------------------------------------------------------------------------------------------------------


def test_a_payload_is_a_mapping_or_an_instance_of_its_model(app: Celery) -> None:
    """SPEC 5: complete, plain, and the same either way."""
    at = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
    given = {**GOOD, "at": at, "toneOfVoice": "warm"}
    sent = [enqueue("enq.order", given), enqueue("enq.order", Order.model_validate(given))]
    expected = {"number": 1, "name": "ada", "at": "2026-01-02T03:04:00Z", "lines": [], "toneOfVoice": "warm"}
    assert [kwargs_of(app, handle.id) for handle in sent] == [expected] * 2
    assert {job_of(app, handle.id).queue for handle in sent} == {"orders"}


WRONG: dict[str, tuple[Any, str]] = {
    "missing": ({"number": 1}, "name: Field required"),
    "type": ({**GOOD, "number": "many"}, "number: Input should be a valid integer"),
    "range": ({**GOOD, "number": 0}, "number: Input should be greater than or equal to 1"),
    "length": ({**GOOD, "name": "x" * 11}, "name: String should have at most 10"),
    "date": ({**GOOD, "at": "soon"}, "at: Input should be a valid datetime"),
    "nested": ({**GOOD, "lines": ["a", 3]}, "lines.1: Input should be a valid string"),
    "two at once": ({"name": 3}, "number: Field required; name: Input should be a valid string"),
    "no mapping": ([1], "must be a mapping"),
    "no names": ({1: 2}, "mapping of field names"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_payload_is_refused_before_redis_with_its_fields(app: Celery, client: redis.Redis, fault: str) -> None:
    """SPEC 5: at the caller, naming each field, echoing no value."""
    payload, words = WRONG[fault]
    with pytest.raises(InvalidPayload, match=r"enq\.order: ") as refused:
        enqueue("enq.order", payload)
    assert words in str(refused.value)
    assert "many" not in str(refused.value)
    assert nothing_was_sent(client)


@pytest.mark.parametrize("way", ["delay", "apply_async", "signature", "by name", "group", "positional"])
def test_celerys_own_ways_check_the_payload_too(app: Celery, client: redis.Redis, way: str) -> None:
    task, wrong = app.tasks["enq.order"], {"number": 0, "name": "ada"}
    ways: dict[str, Any] = {
        "delay": lambda: task.delay(**wrong),
        "apply_async": lambda: task.apply_async(kwargs=wrong),
        "signature": lambda: task.s(**wrong).delay(),
        "by name": lambda: app.send_task("enq.order", kwargs=wrong),
        "group": lambda: group([task.s(**wrong)]).apply_async(),
        "positional": lambda: task.delay(GOOD),
    }
    with pytest.raises(InvalidPayload, match=r"enq\.order: "):
        ways[way]()
    assert nothing_was_sent(client)


def test_a_job_without_a_model_is_checked_by_its_signature(app: Celery, client: redis.Redis) -> None:
    with pytest.raises(InvalidPayload, match=r"enq\.free: .*unexpected keyword argument 'valeu'"):
        enqueue("enq.free", {"valeu": 1})
    assert nothing_was_sent(client)


def test_what_cannot_be_serialized_is_an_invalid_payload(app: Celery, client: redis.Redis) -> None:
    with pytest.raises(InvalidPayload, match=r"enq\.free: the payload cannot be sent as json"):
        enqueue("enq.free", {"value": object()})
    assert nothing_was_sent(client)
    enqueue("enq.free", {"value": [b"\xff", dt.date(2026, 1, 2)]})


def test_a_payload_is_bounded_and_a_plain_tasks_is_not(app: Celery, client: redis.Redis) -> None:
    """SPEC 5, K18: 16 KiB for a declared job; the error says how many bytes there are and may be."""
    with pytest.raises(InvalidPayload, match=r"enq.free: the payload has \d+ bytes, at most 16384"):
        enqueue("enq.free", {"value": "x" * 16_384})
    assert nothing_was_sent(client)
    enqueue("enq.free", {"value": "x" * 16_000})
    app.tasks["enq.plain"].delay("x" * 100_000)


# -- names and options ----------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_refused_with_the_close_one(app: Celery) -> None:
    with pytest.raises(UnknownJob, match=r"enq\.ordre: no such job is declared; did you mean enq\.order\?"):
        enqueue("enq.ordre")
    with pytest.raises(UnknownJob, match="plain Celery task"):
        enqueue("enq.plain")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "negative delay": ({"delay_ms": -1}, "delay_ms: a whole number from 0"),
    "delay in words": ({"delay_ms": "1s"}, "delay_ms"),
    "a century": ({"delay_ms": 10**13}, "delay_ms"),
    "no attempts": ({"attempts": 0}, "attempts: a whole number of at least 1"),
    "priority": ({"priority": 10}, "priority: a whole number from 0 to 9"),
    "backoff": ({"backoff": 3}, "backoff: use fixed"),
    "timeout": ({"timeout_ms": 0}, "timeout_ms"),
    "long key": ({"idempotency_key": "x" * 201}, "idempotency_key: a text of 1 to 200"),
    "empty key": ({"idempotency_key": ""}, "idempotency_key"),
    "half a character": ({"idempotency_key": "\ud800"}, "idempotency_key"),
    "no time": ({"idempotency_key": "k", "idempotency_ttl_ms": 0}, "idempotency_ttl_ms"),
    "mode": ({"idempotency_key": "k", "dedup": "maybe"}, "dedup: use 'ttl'"),
    "mode alone": ({"dedup": "extend"}, "dedup: it needs an idempotency_key"),
    "id": ({"job_id": ""}, "job_id: a text of 1 to 500"),
    "id of a part": ({"job_id": "order:runs"}, "job_id: it may not end in :runs"),
    "id of a number": ({"job_id": 7}, "job_id"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_an_option_out_of_range_is_refused_by_name(app: Celery, client: redis.Redis, fault: str) -> None:
    options, words = REFUSED[fault]
    with pytest.raises(ValueError, match=words):
        enqueue("enq.free", **options)
    with pytest.raises(ValueError, match="job_id" if "job_id" in options else words):
        enqueue_many("enq.free", [{}], **options)
    assert nothing_was_sent(client)


def test_jitter_is_a_fraction() -> None:
    with pytest.raises(ValueError, match="jitter"):
        exponential(10, jitter=2)


def test_an_unknown_option_is_refused_with_the_close_one(app: Celery, client: redis.Redis) -> None:
    with pytest.raises(TypeError, match="unknown option delay; did you mean delay_ms"):
        enqueue("enq.free", delay=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unknown option idempotency; did you mean idempotency_key"):
        app.tasks["enq.free"].apply_async(idempotency="k")
    with pytest.raises(TypeError, match=r"attempts: only a job that is declared"):
        app.tasks["enq.plain"].apply_async(attempts=3)
    assert nothing_was_sent(client)


def test_options_travel_with_the_job_however_it_is_sent(app: Celery) -> None:
    """SPEC 5: enqueue, apply_async, set, and a chain's later step, which travels as JSON."""
    ours = {"attempts": 3, "backoff": exponential(100, jitter=0.5), "timeout_ms": 5_000}
    task = app.tasks["enq.tell"]
    ids = [enqueue("enq.tell", **ours).id, task.apply_async(**ours).id, task.s().set(**ours).delay().id]
    expected = {"attempts": 3, "backoff": ours["backoff"].as_dict(), "timeout_ms": 5_000}  # type: ignore[attr-defined]
    assert [headers_of(app, job_id)["queue_kit"] for job_id in ids] == [expected] * 3
    head = chain(task.si(), task.si().set(**ours)).apply_async().parent
    step = json.loads(json.loads(job_of(app, head.id).message)["body"])[2]["chain"][0]
    sent = app.signature(step).apply_async()
    assert headers_of(app, sent.id)["queue_kit"] == expected


def test_a_delay_in_milliseconds(app: Celery) -> None:
    """SPEC 2: it travels as a duration, and is counted by the clock of Redis."""
    job = job_of(app, enqueue("enq.free", delay_ms=60_001).id)
    assert job.due_at_ms is not None
    assert job.added_at_ms is not None
    assert job.due_at_ms - job.added_at_ms == 60_001
    assert job_of(app, enqueue("enq.free", delay_ms=0).id).state == "waiting"


def test_the_events_of_a_plain_send(app: Celery, client: redis.Redis) -> None:
    handle = enqueue("enq.free")
    assert trace(client, "celery", handle.id) == ["added", "waiting"]


def test_signals_are_sent_as_celery_does(app: Celery) -> None:
    """A receiver may change the headers; the second signal comes after Redis has the job."""
    seen: list[str] = []

    def before(headers: dict[str, Any], **_: Any) -> None:
        headers["traceparent"] = "00-1"

    def after(headers: dict[str, Any], **_: Any) -> None:
        seen.append(job_of(app, headers["id"]).state)

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        ids = [enqueue("enq.free").id, *(handle.id for handle in enqueue_many("enq.free", [{}, {}]))]
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)
    assert seen == ["waiting"] * 3
    assert {headers_of(app, job_id)["traceparent"] for job_id in ids} == {"00-1"}


def test_a_send_from_within_a_signal_does_not_mix_the_answers_up(app: Celery) -> None:
    """Each send has its own answer, also where one is made inside another."""
    inner: list[Any] = []

    def before(sender: str, **_: Any) -> None:
        if sender == "enq.free":
            inner.append(enqueue("enq.tell", idempotency_key="inner"))

    signals.before_task_publish.connect(before)
    try:
        outer = [enqueue("enq.free", idempotency_key="outer") for _ in range(2)]
        many = enqueue_many("enq.free", [{}, {}])
    finally:
        signals.before_task_publish.disconnect(before)
    assert outer[0].id == outer[1].id != inner[0].id
    assert [handle.deduplicated for handle in outer] == [False, True]
    assert len({handle.id for handle in many} | {inner[0].id}) == 3


def test_monitors_hear_of_a_send_where_the_project_wants_that(redis_server: RedisServer) -> None:
    """Celery's task-sent event, after the job is in Redis."""
    with sending(redis_server.url()) as app, app.connection_for_read() as connection:
        app.conf.task_send_sent_event = True
        heard: list[dict[str, Any]] = []
        receiver = app.events.Receiver(connection, handlers={"task-sent": heard.append})
        monitor = threading.Thread(target=receiver.capture, kwargs={"limit": None, "wakeup": False})
        monitor.start()
        ids: list[str] = []
        wait_until(lambda: heard or ids.append(enqueue("enq.free").id), says="an event is heard", every_s=0.05)
        receiver.should_stop = True
        monitor.join()
    assert (heard[0]["uuid"] in ids, heard[0]["queue"], heard[0]["name"]) == (True, "celery", "enq.free")


def test_eager_apps_run_at_once(redis_server: RedisServer) -> None:
    with sending(redis_server.url()) as app:
        app.conf.task_always_eager = True
        assert isinstance(enqueue("enq.free"), Enqueued)
        assert len(enqueue_many("enq.free", [{}, {}])) == 2


# -- many -----------------------------------------------------------------------------------------------------------------


def test_thousands_go_in_a_few_trips_in_order(app: Celery, desk: Desk) -> None:
    """SPEC 5: a result for each, and first in, first out."""
    handles = enqueue_many("enq.free", ({"value": number} for number in range(2_500)))
    assert [handle.error for handle in handles] == [None] * 2_500
    assert desk.listed("wait") == [handle.id for handle in handles]
    assert kwargs_of(app, handles[1_234].id) == {"value": 1_234}


def test_nothing_is_sent_when_one_payload_is_wrong(app: Celery, client: redis.Redis) -> None:
    with pytest.raises(InvalidPayload, match="number"):
        enqueue_many("enq.order", [GOOD, GOOD, {"number": 0, "name": "x"}])
    assert nothing_was_sent(client)
    assert enqueue_many("enq.order", []) == []
    with pytest.raises(ValueError, match="job_id"):
        enqueue_many("enq.order", [GOOD], job_id="one")


def test_a_batch_goes_through_a_connection_that_breaks_once(own_redis: OwnRedis, own_proxy: OwnProxy) -> None:
    """SPEC 5: what the first trip has written is found by the second, and is no duplicate."""
    server = own_redis()
    proxy = own_proxy(server)
    with sending(proxy.url()):
        enqueue("enq.free")
        proxy.lose_answers(1)
        handles = enqueue_many("enq.free", [{"value": number} for number in range(1_500)])
    assert [(handle.error, handle.deduplicated) for handle in handles] == [(None, False)] * 1_500
    assert Desk(server.client(), "celery").client.zcard("qwk:q:celery:wait") == 1_501


def test_what_redis_has_of_a_batch_is_known_when_it_takes_no_more(own_redis: OwnRedis) -> None:
    """E9, H6: a job that was there is not refused for those that were sent together with it."""
    server = own_redis(policy="noeviction")
    with sending(server.url()) as app:
        postings = [prepare("enq.free", {"value": number}).posting for number in range(120)]
        sender = app.queue_kit.sender
        assert {answer.outcome for answer in sender.send_all(postings[::2])} == {"added"}
        server.client().config_set("maxmemory", 1)
        answers = sender.send_all(postings)
    assert [answer.outcome for answer in answers[::2]] == ["duplicated"] * 60
    assert {answer.sent for answer in answers[1::2]} == {"no"}


@pytest.mark.crash
def test_a_batch_that_redis_leaves_midway_has_a_result_for_each(own_redis: OwnRedis) -> None:
    """SPEC 5: the trips before were answered, one is unknown, and those after were not sent; each may be sent again."""
    server = own_redis()
    with sending(server.url()):
        kill_after = iter(range(1_700))

        def payloads() -> Iterator[dict[str, int]]:
            yield from ({"value": number} for number in kill_after)
            server.kill()

        handles = enqueue_many("enq.free", payloads())
    errors = [handle.error for handle in handles]
    assert all(isinstance(error, QueueUnavailable) and error.sent == "no" for error in errors)
    assert len({handle.id for handle in handles}) == 1_700


@pytest.mark.crash
def test_a_full_server_refuses_the_rest_of_a_batch(own_redis: OwnRedis) -> None:
    """H6: what fitted in is there, the rest is told so, and nothing is half-written."""
    server = own_redis(policy="noeviction")
    client = server.client()
    with sending(server.url()):
        enqueue("enq.free")
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + 1_500_000)
        handles = enqueue_many("enq.free", [{"value": "x" * 1_000} for _ in range(3_000)])
        client.config_set("maxmemory", 0)
    taken = [handle.id for handle in handles if handle.error is None]
    refused = [handle.error for handle in handles if handle.error is not None]
    assert taken
    assert refused
    assert {error.sent for error in refused} == {"no"}
    desk = Desk(client, "celery")
    assert set(taken) == {handle.id for handle in handles} & set(desk.listed("wait"))
    assert len(client.keys("qwk:job:*")) == len(taken) + 1


def test_a_server_that_forgot_its_scripts_learns_them_once(app: Celery, client: redis.Redis) -> None:
    enqueue("enq.free")
    client.script_flush()
    handles = enqueue_many("enq.free", [{"value": number} for number in range(300)])
    assert [handle.error for handle in handles] == [None] * 300
    assert Desk(client, "celery").listed("wait")[1:] == [handle.id for handle in handles]


# -- correlation ids ------------------------------------------------------------------------------------------------------


def test_a_correlation_id_is_taken_if_it_fits_else_made(app: Celery) -> None:
    """SPEC 11."""
    good = "Req-7.a:b_c"
    assert job_of(app, enqueue("enq.free", correlation_id=good).id).correlation_id == good
    for bad in ("", "a b", "x" * 201, "a\nb", "ключ"):
        made = job_of(app, enqueue("enq.free", correlation_id=bad).id).correlation_id
        assert made != bad
        assert len(made) == 36 or bad == ""


def test_a_job_hands_its_correlation_id_on(stage: Stage) -> None:
    """SPEC 11: to what it enqueues, through retries and chains; without one, jobs that come of one job share its id."""
    results = f"{stage.url[:-1]}1"
    queues = [stage.queue, "celery"]
    worker = stage.start_worker("tests.apps.enqueue_app", broker_url=stage.url, backend_url=results, queues=queues)
    with sending(stage.url, results) as app:
        app.conf.task_default_queue = stage.queue
        task = app.tasks["enq.pass_on"]
        given, none = task.apply_async(correlation_id="c-1"), task.apply_async()
        children = [result.get(timeout=20) for result in (given, none)]
        told = [app.AsyncResult(child).get(timeout=20) for child in children]
    assert worker.running
    assert told[0]["correlation_id"] == "c-1"
    assert [stage.job(child).correlation_id for child in children] == ["c-1", none.id]


# -- waiting for disk and replicas ----------------------------------------------------------------------------------------


@pytest.mark.crash
def test_a_send_may_wait_for_a_replica(own_redis: OwnRedis) -> None:
    """SPEC 13: the job is on the replica when the call returns; a frozen one is told in time, and the id may be sent again."""
    primary = own_redis(options={"repl-diskless-sync-delay": "0"})
    replica = own_redis(options={"replicaof": f"{LOOPBACK} {primary.port}"})
    primary.wait_for_replica()
    with sending(primary.url(), ENQUEUE_WAIT_REPLICAS=1):
        first = enqueue("enq.free")
        assert replica.client().exists(f"qwk:job:{first.id}") == 1
        replica.freeze()
        with pytest.raises(QueueUnavailable, match="1 replicas have not confirmed") as told:
            enqueue("enq.free", job_id="mine")
        assert told.value.sent == "unknown"
        errors = [handle.error for handle in enqueue_many("enq.free", [{}, {}])]
        assert [error.sent for error in errors if error] == ["unknown"] * 2
        replica.thaw()
        assert enqueue("enq.free", job_id="mine").deduplicated is True
        assert replica.client().exists("qwk:job:mine") == 1
    replica.kill()


@pytest.mark.crash
def test_a_send_may_wait_for_the_disk(own_redis: OwnRedis) -> None:
    """SPEC 13: given a disk that is synced each second; the server is killed right after the call; then the job is there."""
    server = own_redis(engine=newer_engine(), appendonly=True, options={"appendfsync": "everysec"})
    with sending(server.url(), ENQUEUE_WAIT_DISK=True):
        sent = [enqueue("enq.free").id, *(handle.id for handle in enqueue_many("enq.free", [{}, {}]))]
    server.restart()
    assert server.client().exists(*(f"qwk:job:{job_id}" for job_id in sent)) == 3


def test_a_send_cannot_wait_for_a_disk_that_is_not_there(own_redis: OwnRedis) -> None:
    """SPEC 13: no append-only file: an error that says so."""
    server = own_redis(engine=newer_engine())
    with (
        sending(server.url(), ENQUEUE_WAIT_DISK=True),
        pytest.raises(ConfigurationError, match="ENQUEUE_WAIT_DISK: this Redis keeps no append-only file"),
    ):
        enqueue("enq.free")


def test_a_send_cannot_wait_for_the_disk_of_an_old_redis(own_redis: OwnRedis) -> None:
    """SPEC 13: the error names the setting, the version there is and the one that is needed; nothing is sent."""
    server = own_redis(appendonly=True)
    version = server.client().info("server")["redis_version"]
    if tuple(map(int, version.split(".")[:2])) >= (7, 2):
        service_missing("every Redis engine here has WAITAOF")
    with (
        sending(server.url(), ENQUEUE_WAIT_DISK=True),
        pytest.raises(ConfigurationError, match=f"ENQUEUE_WAIT_DISK: Redis {version} has no WAITAOF; 7.2"),
    ):
        enqueue("enq.free")
    assert server.client().keys("qwk:*") == []


# -- what Celery shows of arguments ---------------------------------------------------------------------------------------

texts = st.one_of(st.text(max_size=20), st.text("ab '\"\\\n\t\x7fé", max_size=6))
plain = st.one_of(texts, st.integers(), st.floats(), st.booleans(), st.none())


@given(st.one_of(st.dictionaries(st.text(max_size=8), plain), st.lists(plain), st.lists(plain).map(tuple)))
def test_the_short_way_shows_what_celerys_long_way_shows(arguments: Any) -> None:
    empty: Any = {} if isinstance(arguments, dict) else ()
    brief = brief_repr(arguments, repr(empty), 1024)
    if brief is not None:
        assert brief == saferepr(arguments or empty, 1024, maxlevels=3)


def test_a_fixed_backoff_too(app: Celery) -> None:
    assert headers_of(app, enqueue("enq.tell", backoff=fixed(5)).id)["queue_kit"]["backoff"]["kind"] == "fixed"


# -- the short way of a batch ---------------------------------------------------------------------------------------------

PAYLOADS: list[Any] = [
    None, 1, "x" * 2_000, "quotes ' \" \\ \n \u2028 é \U0001f600", {"a": [1, {"b": None}]}, [1.5, True], dt.date(2026, 1, 2),
    b"bytes", "id", "body", "shown", "\ud800",
]  # fmt: skip


def message_of(app: Celery, job_id: str) -> str:
    """A job's message with its own id blotted out, of which there is one in each."""
    return job_of(app, job_id).message.replace(job_id, "ID")


@pytest.mark.parametrize(
    "options", [{}, {"priority": 3, "attempts": 2, "backoff": fixed(5), "correlation_id": "c-1", "idempotency_ttl_ms": None}]
)
def test_a_batch_sends_what_single_sends_would(app: Celery, options: dict[str, Any]) -> None:
    """SPEC 5: the messages that are cast from the first are, letter for letter, those of the whole way."""
    payloads = [{"value": value} for value in PAYLOADS]
    cast = enqueue_many("enq.free", payloads, **options)
    whole = [enqueue("enq.free", payload, **options) for payload in payloads]
    assert [message_of(app, one.id) for one in cast] == [message_of(app, one.id) for one in whole]
    views = [[job_of(app, one.id) for one in handles] for handles in (cast, whole)]
    kept = [[(job.queue, job.name, job.priority, job.correlation_id.replace(job.id, "ID")) for job in jobs] for jobs in views]
    assert kept[0] == kept[1]


def test_a_batch_with_a_model_sends_the_same_too(app: Celery) -> None:
    payloads: list[Any] = [{**GOOD, "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)}, GOOD, Order.model_validate(GOOD)]
    cast, whole = enqueue_many("enq.order", payloads), [enqueue("enq.order", payload) for payload in payloads]
    assert [message_of(app, one.id) for one in cast] == [message_of(app, one.id) for one in whole]


def test_a_cast_payload_is_refused_as_any_other(app: Celery, client: redis.Redis) -> None:
    for wrong, words in (({"value": object()}, "cannot be sent as json"), ({"value": "x" * 20_000}, "at most 16384")):
        with pytest.raises(InvalidPayload, match=words):
            enqueue_many("enq.free", [{}, {}, wrong])
    with pytest.raises(InvalidPayload, match="unexpected keyword"):
        enqueue_many("enq.free", [{}, {}, {"valeu": 1}])
    assert nothing_was_sent(client)


def test_routes_that_look_at_the_payload_are_asked_for_each_job(app: Celery) -> None:
    """A router of the project's own may send each job elsewhere; then nothing is cast."""

    def by_value(name: str, args: Any, kwargs: dict[str, Any], options: Any, task: Any = None, **_: Any) -> Any:
        return {"queue": f"q{kwargs['value']}"}

    app.conf.task_routes = (by_value,)
    handles = enqueue_many("enq.free", [{"value": number} for number in range(3)])
    assert [job_of(app, handle.id).queue for handle in handles] == ["q0", "q1", "q2"]
