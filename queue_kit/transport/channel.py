"""Puts jobs and claims them; without it a message would be popped by one command and made safe by another.

On its socket a channel has at most one request under way, which may be several commands: settles that are due, then a
claim; or, when there is nothing to claim, a wait for a wake-up. The answer is always read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty
from time import monotonic
from typing import Any, Final, cast

from kombu.transport import redis as stock
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from queue_kit.errors import UnsupportedOperation
from queue_kit.store import Call, Claim, Claimed, Ledger
from queue_kit.store.moves import Aside
from queue_kit.transport import envelope, points
from queue_kit.transport.held import Held, HeldJob, Pending
from queue_kit.transport.message import JobMessage
from queue_kit.transport.qos import QoS
from queue_kit.transport.queues import JobQueues

logger = logging.getLogger(__name__)

#: Seconds that a wait for work lasts at most, so that a lost wake-up heals.
_LONGEST_WAIT_S: Final = 1.0
#: Seconds to look at plain queues between claims, where one channel reads both kinds.
_GLANCE_S: Final = 0.01


class JobChannel(JobQueues):
    """Mixed into kombu's Redis channels: jobs go through scripts, everything else keeps the stock path."""

    QoS = QoS
    Message = JobMessage

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        self.kit = connection.client.kit  # kept: a closed channel has no connection any more
        self._asked: list[Call[Any]] = []
        self._settling: list[Pending] = []
        self._claim_base, self._claim_queues = "", tuple[str, ...]()
        self._wait_s: float | None = None
        self._reads_plain, self._plain_turn = False, False
        self._commander: Any = None
        super().__init__(connection, **kwargs)

    # -- putting ------------------------------------------------------------------------------------------------------

    def _inplace_augment_message(self, message: dict[str, Any], exchange: str, routing_key: str) -> None:
        if not isinstance(message["body"], str) or not _names_task(message):
            return super()._inplace_augment_message(message, exchange, routing_key)
        body, message["body"] = message["body"], ""
        super()._inplace_augment_message(message, exchange, routing_key)
        message["body"], message["properties"]["body_encoding"] = body, "utf-8"

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> None:
        if exchange and _names_task(message) and self.typeof(exchange).type != "fanout":
            self._inplace_augment_message(message, exchange, routing_key)
            for queue, copy in self._copies(message, self._bound(exchange, routing_key)):
                self._put(queue, copy)
        else:
            super().basic_publish(message, exchange, routing_key, **kwargs)

    def _bound(self, exchange: str, routing_key: str) -> list[str]:
        """The queues that an exchange would put a message into, in an order that is the same for a second send."""
        queues = sorted(queue for queue in self._lookup(exchange, routing_key) if queue)
        if not queues:
            raise UnsupportedOperation(f"exchange {exchange}: no queue is bound by {routing_key!r}, the job would be lost")
        return queues

    def _copies(self, message: dict[str, Any], queues: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """An id is one job: the first queue's copy has it, the others' have ids that follow from it. A job that runs moves to
        one queue, its own if that is among them."""
        job_id = message["headers"]["id"]
        run = self.kit.sending_run(job_id)
        if run is not None:
            own = run.facts.get("queue")
            queues = [own if own in queues else queues[0]]
        for place, queue in enumerate(queues):
            headers = {**message["headers"], "id": f"{job_id}@{queue}" if place else job_id}
            yield queue, {**message, "headers": headers, "properties": dict(message["properties"])}

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        if not _names_task(message) and not self.kit.is_task_queue(queue):
            return super()._put(queue, message, **kwargs)
        posting = envelope.post(message, queue, self._get_message_priority(message, reverse=False))
        self._put_job(posting)

    def _put_job(self, posting: envelope.Posting) -> None:
        run = self.kit.sending_run(posting.id)
        if run is None:
            added = self.run(posting.add(self.kit.moves))
            envelope.log_duplicate(posting, added)
            return
        run.unsent = (posting.message, posting.when)
        points.reached("move sending")
        run.moved_to = self.run(posting.move(self.kit.moves, run))
        run.lost = run.moved_to in ("lost", "gone")
        run.unsent, run.moved = None, not run.lost
        points.reached("move answered")

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """One client for all commands: kombu makes a new one for each, which takes longer than most commands do."""
        if self._commander is None or self._commander.connection_pool is not self.pool:
            self._commander = self._create_client()
        yield client or self._commander

    # -- settling -----------------------------------------------------------------------------------------------------

    @property
    def held(self) -> Held:
        held = self.kit.held
        if held is None:
            raise UnsupportedOperation("jobs are consumed by `celery worker`; this process has no lease keeper")
        return held

    def complete(self, job: HeldJob) -> None:
        """Settle a job that something else than our own request acknowledged."""
        self.held.settle(job, self.kit.moves.complete(job.claimed.id, job.claimed.token), envelope.ignore_answer)

    def reject(self, job: HeldJob, requeue: bool) -> None:
        """Settle a job that something else than our own request rejected."""
        moves, claimed = self.kit.moves, job.claimed
        call: Call[Any] = moves.release(claimed.id, claimed.token, side="tail")
        if not requeue:
            call = moves.fail(claimed.id, claimed.token, "non_retryable", "rejected", error_class="Reject", tell=True)
        self.held.settle(job, call, envelope.ignore_answer, "rejected")

    def settle_beside_wait(self) -> None:
        """Send settles on another connection while this channel's socket waits for work."""
        held = self.kit.held
        if held is None or not self._in_poll or self._asked or not held.has_pending:
            return
        settle_all(held, self.ledger)

    # -- claiming -----------------------------------------------------------------------------------------------------

    def wants_to_send(self) -> bool:
        """Whether the socket should be in use: a wait or a claim if there is room, and settles that are due."""
        if self.qos.can_consume():
            return True
        held = self.kit.held
        return held is not None and held.has_pending and not self._in_poll and self.has_job_queues

    def _brpop_start(self, timeout: float | None = None) -> None:
        plain, jobs = self._split_queues()
        self._reads_plain = bool(plain)
        connection = self.client.connection
        self._in_poll, self._brpop_sent_at = connection, monotonic()
        if jobs and not self._plain_turn and (self._wait_s is None or self.held.has_pending):
            self._send_claim(jobs)
            self._plain_turn = self._reads_plain and bool(self._claim_base)
        else:
            self._send_wait(jobs, plain, timeout or self.brpop_timeout)
            self._plain_turn = False

    def _split_queues(self) -> tuple[list[str], list[str]]:
        queues, of_jobs = self._queue_cycle.consume(len(self.active_queues)), self.job_queues
        return [queue for queue in queues if queue not in of_jobs], [queue for queue in queues if queue in of_jobs]

    def _send_claim(self, queues: Sequence[str]) -> None:
        held, moves = self.held, self.kit.moves
        self._settling = held.take_pending()
        self._asked = [pending.call for pending in self._settling]
        room = held.room(self.qos.prefetch_count)
        self._claim_base, self._claim_queues = "", tuple(queues)
        if room.limit and self.qos.can_consume():
            self._claim_base = held.next_claim()
            self._asked.append(moves.claim(held.worker, self._claim_base, room, held.traits, queues))
            self._queue_cycle.rotate(queues[0])
        self._reached("sending")
        self._send([call.command for call in self._asked])
        self._reached("sent")

    def _send_wait(self, jobs: Sequence[str], plain: Sequence[str], longest_s: float) -> None:
        self._asked = []
        wait_s = min(self._wait_s or _LONGEST_WAIT_S, longest_s, _LONGEST_WAIT_S)
        marks = [self.kit.keys.queue(queue, "wake") for queue in jobs]
        # Plain queues first: while jobs wait there is nearly always a mark, and a claim follows each message.
        self._send([("BRPOP", *self._lists_of(plain), *marks, max(0.001, wait_s))])
        self._wait_s = None

    def _send(self, commands: Sequence[tuple[Any, ...]]) -> None:
        connection = self.client.connection
        connection.send_packed_command(connection.pack_commands(commands))

    def _reached(self, what: str) -> None:
        if self._settling:
            points.reached(f"settle {what}")
        if self._claim_base:
            points.reached(f"claim {what}")

    def _brpop_read(self, **options: Any) -> bool:
        try:
            replies = [self._read_reply() for _ in range(len(self._asked) or 1)]
        except Exception:
            self._forget_request()
            self.client.connection.disconnect()
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        if not self._asked:
            return self._read_wait(replies[0])
        return self._read_claim(self._resend_unknown(replies))

    def _read_reply(self) -> Any:
        try:
            return self.client.connection.read_response()
        except ResponseError as error:
            return error

    def _on_connection_disconnect(self, connection: Any) -> None:
        """The socket is closed, by whoever found it broken: it may have been a sender, a health check, or Redis."""
        if self._in_poll is connection:
            self._forget_request()
        super()._on_connection_disconnect(connection)

    def _forget_request(self) -> None:
        """The socket broke with a request under way: settles go again, and what the claim may have taken is recalled."""
        asked, settling, self._asked, self._settling = self._asked, self._settling, [], []
        if asked:
            self.held.put_back(settling)
            self._recall()

    def _recall(self) -> None:
        """Nobody will read what the last claim brought: its jobs go back, also if it reaches Redis only later."""
        base, self._claim_base = self._claim_base, ""
        if base:
            self.held.post(self.kit.moves.recall(base, self._claim_queues), partial(_log_recalled, self.held))

    def _resend_unknown(self, replies: list[Any]) -> list[Any]:
        """A server that lost its scripts gets the source once; it keeps it."""
        return [
            self._reply_to_source(call) if isinstance(reply, NoScriptError) else reply
            for call, reply in zip(self._asked, replies, strict=True)
        ]

    def _reply_to_source(self, call: Call[Any]) -> Any:
        try:
            return self.ledger.client.execute_command(*call.full_command)
        except RedisError as error:
            return error

    def _read_claim(self, replies: list[Any]) -> bool:
        asked, settling = self._asked, self._settling
        self._reached("answered")
        self._asked, self._settling = [], []
        answers = [r if isinstance(r, Exception) else call.read(r) for call, r in zip(asked, replies, strict=True)]
        self.held.answer(settling, answers[: len(settling)])
        if not self._claim_base:
            raise Empty()
        if isinstance(answers[-1], Claim) and answers[-1].asides:  # they have happened, whatever becomes of the rest
            self.held.on_asides(answers[-1].asides)
        claim = self._usable(answers[-1])
        self._claim_base = ""
        self._wait_s = self._after(claim)
        if not claim.jobs:
            raise Empty()
        self._deliver_all([self.take(claimed) for claimed in claim.jobs])
        return True

    def _deliver_all(self, taken: list[tuple[HeldJob, Any]]) -> None:
        """All are held before the first is delivered: where jobs run in the main loop, that may take as long as it does."""
        left = taken[::-1]
        try:
            while left and not self._leaves:
                self._deliver(*left.pop())
        finally:
            for job, _ in left:  # what stopped the delivery is not theirs; from the last to the first they keep their order
                self._give_back(job)

    def _usable(self, answer: Any) -> Claim:
        """The answer to a claim, unless it is none, or so old that its leases may be over before anybody renews them."""
        if isinstance(answer, ReadOnlyError):
            raise RedisConnectionError("this Redis is no primary any more") from answer
        if isinstance(answer, ResponseError):
            logger.error("a claim was refused by Redis: %s", answer)
            return Claim([], None)
        if isinstance(answer, Exception):
            logger.warning("a claim got no answer: %s", answer)
        elif answer.jobs and monotonic() - self._brpop_sent_at > self.kit.moves.lease_ms / 2000:
            logger.warning("a claim was answered too late: its jobs go back")
        else:
            return cast(Claim, answer)
        self._recall()
        return Claim([], None)

    def _after(self, claim: Claim) -> float | None:
        """Seconds to wait before the next claim; ``None``: claim again at once."""
        if claim.jobs:
            return _GLANCE_S if self._reads_plain else None
        return _LONGEST_WAIT_S if claim.wait_ms is None else max(0.001, claim.wait_ms / 1000)

    def _read_wait(self, reply: Any) -> bool:
        if isinstance(reply, Exception):  # it has become a replica, or a user has lost a right: connecting again tells
            raise RedisConnectionError(str(reply)) from reply
        if not reply:
            raise Empty()
        key, item = (bytes_to_str(part) for part in reply)
        if self.kit.keys.is_wake_up(key):
            raise Empty()
        queue = key[len(self.global_keyprefix) :].rsplit(self.sep, 1)[0]
        self.connection._deliver(loads(item), queue)
        return True

    def take(self, claimed: Claimed) -> tuple[HeldJob, Any]:
        """Hold a claimed job, and read its message; what cannot even be read fails as malformed."""
        try:
            message = envelope.open_message(claimed)
        except Exception as error:  # noqa: BLE001 - whatever it is, this job cannot be read and the worker goes on
            job = self.held.take(claimed, "")
            self._fail_malformed(job, error)
            return job, None
        headers = message.get("headers") or {}
        job = self.held.take(claimed, str(headers.get("task", "")))
        job.correlation_id = envelope.correlation_of(headers)
        return job, message

    def _deliver(self, job: HeldJob, message: Any) -> None:
        """Hand a job to the consumer of its queue, unless it has ended or nobody consumes that queue any more."""
        points.reached("job taken")
        if job.claimed.queue not in self.connection._callbacks:
            self._give_back(job)
        elif not job.ended:
            try:
                self.connection._deliver(message, job.claimed.queue)
            except self.connection_errors:
                raise
            except Exception as error:  # noqa: BLE001 - kombu cannot make a message of it
                self._fail_malformed(job, error)

    def _fail_malformed(self, job: HeldJob, error: Exception) -> None:
        call = self.kit.moves.fail(
            job.claimed.id, job.claimed.token, "malformed", f"the message cannot be read: {error}",
            error_class=type(error).__name__, tell=True,
        )  # fmt: skip
        self.held.settle(job, call, envelope.ignore_answer, "malformed")

    @property
    def _leaves(self) -> bool:
        return bool(self._closing) or self.held.draining

    def end_claim(self) -> None:
        """Read the answer to a claim that is under way, if one is."""
        if self._in_poll and self._asked:
            with suppress(Empty, *self.connection_errors):
                self._brpop_read()

    def _give_back(self, job: HeldJob) -> None:
        if job.ended:
            return
        call = self.kit.moves.release(job.claimed.id, job.claimed.token)
        self.held.settle(job, call, envelope.ignore_answer)

    # -- the rest of kombu's interface --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close; a claim still under way is read and given back, since nobody would renew what it brought."""
        self._closing = True
        if self._in_poll:
            try:
                self._brpop_read()
            except (Empty, *self.connection_errors):
                pass
        super().close()


def _names_task(message: dict[str, Any]) -> bool:
    return bool((message.get("headers") or {}).get("task"))


def settle_all(held: Held, ledger: Ledger) -> None:
    """Send the settles that are due, in one round trip; what Redis does not answer stays due."""
    pending = held.take_pending()
    if not pending:
        return
    points.reached("settle sending")
    try:
        answers = ledger.run_all([item.call for item in pending])
    except (RedisError, OSError) as error:
        logger.warning("settles could not be sent, to be sent again: %s", error)
        held.put_back(pending, pause_s=0.5)
        return
    points.reached("settle answered")
    held.answer(pending, answers)


def _log_recalled(held: Held, jobs: list[Aside] | str) -> None:
    if jobs and not isinstance(jobs, str):
        logger.warning("%d claimed jobs went back: the answer that brought them was lost or late", len(jobs))
        held.on_asides(jobs)


class Channel(JobChannel, stock.Channel):
    """For one Redis: ``redis://``, ``rediss://`` or a unix socket."""


class SentinelChannel(JobChannel, stock.SentinelChannel):
    """For the primary under Sentinel."""
