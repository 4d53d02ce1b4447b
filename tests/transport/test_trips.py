"""What is said of a move whose answer was lost: that it may have been made, whatever Redis says when it is made once more."""

from __future__ import annotations

from time import monotonic

import pytest
from redis import Connection
from redis.exceptions import RedisError

from queue_kit.errors import QueueUnavailable
from queue_kit.store.script import Call, script, text
from queue_kit.transport.lines import Line
from queue_kit.transport.trip import Trip
from tests.support.events import PREFIX
from tests.support.fixtures import OwnProxy, OwnRedis
from tests.support.ports import LOOPBACK
from tests.support.proxy import TcpProxy

WRITES = Call(script("schedule"), (PREFIX, "nightly", '{"timing": "every 1000"}'), text)


def make(trip: Trip, proxy: TcpProxy, lost: int = 0) -> None:
    """Make the moves of a trip on a new connection, on which the answer of this number gets lost."""
    connection = Connection(host=LOOPBACK, port=proxy.port, socket_timeout=2)
    connection.connect()
    if lost:
        proxy.lose_answer(lost)
    trip.make(Line(connection), monotonic() + 5)


def said(trip: Trip) -> str:
    answer = trip.result(0)
    assert isinstance(answer, QueueUnavailable)
    return answer.sent


def test_a_lost_answer_after_the_script_was_not_known_leaves_it_open(own_redis: OwnRedis, own_proxy: OwnProxy) -> None:
    """H2: given a Redis that does not know the script, as each primary after a failover. Lost: the answer to the script with its
    source. Then nobody says that nothing was sent."""
    server = own_redis()
    proxy, trip = own_proxy(server), Trip(["job"], lambda *_: WRITES)
    with pytest.raises((RedisError, OSError)):
        make(trip, proxy, lost=2)
    assert said(trip) == "unknown"
    with server.client() as client:
        assert client.hkeys(f"{PREFIX}:schedules") == ["nightly"]


def test_a_refusal_after_a_lost_answer_leaves_it_open(own_redis: OwnRedis, own_proxy: OwnProxy) -> None:
    """H2: given a move whose answer is lost, and a server that is a replica when it is made again."""
    server = own_redis()
    proxy, trip = own_proxy(server), Trip(["job"], lambda *_: WRITES)
    with server.client() as client:
        client.script_load(WRITES.script.source)
        with pytest.raises((RedisError, OSError)):
            make(trip, proxy, lost=1)
        client.execute_command("REPLICAOF", LOOPBACK, "1")
    make(trip, proxy)
    assert trip.met_no_primary
    assert said(trip) == "unknown"


def test_a_refusal_alone_says_that_nothing_was_sent(own_redis: OwnRedis, own_proxy: OwnProxy) -> None:
    server = own_redis()
    with server.client() as client:
        client.execute_command("REPLICAOF", LOOPBACK, "1")
    proxy, trip = own_proxy(server), Trip(["job"], lambda *_: WRITES)
    for _ in range(2):
        make(trip, proxy)
    assert said(trip) == "no"
