"""One key, one job: which sends are one, what becomes of the others, and when a key is free again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from celery import Celery, chain, group

from queue_kit import Enqueued, State, UnsupportedOperation, enqueue, enqueue_many, fixed
from queue_kit.store import Message
from queue_kit.store.moves import Added, Unique
from tests.store.desk import HOUR_MS, LATER, Desk
from tests.support.events import count, events
from tests.support.fixtures import OwnRedis
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch, let_pass, wait_until
from tests.worker.sending import current, job_of, sending
from tests.worker.stage import Stage

KEY = "welcome:42"


@pytest.fixture
def app(redis_server: RedisServer) -> Iterator[Celery]:
    with sending(redis_server.url()) as app:
        yield app


@pytest.fixture
def desk(app: Celery, client: redis.Redis) -> Desk:
    """Plays the worker of the queue that jobs go to when they say nothing."""
    return Desk(client, "celery")


def send(value: Any = 1, **options: Any) -> Enqueued:
    return enqueue("enq.free", {"value": value}, **{"idempotency_key": KEY, **options})


def value_of(desk: Desk, job_id: str) -> Any:
    """What a job was sent with."""
    message = json.loads(desk.record(job_id)["message"])
    return json.loads(message["body"])[1]["value"]


def end(desk: Desk, job_id: str, state: str) -> None:
    """Let a waiting job run, or not, and end so."""
    if state == "cancelled":
        desk.run(desk.moves.cancel(job_id, "cancelled"))
        return
    token = desk.begin(job_id)
    moves = {"completed": desk.moves.complete, "failed": lambda *who: desk.moves.fail(*who, "exhausted", "no")}
    desk.run(moves[state](job_id, token))


# -- one key, one job -----------------------------------------------------------------------------------------------------


def test_the_second_send_of_a_key_is_the_first(desk: Desk) -> None:
    """E1: the same id, one job, one event; the handle says so, and where the job is."""
    first, again = send(1), send(2)
    assert again == Enqueued(first.id, deduplicated=True, existing_state="waiting")
    assert value_of(desk, first.id) == 1
    assert desk.listed("wait") == [first.id]
    (event,) = [event for event in events(desk.client, "celery") if event.kind == "deduplicated"]
    assert event.job_id == first.id
    assert desk.client.hget("qwk:q:celery:counts", "deduplicated enq.free") == "1"


@pytest.mark.parametrize("state", ["active", "completed", "failed", "cancelled"])
def test_it_says_where_the_first_is(desk: Desk, state: str) -> None:
    """E1, SPEC 5: also when that has ended; a failed job's key answers until its time to live is over."""
    first = send()
    if state == "active":
        token = desk.begin(first.id)
    else:
        end(desk, first.id, state)
    assert send() == Enqueued(first.id, deduplicated=True, existing_state=state)
    if state == "active":
        desk.run(desk.moves.complete(first.id, token))


def test_a_key_lives_as_long_as_it_was_given(desk: Desk) -> None:
    """E2: calls at 0, 200 and 400 of 500 ms are one job, whatever became of it; the next is another."""
    watch = Stopwatch()
    first = send(idempotency_ttl_ms=500)
    end(desk, first.id, "completed")
    let_pass(0.2, because="a key's time to live is the matter")
    same = send(idempotency_ttl_ms=500)
    let_pass(max(0.0, 0.52 - watch.elapsed_s), because="it has to run out")
    other = send(idempotency_ttl_ms=500)
    assert (same.id, other.deduplicated) == (first.id, False)
    assert other.id != first.id


def test_it_lives_a_day_by_default(desk: Desk) -> None:
    """E2."""
    send()
    (key,) = desk.client.keys("qwk:dedup:*")
    assert 86_390_000 < desk.client.pttl(key) <= 86_400_000


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_until_finished_ends_with_the_job(desk: Desk, state: str) -> None:
    """E3: whatever the end."""
    first = send(dedup="until_finished")
    assert send(dedup="until_finished").id == first.id
    end(desk, first.id, state)
    second = send(dedup="until_finished")
    assert (second.deduplicated, second.id != first.id) == (False, True)
    end(desk, second.id, "completed")
    assert desk.client.keys("qwk:dedup:*") == []


def test_extend_prolongs_the_key_at_each_hit(desk: Desk) -> None:
    """E4."""
    first = send(dedup="extend", idempotency_ttl_ms=60_000)
    (key,) = desk.client.keys("qwk:dedup:*")
    desk.client.pexpire(key, 1_000)
    assert send(dedup="extend", idempotency_ttl_ms=60_000).id == first.id
    assert desk.client.pttl(key) > 50_000
    desk.client.pexpire(key, 1_000)
    assert send(idempotency_ttl_ms=60_000).id == first.id
    assert desk.client.pttl(key) <= 1_000, "another mode does not prolong it"


