"""Sends jobs within a bounded time, on connections of its own; kombu's publishing path can wait without end for a frozen
server, and for one of ten pooled connections that others hang in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, cast

from redis import Redis
from redis.exceptions import RedisError

from queue_kit.errors import ConfigurationError, QueueUnavailable
from queue_kit.store import Call
from queue_kit.store.durability import INFO, Durability
from queue_kit.store.moves import Added
from queue_kit.transport import envelope, points
from queue_kit.transport.envelope import Posting
from queue_kit.transport.kit import Kit
from queue_kit.transport.lines import Line, Lines, Unreachable
from queue_kit.transport.parcels import Parcel, parcels_of
from queue_kit.transport.trip import Trip, unavailable

#: Jobs in one trip: enough that the trip itself costs nothing, few enough that Redis serves others in between.
CHUNK: Final = 1000
#: Kept back from a wait for disk or replica, so that its answer arrives in time.
_MARGIN_MS: Final = 100


class Sender:
    """One for each app; any thread may use it, and a forked child opens connections of its own.

    ``connection`` makes a connection object of the app's broker: it knows the URLs, TLS and Sentinel.
    """

    def __init__(self, kit: Kit, connection: Callable[[], Any]) -> None:
        self._kit, self._connection = kit, connection
        self._budget_s = kit.settings.enqueue_timeout_ms / 1000
        self._durability = Durability(kit.settings.enqueue_wait_disk, kit.settings.enqueue_wait_replicas)
        self._pid = 0
        self._lines: Lines | None = None
        self._client: Redis | None = None

    def send(self, posting: Posting) -> Added | None:
        """Send one job, or move it on if it runs in this process (``None`` then).

        :raises QueueUnavailable: within the setting ``ENQUEUE_TIMEOUT_MS``; says whether it may have been sent.
        """
        run = self._kit.sending_run(posting.id)
        if run is None:
            moves = self._kit.moves
            trip = self._travel([posting.id], lambda _, again: posting.add(moves, again=again), confirmed=True)
            added = _or_raise(trip.result(0))
            envelope.log_duplicate(posting, added)
            return added
        run.unsent = (posting.message, posting.when)
        points.reached("move sending")
        run.moved_to = self.run(posting.move(self._kit.moves, run), posting.id)
        run.lost = run.moved_to in ("lost", "gone")
        run.unsent, run.moved = None, not run.lost
        points.reached("move answered")
        return None

    def send_all(self, postings: Sequence[Posting]) -> list[Added | QueueUnavailable]:
        """Send many jobs, a thousand a trip; an answer for each, in order, also when the connection breaks midway.

        Each trip has the time of one send. After one that ended in trouble no further one is tried.
        """
        answers: list[Added | QueueUnavailable] = []
        trouble: Exception | None = None
        for start in range(0, len(postings), CHUNK):
            chunk = postings[start : start + CHUNK]
            if trouble is not None:
                answers += [unavailable(posting.id, "no", trouble) for posting in chunk]
                continue
            some, trouble = self._send_chunk(chunk)
            answers += some
        for posting, answer in zip(postings, answers, strict=True):
            envelope.log_duplicate(posting, answer)
        return answers

    def _send_chunk(self, chunk: Sequence[Posting]) -> tuple[list[Added | QueueUnavailable], Exception | None]:
        """Send as much as one trip takes; what a parcel leaves goes alone, in a second one."""
        parcels = parcels_of(chunk)
        ids, moves = [parcel.postings[0].id for parcel in parcels], self._kit.moves
        trip = self._travel(ids, lambda index, again: parcels[index].call(moves, again), confirmed=True)
        answers = [answer for index, parcel in enumerate(parcels) for answer in parcel.answers(trip, index)]
        left = [index for index, answer in enumerate(answers) if answer is None]
        if left:
            known = {id(posting) for parcel in parcels if parcel.again for posting in parcel.postings}
            alone = [Parcel([chunk[index]], id(chunk[index]) in known) for index in left]
            trip = self._travel(
                [chunk[index].id for index in left], lambda index, again: alone[index].call(moves, again), confirmed=True
            )
            for place, index in enumerate(left):
                answers[index] = trip.result(place)
        return cast(list[Added | QueueUnavailable], answers), trip.trouble

    def run(self, call: Call[Any], job_id: str = "") -> Any:
        """Make one move of another kind, such as one that an operator asks for, and return its answer.

        :raises QueueUnavailable: within the setting ``ENQUEUE_TIMEOUT_MS``.
        """
        return _or_raise(self._travel([job_id], lambda *_: call).result(0))

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Make several such moves in one trip.

        :raises QueueUnavailable: for the first of them that Redis refused, or that nobody knows about.
        """
        return [_or_raise(answer) for answer in self._travel([""] * len(calls), lambda index, _: calls[index]).results()]

    @property
    def client(self) -> Redis:
        """A client for reading, whose every call is bounded: it has a share to reach each of the URLs, and one to be answered."""
        self._in_this_process()
        if self._client is None:
            broker = self._connection()
            self._client = broker.open_any(self._kit.settings.enqueue_timeout_ms // (broker.number_of_urls + 1))
        return self._client

    # -- one trip -----------------------------------------------------------------------------------------------------

    def _travel(self, ids: Sequence[str], call: Callable[[int, bool], Call[Any]], *, confirmed: bool = False) -> Trip:
        """Make moves; once more on a new connection if the old one turned out to be dead and there is time.

        Making a move again is safe: its script knows the id, or the token, that it has seen.
        """
        trip, lines, until = Trip(ids, call), self._in_this_process(), monotonic() + self._budget_s
        points.reached("send entering")
        for last in (False, True):
            try:
                with lines.borrowed(until) as line:
                    trip.make(line, until)
                    points.reached("send answered")
                    if trip.met_no_primary:
                        raise Unreachable("this Redis is no primary (any more)")
                    if confirmed and self._durability and trip.has_written:
                        self._confirm(trip, line, until)
                trip.trouble = None
                break
            except (Unreachable, RedisError, OSError) as error:
                trip.trouble = error
                lines.forget()
                if last or monotonic() >= until:
                    break
        return trip

    def _confirm(self, trip: Trip, line: Line, until: float) -> None:
        """Wait until what was written is where the settings want it."""
        left_ms = int((until - monotonic()) * 1000) - _MARGIN_MS
        answers: list[Any] = []
        try:
            line.ask(list(self._durability.commands(max(1, left_ms))), until, answers)
        except (RedisError, OSError):
            trip.forget()  # another connection would wait for its own writes only, so they are made again
            raise
        trip.unconfirmed = self._durability.missing(answers)

    # -- connections --------------------------------------------------------------------------------------------------

    def _in_this_process(self) -> Lines:
        """The connections of this very process: what a fork has copied stays its parent's."""
        pid = os.getpid()
        lines = self._lines
        if lines is None or self._pid != pid:
            self._client, self._pid = None, pid
            lines = self._lines = Lines(self._connect)
        return lines

    def _connect(self) -> Any:
        """Open a connection that is ready, to a server that keeps what is sent as the settings want it."""
        broker = self._connection()
        connection = broker.open_line(self._kit.settings.enqueue_timeout_ms // broker.number_of_urls)
        if self._durability.disk:
            answers: list[Any] = []
            Line(connection).ask([INFO], monotonic() + self._budget_s, answers)
            refusal = self._durability.refusal(answers[0])
            if refusal:
                raise ConfigurationError(refusal)
        return connection


def _or_raise(answer: Any) -> Any:
    if isinstance(answer, QueueUnavailable):
        raise answer
    return answer
