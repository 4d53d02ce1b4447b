"""Sends jobs within a bounded time, on connections of its own; kombu's publishing path can wait without end for a frozen
server, and for one of ten pooled connections that others hang in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from queue_kit.errors import QueueUnavailable
from queue_kit.store import Call, Ledger
from queue_kit.store.moves import Added
from queue_kit.transport import envelope, points
from queue_kit.transport.envelope import Posting
from queue_kit.transport.kit import Kit


class Sender:
    """One for each app; any thread may use it, and a forked child opens connections of its own.

    ``connection`` makes a fresh connection of the app's broker: it knows the URLs, TLS and Sentinel.
    """

    def __init__(self, kit: Kit, connection: Callable[[], Any]) -> None:
        self._kit = kit
        self._connection = connection
        self._broker: Any = None
        self._client: Redis | None = None
        self._local = threading.local()

    def send(self, posting: Posting) -> None:
        """Send one job, or move it on if it runs in this process.

        :raises QueueUnavailable: within the setting ``ENQUEUE_TIMEOUT_MS``; says whether it may have been sent.
        """
        collected = getattr(self._local, "collected", None)
        if collected is not None:
            collected.append(posting)
            return
        run = self._kit.running.get(posting.id)
        if run is None:
            self._note(posting, self._within_time(posting.id, posting.add(self._kit.moves)))
            return
        run.unsent = (posting.message, posting.when)
        points.reached("move sending")
        self._within_time(posting.id, posting.move(self._kit.moves, run))
        run.unsent, run.moved = None, True
        points.reached("move answered")

    def send_all(self, postings: Sequence[Posting]) -> list[Added | QueueUnavailable]:
        """Send many jobs in one round trip; an answer for each, in order, also when the connection breaks midway."""
        calls = [posting.add(self._kit.moves) for posting in postings]
        try:
            answers = Ledger(self.client).run_all(calls)
        except RedisError as error:
            return [_unavailable(error, posting.id) for posting in postings]
        return [
            _unavailable(answer, posting.id) if isinstance(answer, Exception) else answer
            for answer, posting in zip(answers, postings, strict=True)
        ]

    @contextmanager
    def collecting(self) -> Iterator[list[Posting]]:
        """Within this, what this thread sends is collected instead."""
        self._local.collected = []
        try:
            yield self._local.collected
        finally:
            self._local.collected = None

    def last_answer(self) -> tuple[Posting, Added] | None:
        """What became of this thread's last send; asked once."""
        answer = getattr(self._local, "answer", None)
        self._local.answer = None
        return answer

    @property
    def client(self) -> Redis:
        """The client, whose every call is bounded: half the time to connect, half to answer."""
        if self._client is None:
            self._broker = self._broker or self._connection()
            self._client = self._broker.open_client(self._kit.settings.enqueue_timeout_ms // 2)
        return self._client

    def _note(self, posting: Posting, added: Added) -> None:
        envelope.log_duplicate(posting, added)
        self._local.answer = (posting, added)

    def _within_time(self, job_id: str, call: Call[Any]) -> Any:
        """Run a move; once more on a new connection if the old one turned out to be dead and there is time.

        Sending a move again is safe: the script knows the id, or the token, that it has seen.
        """
        until = monotonic() + self._kit.settings.enqueue_timeout_ms / 2000
        try:
            return Ledger(self.client).run(call)
        except (RedisTimeoutError, ResponseError) as error:
            raise _unavailable(error, job_id) from error
        except RedisConnectionError as error:
            if monotonic() >= until:
                raise _unavailable(error, job_id) from error
        self._switch()
        try:
            return Ledger(self.client).run(call)
        except RedisError as error:
            raise _unavailable(error, job_id) from error

    def _switch(self) -> None:
        """Try the next of several broker URLs, if there are several."""
        if self._broker is not None and self._broker.has_alternatives:
            self._broker.maybe_switch_next()
            self._client = None


def _unavailable(error: Exception, job_id: str) -> QueueUnavailable:
    """What a caller is told: that Redis refused it outright, or that nobody knows."""
    refused = isinstance(error, ResponseError) or "connecting to" in str(error)
    sent = "no" if refused else "unknown"
    return QueueUnavailable(f"the queue is not available, job {job_id} sent: {sent} ({error})", job_id, sent)
