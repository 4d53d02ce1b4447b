"""Waits for work on the sockets of all channels; unlike kombu's, it never leaves an answer unread, since a job could be
in it, and it can be woken when a settle frees a slot.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import redis as stock
from kombu.utils.eventio import READ


class JobPoller(stock.MultiChannelPoller):
    """One per connection, shared by its channels."""

    def __init__(self) -> None:
        super().__init__()
        self._wake_fds: tuple[int, int] | None = None
        self.beat: Callable[[], None] = lambda: None
        self.longest_wait_s: float | None = None
        self._unwatched: dict[int, Any] = {}

    def on_poll_start(self) -> None:
        for channel in self._channels:
            if not channel._in_poll and channel.active_queues and channel.wants_to_send():
                self._register_BRPOP(channel)
            channel.settle_beside_wait()
            if channel.active_fanout_queues:
                self._register_LISTEN(channel)

    def _register(self, channel: Any, client: Any, kind: str) -> None:
        super()._register(channel, client, kind)
        self.watch_again()

    def watch_again(self) -> None:
        """Have the event loop watch every socket; it is asked to now and then too, so that one it has dropped is not lost."""
        self._unwatched = dict(self._fd_to_chan)

    @property
    def fds(self) -> dict[int, Any]:
        """The sockets that the event loop has still to watch. It asks at each turn, and registers what it gets by a call each."""
        unwatched, self._unwatched = self._unwatched, {}
        return unwatched

    def on_readable(self, fileno: int) -> None:
        known = self._fd_to_chan.get(fileno)
        if known is None:
            return
        channel, kind = known
        if kind == "BRPOP" and not channel._in_poll:
            channel.client.connection.disconnect()  # nothing was asked: the server has closed an idle connection
        else:
            channel.handlers[kind]()

    def get(self, callback: Callable[..., Any], timeout: float | None = None) -> None:
        """One wait without an event loop (gevent, plain consumers): until a message, a wake-up or ``timeout``.

        :raises queue.Empty: when nothing was delivered.
        :raises TimeoutError: the same, after a wake-up: the worker's loop has something else to do than to wait on.
        """
        self.beat()
        wake_fd = self._waker()
        if self.longest_wait_s is not None:
            timeout = min(timeout or self.longest_wait_s, self.longest_wait_s)
        self._in_protected_read = True
        try:
            self.maybe_refresh_binding_expiry()
            self.on_poll_start()
            delivered = woken = False
            for fileno, event in self.poller.poll(timeout) or ():
                if fileno == wake_fd:
                    woken = bool(os.read(wake_fd, 4096))
                else:
                    delivered = bool(self.handle_event(fileno, event)) or delivered
            if not delivered:
                self.maybe_check_brpop_health()
                self.maybe_restore_messages()
                raise TimeoutError if woken else Empty
        finally:
            self._in_protected_read = False
            while self.after_read:
                self.after_read.pop()()

    def handle_event(self, fileno: int, event: int) -> Any:
        known = self._fd_to_chan.get(fileno)
        if known is None:
            return None
        if event & READ:
            self.on_readable(fileno)
            return self
        known[0]._poll_error(known[1])
        return None

    def wake(self) -> None:
        """End the wait of :meth:`get`, from any thread."""
        if self._wake_fds is not None:
            with contextlib.suppress(BlockingIOError):  # it is full of wake-ups already
                os.write(self._wake_fds[1], b"w")

    def close(self) -> None:
        super().close()
        if self._wake_fds is not None:
            fds, self._wake_fds = self._wake_fds, None
            for fd in fds:
                os.close(fd)

    def _waker(self) -> int:
        if self._wake_fds is None:
            self._wake_fds = os.pipe()
            for fd in self._wake_fds:
                os.set_blocking(fd, False)
            self.poller.register(self._wake_fds[0], READ)
        return self._wake_fds[0]

    def _update_brpop_polling(self) -> None:
        """Do nothing: an answer is read whether or not there is room, since it never holds more than was asked for."""
