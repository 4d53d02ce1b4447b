"""Opens what people read of an app's jobs, on a connection of its own; without it each page would find its own way to Redis,
and a probe could hang as long as that does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, TypeVar, cast

from redis import Redis
from redis.exceptions import RedisError

from queue_kit.errors import QueueUnavailable
from queue_kit.store.census import Census

Answer = TypeVar("Answer")

#: How long a monitor or a probe waits, all in all.
LIMIT_S: Final = 1.0
#: Questions under way in one process. One that is left behind ends by the time limits of its own connection.
_UNDER_WAY: Final = threading.BoundedSemaphore(32)


def open_census(app: Any) -> Census:
    """The census of an app that has queue_kit: jobs by id, events and counts by queue. Connects when first asked.

    :raises AttributeError: the app has no queue_kit: call ``queue_kit.install(app)`` first.
    """
    kit = app.queue_kit
    return Census(app.connection_for_read().open_any(kit.settings.redis_timeout_ms), kit.keys)


def ask(app: Any, question: Callable[[Redis], Answer]) -> Answer:
    """Put a question to the app's Redis, on a new connection; of several URLs the first that answers.

    :raises QueueUnavailable: there was no answer within a second in all, name lookup and Sentinels included.
    """
    return within(LIMIT_S, lambda: _ask(app, question))


def within(limit_s: float, question: Callable[[], Answer]) -> Answer:
    """The answer of a function, which runs on a thread of its own and is left behind there when the time is over.

    :raises QueueUnavailable: it is.
    """
    until = monotonic() + limit_s
    if not _UNDER_WAY.acquire(timeout=limit_s):
        raise QueueUnavailable("too many questions to Redis wait for their answers", sent="no")
    asked = _Question(question)
    try:
        threading.Thread(target=asked.run, daemon=True, name="queue_kit question").start()
    except RuntimeError as error:  # no thread to be had
        _UNDER_WAY.release()
        raise QueueUnavailable(f"Redis could not be asked: {error}", sent="no") from error
    if not asked.done.wait(max(0.0, until - monotonic())):
        raise QueueUnavailable(f"no answer within {limit_s:g} s", sent="no")
    if asked.error is not None:
        raise asked.error
    return cast(Answer, asked.answer)


class _Question:
    """What a thread of its own asks, and what came of it."""

    def __init__(self, question: Callable[[], Any]) -> None:
        self._question = question
        self.done = threading.Event()
        self.answer: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.answer = self._question()
        except Exception as error:  # noqa: BLE001 - the caller's affair
            self.error = error
        finally:
            _UNDER_WAY.release()
            self.done.set()


def _ask(app: Any, question: Callable[[Redis], Answer]) -> Answer:
    broker = app.connection_for_read()
    limit_ms = min(app.queue_kit.settings.redis_timeout_ms, int(LIMIT_S * 1000) // broker.number_of_urls)
    try:
        with broker.open_any(limit_ms) as client:
            return question(client)
    except (RedisError, OSError) as error:
        raise QueueUnavailable(f"Redis does not answer: {type(error).__name__}", sent="no") from error
