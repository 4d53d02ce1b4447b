"""Celery's consumer, for a worker whose leases outlive a connection; stock code drops what runs when a socket breaks, and
deletes what it cannot read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import takewhile
from time import sleep
from typing import Any

from celery import signals
from celery.exceptions import CPendingDeprecationWarning, NotRegistered
from celery.utils.imports import symbol_by_name
from celery.utils.log import get_logger
from celery.utils.threads import bound_open_broker_sockets
from celery.worker.consumer import Consumer as StockConsumer
from celery.worker.state import maybe_shutdown
from kombu.exceptions import DecodeError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from queue_kit.rules.outcome import Failure, Release
from queue_kit.rules.unknown import wait_ms
from queue_kit.states import RESERVED_QUEUE, Cause
from queue_kit.store import Traits
from queue_kit.store.census import Census
from queue_kit.transport.held import HeldJob
from queue_kit.worker.running.prefork import Prefork
from queue_kit.worker.settling.line import Line
from queue_kit.worker.settling.request import JobRequest
from queue_kit.worker.settling.settle import Settler

logger = get_logger(__name__)


class Consumer(StockConsumer):
    """Claims jobs for one worker."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kit = self.app.queue_kit
        self.held = self.kit.held
        self.settler = Settler(self.kit, self.held)
        self.held.slots = lambda: self.pool.num_processes
        self._prefork: Prefork | None = None
        self.held.may_reserve = not self.app.conf.worker_disable_prefetch
        if self.controller.process_task == self.controller._process_task and not _runs_inline(self.pool):
            self._form_a_line()

    def _form_a_line(self) -> None:
        """This pool has no semaphore: what is taken ahead waits here. A thread that is free takes the next job itself; a
        greenlet leaves that to the main one, since the pool takes no other before it has ended."""
        process: Callable[[Any], None] = self.controller.process_task
        line = Line(self.held, process)
        self.on_task_request = line.enter
        self.held.on_free = line.move if self.hub is not None else lambda: self._soon(line.move)

    def _soon(self, move: Callable[[], None]) -> None:
        self._pending_operations.append(move)
        self.held.wake()

    # -- connection ---------------------------------------------------------------------------------------------------

    def connect(self) -> Any:
        """Connect, and let the worker's roles follow to the server that answered."""
        try:
            connection = super().connect()
        except (ResponseError, ValueError) as error:  # it answers, and will not have us: no reason to end, nor to hurry
            self.controller.queue_kit.unreachable(error)
            self._pause()
            raise RedisConnectionError(str(error)) from error
        self.controller.queue_kit.connected(connection)
        processes = getattr(self.pool, "_pool", None)
        if self._prefork is None and hasattr(processes, "register_with_event_loop"):
            self._prefork = Prefork(processes)
        if self.hub is None:
            self._follow(connection.transport.cycle)
        return connection

    def _follow(self, poller: Any) -> None:
        """Without an event loop the poller itself shows that the main loop lives, and is what a settle has to wake."""
        self.held.wake, poller.beat = poller.wake, self.held.beat
        poller.longest_wait_s = min(1.0, self.kit.moves.renewal_ms / 1000)

    def _pause(self) -> None:
        for _ in range(self.kit.settings.redis_retry_max_ms // 100):
            maybe_shutdown()
            self.held.beat()
            sleep(0.1)

    def call_soon(self, *args: Any, **kwargs: Any) -> Any:
        """Do something in the main loop; without an event loop it would be done after a wait of two seconds."""
        promise = super().call_soon(*args, **kwargs)
        if self.hub is None:
            self.held.wake()
        return promise

    def ensure_connected(self, conn: Any) -> Any:
        """Wait for Redis with a bounded, growing pause; the loop lives while it waits."""
        conn.ensure_connection = _patient(conn, self)
        return super().ensure_connected(conn)

    def register_with_event_loop(self, hub: Any) -> None:
        """Let the hub drive what needs driving, the pool's pipes in our own way."""
        super().register_with_event_loop(hub)
        if self._prefork is not None:
            self._prefork.attend(hub)

    def stop(self) -> None:
        """Leave the loop. A claim under way is read now and its jobs go back: nobody would look for it before the pool ends."""
        connection = self.connection
        if connection is not None:
            bound_open_broker_sockets(connection, self.kit.settings.redis_timeout_ms / 1000)
            for channel in list(connection.transport.cycle._channels):
                channel.end_claim()
        if self.hub is not None and self.pool.uses_semaphore:
            self._stay_for_results()
        super().stop()

    def _stay_for_results(self) -> None:
        """Run the event loop until nothing runs in the pool. Celery's own wait takes half a second for each process that is
        busy before it looks at the next, so that what has ended could be ended again by the deadline."""
        loop = self.hub.create_loop()
        while self.held.live() and not self.held.forced:
            try:
                next(loop)
            except StopIteration:
                loop = self.hub.create_loop()
            except SystemExit:  # asked once more, by remote control
                self.controller.queue_kit.shutdown.hurry()
            except Exception as error:  # noqa: BLE001 - whatever it is, Celery's own wait can do without the loop
                logger.warning("the event loop has failed while the worker ends: %r", error)
                return

    def on_close(self) -> None:
        """A connection is gone. What runs, what is in line and its leases belong to the worker: nothing is dropped."""

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        self.held.beat()
        with warnings.catch_warnings():  # the advice it gives, to kill what runs, is the very thing `install` refuses
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)
        if isinstance(exc, ResponseError):
            self._pause()

    def add_task_queue(self, queue: str, *args: Any, **kwargs: Any) -> None:
        """Consume one more queue, as `celery control add_consumer` asks; not the one that is reserved for dead letters."""
        if queue == RESERVED_QUEUE:  # an error here would end the worker: Celery calls this from its event loop
            logger.error("queue %s is not consumed: the name is reserved, nothing consumes dead letters", queue)
            return
        super().add_task_queue(queue, *args, **kwargs)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def update_strategies(self) -> None:
        """Give every task our request class, and remember which ask to run at most once or at a limited rate."""
        tasks = self.app.tasks.values()
        once = self.held.traits.once | {task.name for task in tasks if not task.acks_late}
        limited = frozenset(task.name for task in tasks if getattr(task, "rate_limit", None))
        self.held.traits = Traits(once=once, reserve=limited if not self.disable_rate_limits else frozenset())
        for task in tasks:
            task.acks_late = True
            task.Request = _request_class(symbol_by_name(task.Request))
        super().update_strategies()

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """What takes each message. A job whose task is known goes straight to that task's strategy: what stock Celery prepares
        for an acknowledgement in the main loop, its request never asks for. One that Celery stumbles over fails as malformed,
        where stock ends the worker."""
        stock, strategies, find = super().create_task_handler(*args, **kwargs), self.strategies, self.held.get
        callbacks, connection_errors = self.on_task_message, self.connection_errors

        def on_task_received(message: Any) -> None:
            job = find(message.delivery_tag)
            strategy = strategies.get(job.name) if job is not None else None
            try:
                if strategy is None:
                    stock(message)
                else:
                    strategy(message, None, message.ack_log_error, message.reject_log_error, callbacks)
            except connection_errors:
                raise
            except DecodeError as error:
                self.on_decode_error(message, error)
            except Exception as error:
                if job is None:
                    raise
                self.on_invalid_task(None, message, error)

        return on_task_received

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """A job without a ``task`` header, or whose headers are none."""
        job = self._job(message)
        if job is None:
            return super().on_unknown_message(body, message)
        logger.error("job %s is no task message: %s", job.claimed.id, self._message_report(body, message))
        self._refuse(job, Cause.MALFORMED, "InvalidTaskError", "the message has no `task` header")
        signals.task_rejected.send(sender=self, message=message, exc=None)

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """A job whose task this worker does not know: a dead letter, and its callers are told."""
        job = self._job(message)
        if job is None:
            return super().on_unknown_task(body, message, exc)
        name = message.headers["task"]
        if self._hold_off(job, f"no worker knows the task {name[:200]} yet"):
            return None
        logger.error("job %s asks for the task %r, which is not registered here", job.claimed.id, name)
        self._refuse(job, Cause.UNKNOWN_TASK, NotRegistered.__name__, f"no task named {name} is registered in the worker")
        if self.event_dispatcher:
            self.event_dispatcher.send("task-failed", uuid=job.claimed.id, exception=f"NotRegistered({name!r})")
        signals.task_unknown.send(sender=self, message=message, exc=exc, name=name, id=job.claimed.id)

    def _hold_off(self, job: HeldJob, reason: str) -> bool:
        """Give a job back for a while, where the settings ask for that: in the middle of a deploy others may know its task."""
        hold_ms = self.kit.settings.unknown_task_hold_ms
        delay_ms = wait_ms(*self._held_off(job, reason), hold_ms) if hold_ms else None
        if delay_ms is None:
            return False
        if job.begun or self.settler.begin(job):
            logger.info("job %s is held off: %s", job.claimed.id, reason)
            self.settler.release(job, how=Release(reason, delay_ms=delay_ms))
        return True

    def _held_off(self, job: HeldJob, reason: str) -> tuple[int | None, int]:
        """Since when that is so, by the latest runs, all of which ended here; and now."""
        try:
            census = Census(self.held.ledger().client, self.kit.keys)
            ends = list(takewhile(lambda run: run.reason == reason, reversed(census.runs(job.claimed.id))))
            return (ends[-1].started_at_ms if ends else None), census.now_ms()
        except RedisError:
            return None, 0  # the next look will tell

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """A job whose headers or body cannot be used: an unusable eta, a content type that is not accepted."""
        job = self._job(message)
        if job is None:
            return super().on_invalid_task(body, message, exc)
        logger.error("job %s[%s] is malformed: %r", job.name, job.claimed.id, exc)
        self._refuse(job, Cause.MALFORMED, type(exc).__name__, str(exc))
        signals.task_rejected.send(sender=self, message=message, exc=exc)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """A job whose body cannot be decoded."""
        job = self._job(message)
        if job is None:
            return super().on_decode_error(message, exc)
        logger.critical("the body of job %s[%s] cannot be decoded: %r", job.name, job.claimed.id, exc)
        self._refuse(job, Cause.MALFORMED, type(exc).__name__, f"the body cannot be decoded: {exc}")
        signals.task_rejected.send(sender=self, message=message, exc=exc)

    def _job(self, message: Any) -> HeldJob | None:
        job: HeldJob | None = self.held.get(message.delivery_tag)
        return job

    def _refuse(self, job: HeldJob, cause: Cause, error_class: str, reason: str) -> None:
        if not job.begun and not self.settler.begin(job):
            return
        self.settler.fail(job, Failure(error_class, reason, "", cause, False), tell=True)


def _runs_inline(pool: Any) -> bool:
    return type(pool).__module__ == "celery.concurrency.solo"


def _request_class(base: type) -> type:
    """Our request mixed over the task's own, which is usually Celery's."""
    if issubclass(base, JobRequest):
        return base
    return JobRequest if base in JobRequest.__mro__ else type("JobRequest", (JobRequest, base), {})


def _patient(conn: Any, consumer: Consumer) -> Any:
    """``ensure_connection`` with short steps, and a beat at each; a worker that boots with a wrong URL ends."""
    ensure = conn.ensure_connection
    longest_s = consumer.kit.settings.redis_retry_max_ms / 1000

    def ensure_connection(errback: Any = None, max_retries: Any = None, callback: Any = None, **kwargs: Any) -> Any:
        def told(error: Exception, interval_s: float) -> None:
            if not conn.has_alternatives:
                consumer.controller.queue_kit.unreachable(error)
            errback(error, interval_s)

        def beat() -> None:
            consumer.held.beat()
            if callback is not None:
                callback()

        steps = {"interval_start": min(0.5, longest_s), "interval_step": 0.5, "interval_max": longest_s}
        return ensure(told, max_retries, callback=beat, **{**kwargs, **steps})

    return ensure_connection
