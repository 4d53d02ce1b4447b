"""The transports that `install` puts in the place of kombu's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu.transport import redis as stock

from queue_kit.transport.channel import Channel, SentinelChannel
from queue_kit.transport.poller import JobPoller

#: What the mixin is mixed into; kombu is untyped.
_Host: Any = object


class JobTransport(_Host):
    """Mixed into kombu's Redis transports."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = JobPoller()
        self._leave_loop: Callable[[], None] = lambda: None

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let the worker's event loop drive this connection, and prove to the lease keeper that it lives."""
        before = set(loop.on_tick)
        super().register_with_event_loop(connection, loop)
        ticks = loop.on_tick - before
        timers = [loop.call_repeatedly(1.0, self.cycle.watch_again)]
        held = self.client.kit.held
        if held is not None:
            held.wake = lambda: loop.call_soon(_nothing)
            loop.on_tick.add(held.beat)
            timers.append(loop.call_repeatedly(min(1.0, self.client.kit.moves.renewal_ms / 1000), held.beat))
        self._leave_loop = lambda: _leave(loop, ticks, timers)

    def close_connection(self, connection: Any) -> None:
        """Close; the loop, which outlives connections, would keep calling this one's."""
        self._leave_loop()
        super().close_connection(connection)


def _leave(loop: Any, ticks: set[Any], timers: list[Any]) -> None:
    loop.on_tick.difference_update(ticks)
    for timer in timers:
        timer.cancel()


def _nothing() -> None:
    """End a wait of the event loop."""


class Transport(JobTransport, stock.Transport):
    """For one Redis: ``redis://``, ``rediss://`` or a unix socket."""

    Channel = Channel


class SentinelTransport(JobTransport, stock.SentinelTransport):
    """For the primary under Sentinel."""

    Channel = SentinelChannel
