"""A channel whose socket is closed under it, by whoever finds it broken; what was written to it must not be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queue_kit.states import State
from queue_kit.store import Ledger
from queue_kit.transport.channel import settle_all
from queue_kit.transport.held import Held, HeldJob
from tests.support.waiting import wait_until
from tests.worker.stage import Stage


@pytest.fixture
def channel(stage: Stage) -> Iterator[Any]:
    """A channel that consumes the stage's queue into a registry of its own, as a worker's does, without the worker."""
    held = stage.app.queue_kit.held = Held("w", max_stalled=1, max_suspects=1)
    held.slots = lambda: 2
    stage.app.amqp.queues.select_add(stage.queue)
    with stage.app.connection_for_read() as connection:
        consumer = stage.app.amqp.TaskConsumer(connection.default_channel, on_message=lambda message: None)
        consumer.qos(prefetch_count=2)
        consumer.consume()
        yield connection.default_channel


def ask(channel: Any) -> None:
    """Let the channel send what it has to, as the worker's loop does."""
    channel.connection.cycle._register_BRPOP(channel)


def claimed(channel: Any) -> HeldJob:
    """Let the channel claim, and return the one job that it has then."""
    ask(channel)
    channel._brpop_read()
    (job,) = channel.held.jobs()
    return job  # type: ignore[no-any-return]


def test_a_settle_and_a_claim_outlive_a_socket_that_another_closes(stage: Stage, channel: Any) -> None:
    """Given a settle and a claim that Redis has made; the socket is closed before their answers are read, by a health check
    or a failed write; then the settle is sent again, the claim's job goes back uncounted, and no lease is kept for either."""
    first = stage.send("quick")
    job = claimed(channel)
    second = stage.send("quick")
    held, moves = channel.held, channel.kit.moves
    held.settle(job, moves.complete(job.claimed.id, job.claimed.token), lambda answer: held.drop(job))
    ask(channel)
    wait_until(lambda: stage.job(second).state == State.ACTIVE, says="the claim is made")
    channel.client.connection.disconnect()
    settle_all(held, Ledger(stage.client))
    assert (stage.job(first).state, stage.job(second).state) == (State.COMPLETED, State.WAITING)
    assert stage.trace(second) == ["added", "waiting", "active", "waiting"]
    assert held.jobs() == []
    assert not held.has_pending


def test_a_channel_that_is_closed_gives_back_what_its_claim_brings(stage: Stage, channel: Any) -> None:
    """Given a claim under way; the channel is closed; then what it brought is given back, since nobody would renew it."""
    job_id = stage.send("quick")
    ask(channel)
    channel.close()
    settle_all(channel.held, Ledger(stage.client))
    assert (stage.job(job_id).state, stage.counters(job_id)) == (State.WAITING, (0, 1, 0))
