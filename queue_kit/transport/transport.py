"""The transports that `install` puts in the place of kombu's own."""

from __future__ import annotations

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

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let the worker's event loop drive this connection, and prove to the lease keeper that it lives."""
        super().register_with_event_loop(connection, loop)
        held = self.client.kit.held
        if held is not None:
            held.wake = lambda: loop.call_soon(_nothing)
            loop.on_tick.add(held.beat)
            loop.call_repeatedly(min(1.0, self.client.kit.moves.renewal_ms / 1000), held.beat)

    def _reject_inbound_message(self, raw_message: dict[str, Any]) -> None:
        """A plain message nobody consumes any more goes back; jobs are given back before they get here."""
        super()._reject_inbound_message(raw_message)


def _nothing() -> None:
    """End a wait of the event loop."""


class Transport(JobTransport, stock.Transport):
    """For one Redis: ``redis://``, ``rediss://`` or a unix socket."""

    Channel = Channel


class SentinelTransport(JobTransport, stock.SentinelTransport):
    """For the primary under Sentinel."""

    Channel = SentinelChannel
