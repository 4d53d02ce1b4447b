"""Messages are packed without a loss: what a worker reads is what kombu would have written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st

from queue_kit.rules.packing import MARK, TAIL, joined, pack, unpack, unpacked

app = Celery("packing", set_as_current=False)

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
nested = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
options = st.fixed_dictionaries(
    {},
    optional={
        "retries": st.integers(0, 3),
        "root_id": st.sampled_from(["job", "root"]),
        "parent_id": st.sampled_from([None, "parent"]),
        "group_id": st.sampled_from([None, "group"]),
        "ignore_result": st.sampled_from([True, False, 0, None]),
        "argsrepr": st.sampled_from(["()", "<hidden>", ""]),
        "kwargsrepr": st.sampled_from(["{}", "<hidden>", ""]),
        "eta": st.just("2026-01-02T00:00:00+00:00"),
        "shadow": st.just("other"),
        "time_limit": st.sampled_from([0, 5]),
        "stamped_headers": st.sampled_from([None, []]),
        "callbacks": st.just([{"task": "next"}]),
        "reply_to": st.just("someone"),
    },
)


def message(args: Any, kwargs: Any, **said: Any) -> dict[str, Any]:
    """A message as Celery and kombu make it, not yet serialized."""
    headers, properties, body, _ = app.amqp.as_task_v2("job", "mail", args, kwargs, origin="gen1@host", **said)
    return {
        "body": json.dumps(body), "content-encoding": "utf-8", "content-type": "application/json", "headers": headers,
        "properties": {**properties, "body_encoding": "utf-8", "priority": 0,
                       "delivery_info": {"exchange": "", "routing_key": "q"}},
    }  # fmt: skip


def packed(whole: dict[str, Any], arguments: Any = None) -> str:
    text = pack(whole, "q", arguments, json.dumps)
    assert text is not None
    return text


@given(st.lists(nested).map(tuple) | st.lists(nested), st.dictionaries(st.text(), nested), options)
def test_what_is_packed_is_unpacked_to_the_letter(args: Any, kwargs: Any, said: dict[str, Any]) -> None:
    whole = message(args, kwargs, **said)
    expected = json.loads(json.dumps(whole))
    text = packed(whole, (args, kwargs))
    assert unpack(text, "job", "mail", "q") == expected
    assert repr(unpack(text, "job", "mail", "q")["headers"]["ignore_result"]) == repr(expected["headers"]["ignore_result"])
    assert json.loads(unpacked(text, "job", "mail", "q")) == expected


@pytest.mark.parametrize("header", ["tenant", "queue_kit", "stamp"])
def test_headers_of_ones_own_travel(header: str) -> None:
    whole = message((), {})
    whole["headers"][header] = {"of": [1, None]}
    assert unpack(packed(whole), "job", "mail", "q") == whole


def test_an_ordinary_message_takes_little_more_than_its_payload() -> None:
    whole = message((), {"filler": "x" * 100})
    assert len(json.dumps(whole)) > 900
    assert len(packed(whole, ((), {"filler": "x" * 100}))) < 180


@pytest.mark.parametrize("lacks", ["retries", "argsrepr", "stamps", "id", "task"])
def test_a_message_that_lacks_something_is_not_packed(lacks: str) -> None:
    """To make it again would add what it did not say."""
    whole = message((), {})
    del whole["headers"][lacks]
    assert pack(whole, "q", None, json.dumps) is None


@pytest.mark.parametrize(
    "body", ["[[], {}, {}]", "", "no JSON", "gA==", "[[], {}" + TAIL + " ", TAIL, "a\nb"], ids=range(7)
)
def test_any_body_arrives_whole(body: str) -> None:
    whole = {**message((), {}), "body": body}
    whole["headers"]["argsrepr"] = "shown"
    assert unpack(packed(whole), "job", "mail", "q") == whole


def test_what_was_sent_under_another_id_is_made_for_the_job_that_has_it_now() -> None:
    made = unpack(packed(message((), {})), "first", "mail", "q")
    assert (made["headers"]["id"], made["headers"]["root_id"], made["properties"]["correlation_id"]) == ("first",) * 3


def test_kombus_own_messages_are_read_as_they_are() -> None:
    """Written by an earlier version, or by hand."""
    whole = message((), {"a": 1})
    assert unpack(json.dumps(whole), "job", "mail", "q") == whole
    assert unpacked("no message", "job", "mail", "q") == "no message"


@pytest.mark.parametrize("text", [MARK, MARK + "{}", MARK + "[]\n", MARK + "[{},{},{}]\n[[", MARK + "[1,2,3]\n[]"])
def test_a_damaged_message_stays_as_it_is_for_people(text: str) -> None:
    assert unpacked(text, "job", "mail", "q") == text
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):
        unpack(text, "job", "mail", "q")


def test_a_record_has_its_message_in_parts_or_whole() -> None:
    assert joined({"2": "b", "1": "a", "10": "!", "state": "waiting"}) == "ab"
    assert joined({"message": "whole"}) == "whole"
    assert joined({}) == ""