# -- replace while delayed ------------------------------------------------------------------------------------------------


def test_replace_while_delayed_keeps_the_last_payload_and_one_job(desk: Desk) -> None:
    """E4: with its own delay, priority and expiry; the id stays the first's."""
    first = send(1, dedup="replace", delay_ms=HOUR_MS, correlation_id="c-1")
    again = send(2, dedup="replace", delay_ms=2 * HOUR_MS, priority=3)
    assert again == Enqueued(first.id, deduplicated=True, existing_state="delayed")
    record = desk.record(first.id)
    assert (value_of(desk, first.id), record["priority"], record.get("correlation_id")) == (2, "3", None)
    assert int(record["due_at"]) > desk.now_ms() + HOUR_MS
    assert desk.listed("delayed") == [first.id]
    third = send(3, dedup="replace")
    assert (third.id, third.existing_state) == (first.id, "waiting")
    assert (value_of(desk, first.id), desk.claimed()) == (3, [first.id])
    assert send(4, dedup="replace").existing_state == "active"
    assert value_of(desk, first.id) == 3, "it is too late for that"


def test_replace_drops_an_expiry_that_the_last_payload_has_not(app: Celery, desk: Desk) -> None:
    options = {"idempotency_key": KEY, "dedup": "replace", "countdown": 60}
    first = app.tasks["enq.free"].apply_async(kwargs={"value": 1}, expires=90, **options)
    assert "expires_at" in desk.record(first.id)
    app.tasks["enq.free"].apply_async(kwargs={"value": 2}, **options)
    assert "expires_at" not in desk.record(first.id)


def test_replace_takes_nothing_away_when_memory_is_full(own_redis: OwnRedis) -> None:
    """H6: the payload that came first stays whole, and where it was."""
    server = own_redis()
    desk = Desk(server.client(), "q")
    unique = Unique("k", "replace", HOUR_MS)
    for number, most in ((1, 0), (2, 1)):
        desk.client.config_set("maxmemory", most)
        call = desk.moves.add(f"j{number}", Message(f"body {number}", "q", "n"), when=LATER, unique=unique)
        if most:
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                desk.run(call)
        else:
            desk.run(call)
    assert (desk.record("j1")["message"], desk.listed("delayed")) == ("body 1", ["j1"])


# -- keep last while active -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled", "stalled out"])
def test_what_came_last_while_it_ran_runs_once_more(desk: Desk, ending: str) -> None:
    """E4: after the first has ended, however; one job, with the last payload, which holds the key in its turn."""
    first = send(1, dedup="keep_last")
    token = desk.begin(first.id)
    for value in (2, 3):
        handle = send(value, dedup="keep_last", correlation_id=f"c-{value}", priority=value)
        assert handle == Enqueued(first.id, deduplicated=True, existing_state="active")
    assert desk.listed("wait") == []
    _end_running(desk, first.id, token, ending)
    (following,) = desk.listed("wait")
    record = desk.record(following)
    assert (value_of(desk, following), record["correlation_id"], record["priority"]) == (3, "c-3", "3")
    assert send(4, dedup="keep_last").id == following
    end(desk, following, "completed")
    assert desk.listed("wait") == [], "what came while it waited is not kept"
    assert desk.client.keys("qwk:dedup:*") == []


def _end_running(desk: Desk, job_id: str, token: str, ending: str) -> None:
    moves = desk.moves
    if ending == "cancelled":
        assert desk.run(moves.cancel(job_id, "cancelled")) == "flagged"
        desk.run(moves.release(job_id, token))
    elif ending == "stalled out":
        desk.run(moves.stall(job_id, token))
        desk.run(moves.stall(job_id, desk.begin(job_id)))
    elif ending == "failed":
        desk.run(moves.fail(job_id, token, "exhausted", "no"))
    else:
        desk.run(moves.complete(job_id, token))


@pytest.mark.parametrize("between", ["retry", "stall"])
def test_what_comes_between_two_runs_is_kept_too(desk: Desk, between: str) -> None:
    """E4, E6: the job has begun, and will run again with its old payload; a new one must not get lost meanwhile."""
    first = send(1, dedup="keep_last")
    token = desk.begin(first.id)
    if between == "retry":
        desk.run(desk.moves.retry(first.id, token, LATER))
        assert send(2, dedup="keep_last").existing_state == "delayed"
        desk.run(desk.moves.promote(first.id))
    else:
        desk.run(desk.moves.stall(first.id, token))
        assert send(2, dedup="keep_last").existing_state == "waiting"
    desk.run(desk.moves.complete(first.id, desk.begin(first.id)))
    (following,) = desk.listed("wait")
    assert value_of(desk, following) == 2
    end(desk, following, "completed")


