"""Turns Celery's sends into jobs; stock Celery sends a delay as an instant of the sender's clock, gives a callback a new id
in every run, and can wait for ever for a frozen server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from time import monotonic, sleep
from typing import Any, Final, cast

from celery import signals
from celery.app.amqp import AMQP, _callback_publish_retry
from celery.utils.time import maybe_make_aware
from kombu.exceptions import OperationalError

from queue_kit.errors import QueueUnavailable, UnsupportedOperation
from queue_kit.rules.brief import brief_repr
from queue_kit.store.moves import Added
from queue_kit.transport import envelope
from queue_kit.transport.connection import connection_class
from queue_kit.transport.envelope import PROPERTY
from queue_kit.transport.kit import Kit
from queue_kit.worker.refusals import check_sender
from queue_kit.worker.running.lineage import name_callbacks, name_sent
from queue_kit.worker.sending import options as job_options
from queue_kit.worker.sending.producer import JobProducer

logger = logging.getLogger(__name__)

_EMBED: Final = 2  # where a task body keeps callbacks, chain and chord
#: Options of a send that only a broker other than ours needs; a message with one of the others goes kombu's way.
_NEEDS_KOMBU: Final = frozenset({"exchange", "routing_key", "declare", "event_dispatcher", "exchange_type"})
_MEANS_NOTHING_HERE: Final = (
    "retry", "retry_policy", "delivery_mode", "timeout", "confirm_timeout", "mandatory", "immediate", "expiration",
)  # fmt: skip
#: What Celery's ``send_task`` takes by position after name, args and kwargs.
_POSITIONS: Final = ("countdown", "eta", "task_id", "producer", "connection", "router", "result_cls", "expires", "publisher")


def amqp_class(base: type[AMQP], kit: Kit) -> type[AMQP]:
    """An AMQP class for one app, with our connection and our way of sending, over whatever the app had."""
    return type("JobAMQP", (_JobAMQP, base), {"kit": kit, "Connection": connection_class(kit)})


#: What the mixin is mixed into; Celery is untyped.
_Host: Any = object


class _JobAMQP(_Host):
    kit: Kit
    _rtable: list[Any]
    argsrepr_maxsize: int
    kwargsrepr_maxsize: int
    _packing: tuple[str, str | None]

    def as_task_v2(self, task_id: str, name: str, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        countdown = more[0] if more else options.get("countdown")
        kwargs = self._checked(task_id, name, args, kwargs)
        options.setdefault("argsrepr", brief_repr(args, "()", self.argsrepr_maxsize))
        options.setdefault("kwargsrepr", brief_repr(kwargs, "{}", self.kwargsrepr_maxsize))
        message = super().as_task_v2(task_id, name, args, kwargs, *more, **options)
        if countdown is not None:
            message.properties[PROPERTY] = {"delay_ms": max(0, round(float(countdown) * 1000))}
        for instant in ("eta", "expires"):
            message.headers[instant] = _aware(message.headers[instant], self.app)
        embed = message.body[_EMBED]
        if embed["callbacks"]:
            embed["callbacks"] = name_callbacks(task_id, embed["callbacks"])
        return message

    def _checked(self, task_id: str, name: str, args: Any, kwargs: Any) -> Any:
        """The payload as its model has it. What a finished run sends on is checked where it runs: here nobody would hear."""
        declared = getattr(self.app._tasks.get(name), "declared", None)
        if declared is None or task_id in self.kit.running or _callback_publish_retry.get():
            return kwargs
        return declared.check(args, kwargs)

    def _retry_publish(self, publish: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Send a callback or the next step of a run that has done its work."""
        task = self.app.current_worker_task
        if task is None or task.request.id not in self.kit.running:
            return super()._retry_publish(publish, *args, **kwargs)
        with name_sent(publish, task.request.id):
            return super()._retry_publish(publish, *args, **kwargs)

    def flush_routes(self) -> None:
        super().flush_routes()
        self._rtable = [*self._rtable, _route_declared]

    def _create_task_sender(self) -> Callable[..., Any]:
        """Asked for at the first send, which is refused as long as this is."""
        check_sender(self.app)
        stock, conf = super()._create_task_sender(), self.app.conf
        self._packing = conf.task_serializer, conf.task_compression

        def send_task_message(producer: Any, name: str, message: Any, queue: Any = None, **options: Any) -> Any:
            # Celery names options that it leaves open, among them wherever the caller or a retry names the queue.
            needed = any(options.get(option) is not None for option in _NEEDS_KOMBU)
            target = None if needed else self._direct_queue(queue)
            ours = producer if isinstance(producer, JobProducer) else self._of_app(producer)
            if target is not None and ours is not None:
                return self._send_job(ours, name, message, target, options)
            if options.get("idempotency_key"):
                raise UnsupportedOperation(f"{name}: idempotency_key: only for a job that goes straight into a queue of this app")
            job_options.take(options, message[0], self.app._tasks.get(name), name, message[2][_EMBED])
            options = {**self._way_of_broadcast(queue), **options}
            return stock(getattr(producer, "real", producer), name, message, queue=queue, **options)

        return send_task_message

    def _direct_queue(self, queue: Any) -> str | None:
        """Name of the queue that a message goes straight into; ``None`` where an exchange decides."""
        declared = self.default_queue if queue is None else self.queues[queue] if isinstance(queue, str) else queue
        kind = declared.exchange.type if declared.exchange else "direct"
        return str(declared.name) if kind == "direct" else None

    def _way_of_broadcast(self, queue: Any) -> dict[str, Any]:
        """What a broadcast needs to be heard: a connection learns by a declaration what kind an exchange is, and Celery makes
        none for a broadcast; nor does it name the routing key that workers listen to where the exchange was named."""
        declared = self.queues[queue] if isinstance(queue, str) else queue
        if declared is None or not declared.exchange or declared.exchange.type != "fanout":
            return {}
        exchange = declared.exchange
        return {"exchange": exchange.name, "routing_key": declared.routing_key, "declare": [exchange]}

    def _of_app(self, producer: Any) -> JobProducer | None:
        """A producer of ours in the place of one of kombu's, if that leads to the app's own broker."""
        connection: Any = getattr(producer, "connection", None)
        if getattr(connection, "kit", None) is not self.kit:
            return None
        own = self.app.connection_for_write()
        same = connection.as_uri(include_password=True) == own.as_uri(include_password=True)
        return JobProducer(self.app) if same else None

    def _send_job(self, producer: JobProducer, name: str, message: Any, queue: str, options: dict[str, Any]) -> None:
        headers, properties, body, sent_event = message
        headers.update(options.pop("headers", None) or {})
        job_options.check_job_id(headers["id"])
        task = self.app._tasks.get(name)
        unique = job_options.take(options, headers, task, name, body[_EMBED])
        told = {"sender": name, "body": body, "headers": headers, "exchange": "", "routing_key": queue}
        serializer, compression = self._packing
        how = options.pop("serializer", None) or serializer, options.pop("compression", None) or compression
        for option in _MEANS_NOTHING_HERE:
            options.pop(option, None)
        properties.update((key, value) for key, value in options.items() if value is not None)
        signals.before_task_publish.send(**told, declare=[], properties=properties, retry_policy={})
        most = self.kit.settings.job_payload_size_limit_bytes if getattr(task, "declared", None) is not None else None
        data, content_type, encoding = job_options.pack(name, body, headers, how, most)
        posting = envelope.post_task(data, content_type, encoding, headers, properties, queue, unique, body)

        def announce() -> None:
            signals.after_task_publish.send(**told)
            if sent_event:
                self._tell_monitors(producer, {**sent_event, "queue": queue, "exchange": "", "routing_key": queue})

        _patiently(partial(producer.take, posting, announce), self.kit)

    def _tell_monitors(self, producer: JobProducer, event: dict[str, Any]) -> None:
        """Celery's event that a task was sent. The job is in Redis: an event that fails is no reason to say otherwise."""
        try:
            self._event_dispatcher.publish("task-sent", event, producer.real, retry=False)
        except OperationalError as error:
            logger.warning("the task-sent event of %s could not be sent: %s", event["uuid"], error)


