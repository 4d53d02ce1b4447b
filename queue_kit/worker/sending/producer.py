"""Stands where Celery expects a producer of kombu's, and is one only for what needs it; each send would else wait for one of ten
pooled connections, in which others may hang.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from kombu.exceptions import LimitExceeded

from queue_kit.errors import QueueUnavailable
from queue_kit.observe import transitions
from queue_kit.store.moves import Added
from queue_kit.transport.envelope import Posting
from queue_kit.transport.kit import Kit


class JobProducer:
    """For one send, or for those of one group. ``added`` is what became of the last job that was sent with it."""

    serializer: str | None = None  # Celery's eager mode asks; the app's own then

    def __init__(self, app: Any) -> None:
        self._app = app
        self._real: Any = None
        self.added: Added | None = None

    def take(self, posting: Posting, announce: Callable[[], None]) -> None:
        """Send a job and announce it.

        :raises QueueUnavailable: as :meth:`queue_kit.transport.sender.Sender.send`.
        """
        kit: Kit = self._app.queue_kit
        self.added = kit.sender.send(posting)
        transitions.sent(kit, posting, self.added)
        announce()

    @property
    def connection(self) -> _Connection:
        """What Celery asks for before each send, without a need to connect."""
        return _Connection(self)

    @property
    def real(self) -> Any:
        """A producer of kombu's, for events, reply queues, and queues behind an exchange.

        :raises QueueUnavailable: Redis does not answer; found out within the time of a send.
        """
        if self._real is None:
            kit: Kit = self._app.queue_kit
            kit.sender.run(kit.moves.check("", ""))
            try:
                self._real = self._app.producer_pool.acquire(block=True, timeout=kit.settings.enqueue_timeout_ms / 1000)
            except LimitExceeded as error:
                raise QueueUnavailable(f"all {error.args[0]} connections of broker_pool_limit are in use", sent="no") from error
        return self._real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def release(self) -> None:
        """Give back what was taken from the app's pool."""
        real, self._real = self._real, None
        if real is not None:
            real.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class _Connection:
    """The connection of a producer that may never need one."""

    def __init__(self, producer: JobProducer) -> None:
        self._producer = producer

    def _reraise_as_library_errors(self) -> AbstractContextManager[None]:
        return nullcontext()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer.real.connection, name)


class Collector(JobProducer):
    """Keeps jobs for one call of :meth:`Sender.send_all`, with their announcements."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self.postings: list[Posting] = []
        self._announcements: dict[str, Callable[[], None]] = {}

    def take(self, posting: Posting, announce: Callable[[], None]) -> None:
        """Keep a job. One without an announcement may be put into ``postings`` straight away."""
        self.postings.append(posting)
        self._announcements[posting.id] = announce

    def send(self) -> list[Added | QueueUnavailable]:
        """Send what was kept; announce what Redis has taken."""
        answers: list[Added | QueueUnavailable] = self._app.queue_kit.sender.send_all(self.postings)
        for posting, answer in zip(self.postings, answers, strict=True):
            if isinstance(answer, Added):
                transitions.sent(self._app.queue_kit, posting, answer)
                self.announce(posting.id)
        return answers

    def announce(self, job_id: str) -> None:
        """Tell Celery's signal, and its monitors if they are to know, that a job is sent."""
        if job_id in self._announcements:
            self._announcements[job_id]()


def producers_of(app: Any) -> Callable[..., Any]:
    """The app's ``producer_or_acquire``: a given producer, or one of ours."""

    def producer_or_acquire(producer: Any = None) -> AbstractContextManager[Any]:
        return nullcontext(producer) if producer is not None else JobProducer(app)

    return producer_or_acquire