def test_a_key_with_a_time_to_live_waits_for_what_is_kept(desk: Desk) -> None:
    """E4: sent first with another mode; the kept payload must not die with the key."""
    first = send(1, idempotency_ttl_ms=60_000)
    token = desk.begin(first.id)
    send(2, dedup="keep_last")
    (key,) = desk.client.keys("qwk:dedup:*")
    assert desk.client.pttl(key) == -1
    desk.run(desk.moves.complete(first.id, token))
    (following,) = desk.listed("wait")
    assert value_of(desk, following) == 2
    end(desk, following, "completed")


def test_a_kept_payload_keeps_its_delay(desk: Desk) -> None:
    first = send(1, dedup="keep_last")
    token = desk.begin(first.id)
    send(2, dedup="keep_last", delay_ms=HOUR_MS)
    desk.run(desk.moves.complete(first.id, token))
    (following,) = desk.listed("delayed")
    desk.run(desk.moves.remove(following))
    assert desk.client.keys("qwk:dedup:*") == []


# -- when a key is free ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "delayed", "completed", "failed", "cancelled", "trimmed"])
def test_remove_frees_the_key_at_once(desk: Desk, state: str) -> None:
    """E5: whatever state its job is in, its record trimmed or not."""
    first = send(delay_ms=HOUR_MS if state == "delayed" else None)
    if state not in ("waiting", "delayed"):
        end(desk, first.id, "completed" if state == "trimmed" else state)
    if state == "trimmed":
        desk.run(desk.moves.trim("celery", "completed", 0, HOUR_MS, 60_000))
    assert desk.run(desk.moves.remove(first.id)) == "ok"
    assert desk.client.keys("qwk:dedup:*") == []
    assert send().deduplicated is False


def test_a_key_outlives_the_record_of_its_job_and_knows_how_that_ended(desk: Desk) -> None:
    """SPEC 5: while the id is still known, and after."""
    first = send()
    end(desk, first.id, "failed")
    desk.run(desk.moves.trim("celery", "failed", 0, HOUR_MS, 60_000))
    assert send() == Enqueued(first.id, deduplicated=True, existing_state="failed")
    desk.client.delete(desk.keys.job(first.id))
    assert send() == Enqueued(first.id, deduplicated=True, existing_state="failed")


def test_a_key_without_a_time_to_live_whose_job_is_gone_is_recovered(desk: Desk) -> None:
    """E8: the job was flushed by hand, and its key was not."""
    first = send(dedup="until_finished")
    desk.client.delete(desk.keys.job(first.id), desk.key("wait"))
    second = send(dedup="until_finished")
    assert (second.deduplicated, desk.listed("wait")) == (False, [second.id])


def test_a_key_without_a_time_to_live_is_not_anothers_of_the_same_id(desk: Desk) -> None:
    """E8: an id used again, without the key."""
    send(dedup="until_finished", job_id="twice")
    desk.client.delete(desk.keys.job("twice"), desk.key("wait"))
    enqueue("enq.free", {"value": 2}, job_id="twice")
    assert send(dedup="until_finished").deduplicated is False


def test_a_refused_job_leaves_no_key_behind(own_redis: OwnRedis) -> None:
    """E8: key and job are written by one script, or neither."""
    server = own_redis()
    desk = Desk(server.client(), "q")
    desk.client.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        desk.run(desk.moves.add("job", desk.message(), unique=Unique("k", "ttl", HOUR_MS)))
    assert desk.client.keys("*") == []


# -- scope ----------------------------------------------------------------------------------------------------------------


