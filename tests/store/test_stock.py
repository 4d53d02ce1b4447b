"""The two moves between stock Celery's messages and jobs: what they take, keep and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from queue_kit.store import AT_ONCE, When
from queue_kit.store.moves import Unique
from queue_kit.store.stock import Source, StockKeys, StockMessages, adopt, hand_over
from tests.store.desk import LATER, Desk

FAR = When(None, 4_000_000_000_000)


@pytest.fixture
def desk(client: redis.Redis, queue_name: str) -> Iterator[Desk]:
    yield Desk(client, queue_name)
    client.delete(queue_name)


def lay(desk: Desk, *contents: str) -> None:
    """Stock Celery puts on the left and takes from the right."""
    for content in contents:
        desk.client.lpush(desk.queue, content)


def take(desk: Desk, content: str, job_id: str = "job", *, when: When = AT_ONCE, **options: Any) -> str:
    source = options.pop("source", Source(content, desk.queue))
    call = adopt(
        "qwk", source, job_id, desk.message(**options), when, priority=0, expires_at_ms=None, correlation_id=""
    )  # fmt: skip
    return desk.run(call)


def give(desk: Desk, job_id: str = "job", message: str = "body", content: str = "back") -> str:
    return desk.run(hand_over("qwk", job_id, message, desk.queue, content))


@pytest.mark.parametrize(("when", "state"), [(AT_ONCE, "waiting"), (FAR, "delayed")])
def test_a_message_becomes_a_job_and_is_gone_from_its_list(desk: Desk, when: When, state: str) -> None:
    lay(desk, "first", "second")
    assert take(desk, "first", when=when) == state
    assert desk.client.lrange(desk.queue, 0, -1) == ["second"]
    assert desk.trace("job") == f"added {state}"


def test_a_message_that_somebody_else_has_taken_makes_no_job(desk: Desk) -> None:
    lay(desk, "other")
    assert take(desk, "first") == "gone"
    assert desk.client.exists(desk.keys.job("job")) == 0
    assert desk.client.llen(desk.queue) == 1


def test_of_two_equal_messages_one_is_taken_and_the_second_is_a_duplicate(desk: Desk) -> None:
    lay(desk, "same", "same")
    assert [take(desk, "same"), take(desk, "same"), take(desk, "same")] == ["waiting", "duplicated", "gone"]
    assert desk.trace("job") == "added waiting duplicated"


def test_one_id_in_two_queues_is_two_jobs(desk: Desk) -> None:
    desk.add(queue=f"{desk.queue}-other")
    lay(desk, "copy")
    assert take(desk, "copy") == "waiting"
    assert desk.client.hget(desk.keys.job(f"job@{desk.queue}"), "state") == "waiting"


def test_what_a_stock_worker_holds_is_taken_from_hash_and_index_at_once(desk: Desk) -> None:
    desk.client.hset("unacked", mapping={"tag": "held", "other": "kept"})
    desk.client.zadd("unacked_index", {"tag": 1, "other": 2})
    source = Source("held", "unacked", "tag", "unacked_index")
    assert take(desk, "held", source=source) == "waiting"
    assert (desk.client.hkeys("unacked"), desk.client.zrange("unacked_index", 0, -1)) == (["other"], ["other"])
    assert take(desk, "held", "job2", source=source) == "gone"
    desk.client.delete("unacked", "unacked_index")


def test_the_last_step_of_a_canvas_that_was_replaced_continues_its_job(desk: Desk) -> None:
    desk.run(desk.moves.replace("job", desk.running()))
    lay(desk, "last step")
    assert take(desk, "last step", nesting=1) == "waiting"
    assert desk.client.hget(desk.keys.job("job"), "attempts_started") == "1"


@pytest.mark.parametrize("when", [AT_ONCE, LATER])
def test_a_job_becomes_a_message_and_nothing_of_it_stays(desk: Desk, when: When) -> None:
    key = Unique(desk.keys.dedup(desk.queue, "work", "k"), "until_finished")
    desk.run(desk.moves.add("job", desk.message(), when=when, unique=key))
    assert give(desk) == "ok"
    assert desk.client.lrange(desk.queue, 0, -1) == ["back"]
    assert [key for key in desk.client.keys("qwk:*") if ":job:" in key or ":dedup:" in key] == []
    assert desk.trace("job").split()[2] == "removed"


def test_a_job_that_runs_is_held_or_has_changed_stays(desk: Desk) -> None:
    assert give(desk) == "gone"
    desk.add()
    assert give(desk, message="another") == "changed"
    desk.reserve()
    assert give(desk) == "held"
    desk.add("second")
    token = desk.begin("second")
    assert give(desk, "second") == "active"
    desk.run(desk.moves.replace("second", token))
    assert give(desk, "second") == "held"
    assert desk.client.exists(desk.queue) == 0


def test_both_go_on_when_memory_is_full(own_redis: Any, queue_name: str) -> None:
    """H6."""
    desk = Desk(own_redis(policy="noeviction").client(), queue_name)
    lay(desk, "first")
    desk.client.config_set("maxmemory", 1)
    assert take(desk, "first") == "waiting"
    assert give(desk) == "ok"
    desk.client.delete(desk.queue)


def test_the_lists_are_those_of_the_apps_own_options(client: redis.Redis) -> None:
    keys = StockKeys.of({"global_keyprefix": "shop:", "sep": ":", "priority_steps": [5, 0], "visibility_timeout": 9, "x": 1})
    assert keys.lists("mail") == ["shop:mail", "shop:mail:5"]
    assert [keys.list_for("mail", priority) for priority in (0, 4, 5, 9)] == ["shop:mail"] * 2 + ["shop:mail:5"] * 2
    assert (keys.unacked, keys.unacked_index, keys.visibility_timeout) == ("shop:unacked", "shop:unacked_index", 9)
    client.set("shop:mail", "no list")
    assert StockMessages(client, keys).page("shop:mail", 0) == []
    assert StockMessages(client, keys).count("mail") == 0
    client.delete("shop:mail")


def test_a_page_begins_behind_what_is_left_where_it_is(client: redis.Redis) -> None:
    for number in range(600):
        client.lpush("mail", json.dumps(number))
    messages = StockMessages(client, StockKeys())
    assert messages.page("mail", 0) == [str(number) for number in range(500)]
    assert messages.page("mail", 590) == [str(number) for number in range(590, 600)]
    assert messages.page("mail", 600) == []
    client.delete("mail")