def _patiently(send: Callable[[], None], kit: Kit) -> None:
    """Send; but what a finished run sends on (callbacks, the next step) waits for Redis as long as its lease may last."""
    until = monotonic() + kit.moves.lease_ms / 1000 if _callback_publish_retry.get() else 0.0
    pause_s = 0.05
    while True:
        try:
            return send()
        except QueueUnavailable:
            if monotonic() + pause_s >= until:
                raise
            sleep(pause_s)
            pause_s = min(1.0, pause_s * 2)


def _aware(instant: str | None, app: Any) -> str | None:
    """An instant with its time zone: one without means the app's, which nobody but the app knows."""
    if instant is None:
        return None
    try:
        moment = datetime.fromisoformat(instant)
    except ValueError:
        return instant
    return instant if moment.tzinfo else str(maybe_make_aware(moment, app.timezone).isoformat())


def _route_declared(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> dict[str, str] | None:
    """The last route: the queue that the task was declared with."""
    declared = getattr(task, "declared", None)
    return {"queue": declared.queue} if declared is not None and declared.queue else None


def send_task_of(app: Any) -> Callable[..., Any]:
    """The app's ``send_task``, whose result has the id that the job really has, and says whether it was there already."""
    stock = app.send_task

    def send_task(name: str, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        options.update(zip(_POSITIONS, more, strict=False))
        with _producer_for(app, options) as producer:
            result = stock(name, args, kwargs, **options)
        return tell(result, producer.added)

    return send_task


def tell(result: Any, added: Added | None) -> Any:
    """Celery's result, which says what became of the send."""
    result.deduplicated = added is not None and added.outcome in ("duplicated", "deduplicated")
    result.existing_state = added.state if added is not None and result.deduplicated else None
    if added is not None and added.id:
        result.id = added.id
    return result


def _producer_for(app: Any, options: dict[str, Any]) -> AbstractContextManager[JobProducer]:
    """The producer of one send: ours, unless the caller has given one that leads elsewhere (ours then hears nothing of it)."""
    _leave_results_alone(app.backend)
    given = options.get("producer") or options.get("publisher")
    if isinstance(given, JobProducer):  # of a group or batch, which sends all its jobs with one
        given.added = None
        return nullcontext(given)
    if given or options.get("connection"):
        return JobProducer(app)
    options["producer"] = JobProducer(app)
    return cast(JobProducer, options["producer"])


def _leave_results_alone(backend: Any) -> None:
    """Celery's Redis backend would subscribe to a result now, on a connection without a time bound; ``get`` subscribes anyway."""
    if "on_task_call" not in vars(backend) and type(backend).__module__ == "celery.backends.redis":
        backend.on_task_call = lambda producer, task_id: {}