def test_two_jobs_of_different_names_with_one_key_are_two(desk: Desk) -> None:
    """E8; and so are those of two queues."""
    send()
    assert enqueue("enq.tell", idempotency_key=KEY).deduplicated is False
    elsewhere = Desk(desk.client, "elsewhere")
    added = elsewhere.run(elsewhere.moves.add("x", elsewhere.message(name="enq.free"), unique=Unique(KEY, "ttl", 1_000)))
    assert added.outcome == "added"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a:b", "c", "d"), ("a", "b:c", "d")),
        (("a", "b:c", "d"), ("a", "b", "c:d")),
        (("a\x1fb", "c", "d"), ("a", "b\x1fc", "d")),
        (("1.1:a", "b", "c"), ("1", "1", "a:b:c")),
        (("q", "", "x"), ("q", "x", "")),
    ],
)
def test_separators_in_names_do_not_mix_keys_up(desk: Desk, one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """E8: names, queues and keys are anybody's texts."""
    assert desk.keys.dedup(*one) != desk.keys.dedup(*other)


@pytest.mark.parametrize("key", ["a:b", "ключ", "a b\n", "*", "\x00", "x" * 200, "{}"])
def test_a_key_is_any_text(desk: Desk, key: str) -> None:
    assert send(idempotency_key=key).id == send(idempotency_key=key).id


# -- many at once ---------------------------------------------------------------------------------------------------------


def test_a_hundred_concurrent_sends_of_a_key_are_one_job(app: Celery, desk: Desk) -> None:
    """E7: one job, a hundred equal ids."""
    start = threading.Barrier(20)

    def one(_: int) -> list[Enqueued]:
        app.set_current()
        start.wait(10)
        return [send() for _ in range(5)]

    with ThreadPoolExecutor(20) as pool:
        handles = [handle for sent in pool.map(one, range(20)) for handle in sent]
    assert len({handle.id for handle in handles}) == 1
    assert [handle.deduplicated for handle in handles].count(False) == 1
    assert len(desk.listed("wait")) == 1
    assert count(desk.client, "celery", "deduplicated") == 99


def test_a_batch_is_deduplicated_within_itself_and_against_what_is_there(desk: Desk) -> None:
    """E1: a result for each item."""
    first = send()
    same = enqueue_many("enq.free", [{"value": n} for n in range(3)], idempotency_key=KEY)
    assert same == [Enqueued(first.id, deduplicated=True, existing_state="waiting")] * 3
    fresh = enqueue_many("enq.free", [{"value": n} for n in range(3)], idempotency_key="other")
    assert [handle.deduplicated for handle in fresh] == [False, True, True]
    assert len({handle.id for handle in fresh}) == 1


# -- ids ------------------------------------------------------------------------------------------------------------------


def test_an_id_that_is_there_is_returned_and_its_payload_kept(desk: Desk) -> None:
    """E9."""
    enqueue("enq.free", {"value": 1}, job_id="order-7")
    again = enqueue("enq.free", {"value": 2}, job_id="order-7")
    assert again == Enqueued("order-7", deduplicated=True, existing_state="waiting")
    assert (value_of(desk, "order-7"), count(desk.client, "celery", "duplicated")) == (1, 1)


def test_the_id_comes_before_the_key(desk: Desk) -> None:
    """E9: an id that is there is that job, whichever key comes with it."""
    enqueue("enq.free", job_id="order-7")
    assert send(job_id="order-7") == Enqueued("order-7", deduplicated=True, existing_state="waiting")
    assert send().deduplicated is False


def test_the_same_move_made_again_says_added(desk: Desk) -> None:
    """E9: a send whose answer was lost is not the duplicate of itself; another's message is."""
    unique = Unique("k", "ttl", HOUR_MS)
    message = desk.message(body="mine")
    assert desk.run(desk.moves.add("job", message, unique=unique)).outcome == "added"
    assert desk.run(desk.moves.add("job", message, unique=unique, again=True)) == Added("added", "waiting")
    assert desk.run(desk.moves.add("job", message, unique=unique)) == Added("duplicated", "waiting")
    assert desk.run(desk.moves.add("job", desk.message(body="yours"), again=True)).outcome == "duplicated"


# -- canvas ---------------------------------------------------------------------------------------------------------------


def test_members_of_a_group_or_chord_are_refused_a_key(app: Celery, desk: Desk) -> None:
    """SPEC 5: a chord would wait for ever for the one that was deduplicated; so would one whose body was."""
    keyed, other = app.tasks["enq.plain"].si().set(idempotency_key=KEY), app.tasks["enq.plain"].si()
    with pytest.raises(UnsupportedOperation, match="group or chord"):
        group([keyed, other]).apply_async()
    with pytest.raises(UnsupportedOperation, match="idempotency_key"):
        group([other, other]).apply_async(idempotency_key=KEY)
    assert desk.client.keys("qwk:dedup:*") == []


def test_a_step_of_a_chain_is_refused_a_key_unless_it_is_the_last(app: Celery, desk: Desk) -> None:
    """SPEC 5: what comes after the one that was deduplicated would never run."""
    keyed, other = app.tasks["enq.plain"].si(1).set(idempotency_key=KEY), app.tasks["enq.plain"].si(2)
    with pytest.raises(UnsupportedOperation, match="rest of the chain"):
        chain(keyed, other).apply_async()
    chain(other, keyed).apply_async()
    assert len(desk.listed("wait")) == 1


@pytest.mark.parametrize("how", ["delay options", "set", "signature", "by name"])
def test_celerys_own_ways_take_the_same_options(app: Celery, desk: Desk, how: str) -> None:
    """SPEC 5: the result has the first's id, and says whether it was there."""
    task, options = app.tasks["enq.plain"], {"idempotency_key": KEY, "idempotency_ttl_ms": 60_000}
    ways = {
        "delay options": lambda: task.apply_async((1,), **options),
        "set": lambda: task.s(1).set(**options).delay(),
        "signature": lambda: task.signature((1,), options=options).apply_async(),
        "by name": lambda: app.send_task("enq.plain", (1,), **options),
    }
    first, again = ways[how](), ways[how]()
    assert (again.id, again.deduplicated, again.existing_state) == (first.id, True, "waiting")
    assert (first.deduplicated, first.existing_state) == (False, None)
    assert job_of(app, first.id).name == "enq.plain"


# -- with real workers ----------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_a_retry_and_a_stall_rerun_are_never_deduplicated(stage: Stage) -> None:
    """E6: given jobs that hold their keys; failed once, killed once; then each runs again under its id and key."""
    with current(stage.app):
        options: dict[str, Any] = {"queue": stage.queue, "idempotency_key": KEY}
        flaky = stage.app.tasks["crash.flaky"].apply_async(kwargs={"failures": 2}, **options)
        dying = stage.app.tasks["crash.die"].apply_async(kwargs={"deaths": 1}, dedup="until_finished", **options)
        stage.worker()
        assert {job.state for job in stage.await_ends([flaky.id, dying.id])} == {State.COMPLETED}
        assert (stage.starts(flaky.id), stage.starts(dying.id)) == (3, 2)
        again = stage.app.tasks["crash.flaky"].apply_async(**options)
        assert (again.id, again.existing_state) == (flaky.id, "completed")
        freed = stage.app.tasks["crash.die"].apply_async(kwargs={"deaths": 0}, dedup="until_finished", **options)
        assert freed.deduplicated is False
        stage.await_end(freed.id)


def test_a_replaced_payload_runs_under_the_first_id_and_its_result_is_found_there(stage: Stage) -> None:
    """E4: what the worker runs, stores and settles is all the first send's job."""
    results = f"{stage.url[:-1]}1"
    stage.start_worker("tests.apps.enqueue_app", broker_url=stage.url, backend_url=results, pool="threads")
    with sending(stage.url, results) as app:
        task, options = app.tasks["enq.free"], {"queue": stage.queue, "idempotency_key": KEY, "dedup": "replace"}
        first = task.apply_async(kwargs={"value": 1}, countdown=60, **options)
        again = task.apply_async(kwargs={"value": 2}, countdown=0.2, **options)
        assert again.id == first.id
        assert first.get(timeout=20) == 2
        told = app.tasks["enq.tell"].apply_async(queue=stage.queue, idempotency_key=KEY)
        assert told.get(timeout=20) == {"id": told.id, "correlation_id": told.id, "idempotency_key": f"enq.tell/{KEY}"}
    assert stage.trace(first.id) == ["added", "delayed", "deduplicated", "delayed", "waiting", "active", "completed"] or (
        stage.trace(first.id) == ["added", "delayed", "delayed", "deduplicated", "waiting", "active", "completed"]
    )


def test_what_is_kept_for_later_runs_once_after_the_retries_of_the_first(stage: Stage) -> None:
    """E4: sent while the first ran and while it waited for its retry; the last one runs, once, when that has failed for good."""
    with current(stage.app):
        task = stage.app.tasks["crash.flaky"]
        options: dict[str, Any] = {"queue": stage.queue, "idempotency_key": KEY, "dedup": "keep_last"}
        first = task.apply_async(kwargs={"failures": 9}, attempts=2, backoff=fixed(400), **options)
        stage.worker("threads")
        stage.await_state(first.id, State.DELAYED)
        for failures in (1, 0):
            task.apply_async(kwargs={"failures": failures}, **options)
        assert stage.await_end(first.id).state == State.FAILED
        wait_until(lambda: len(stage.book("end")) == 1, says="what was kept has run")
        (ran,) = stage.book("end")
        assert stage.await_end(ran["id"]).state == State.COMPLETED
        assert (stage.counters(ran["id"]), ran["id"] != first.id) == ((1, 1, 0), True)
