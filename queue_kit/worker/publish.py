"""Turns Celery's sends into jobs; stock Celery sends a delay as an instant of the sender's clock, gives a callback a new id
in every run, and can wait for ever for a frozen server.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from time import monotonic, sleep
from typing import Any, Final

from celery import signals
from celery.app.amqp import AMQP, _callback_publish_retry
from celery.backends.base import Backend
from celery.utils.time import maybe_make_aware
from kombu.compression import compress
from kombu.serialization import dumps

from queue_kit.errors import QueueUnavailable
from queue_kit.transport import envelope
from queue_kit.transport.connection import connection_class
from queue_kit.transport.envelope import PROPERTY
from queue_kit.transport.kit import Kit
from queue_kit.worker import options as job_options
from queue_kit.worker.lineage import name_callbacks
from queue_kit.worker.refusals import check_sender

_EMBED: Final = 2  # where a task body keeps callbacks, chain and chord
#: Options of a send that only a broker other than ours needs; a message with one of the others goes kombu's way.
_NEEDS_KOMBU: Final = frozenset({"exchange", "routing_key", "declare", "event_dispatcher", "exchange_type"})
_MEANS_NOTHING_HERE: Final = ("retry", "retry_policy", "delivery_mode", "timeout", "confirm_timeout", "mandatory", "immediate")


def amqp_class(base: type[AMQP], kit: Kit) -> type[AMQP]:
    """An AMQP class for one app, with our connection and our way of sending, over whatever the app had."""
    return type("JobAMQP", (_JobAMQP, base), {"kit": kit, "Connection": connection_class(kit)})


#: What the mixin is mixed into; Celery is untyped.
_Host: Any = object


class _JobAMQP(_Host):
    kit: Kit
    _rtable: list[Any]

    def as_task_v2(self, task_id: str, name: str, *args: Any, **options: Any) -> Any:
        countdown = args[2] if len(args) > 2 else options.get("countdown")
        message = super().as_task_v2(task_id, name, *args, **options)
        if countdown is not None:
            message.properties[PROPERTY] = {"delay_ms": max(0, round(float(countdown) * 1000))}
        for instant in ("eta", "expires"):
            message.headers[instant] = _aware(message.headers[instant], self.app)
        embed = message.body[_EMBED]
        if embed["callbacks"]:
            embed["callbacks"] = name_callbacks(task_id, embed["callbacks"])
        return message

    def flush_routes(self) -> None:
        super().flush_routes()
        self._rtable = [*self._rtable, _route_declared]

    def _create_task_sender(self) -> Callable[..., Any]:
        """Asked for at the first send, which is refused as long as this is."""
        check_sender(self.app)
        stock = super()._create_task_sender()

        def send_task_message(producer: Any, name: str, message: Any, queue: Any = None, **options: Any) -> Any:
            target = None if _NEEDS_KOMBU.intersection(options) else self._direct_queue(queue)
            if target is not None:
                return self._send_job(name, message, target, options)
            if not isinstance(producer, NoProducer):
                return stock(producer, name, message, queue=queue, **options)
            with self.app.producer_or_acquire() as real:
                return stock(real, name, message, queue=queue, **options)

        return send_task_message

    def _direct_queue(self, queue: Any) -> str | None:
        """Name of the queue that a message goes straight into; ``None`` where an exchange decides."""
        declared = self.default_queue if queue is None else self.queues[queue] if isinstance(queue, str) else queue
        kind = declared.exchange.type if declared.exchange else "direct"
        return str(declared.name) if kind == "direct" else None

    def _send_job(self, name: str, message: Any, queue: str, options: dict[str, Any]) -> None:
        headers, properties, body, _ = message
        headers.update(options.pop("headers", None) or {})
        conf, declared = self.app.conf, getattr(self.app._tasks.get(name), "declared", None) is not None
        unique = job_options.take(options, headers, declared, name)
        serializer = options.pop("serializer", None) or conf.task_serializer
        compression = options.pop("compression", None) or conf.task_compression
        for option in _MEANS_NOTHING_HERE:
            options.pop(option, None)
        properties.update((key, value) for key, value in options.items() if value is not None)
        signals.before_task_publish.send(
            sender=name, body=body, exchange="", routing_key=queue, declare=[], headers=headers, properties=properties,
            retry_policy={},
        )  # fmt: skip
        content_type, encoding, data = dumps(body, serializer=serializer)
        if declared:
            job_options.check_size(name, data, self.kit.settings.job_payload_size_limit_bytes)
        if compression:
            data, headers["compression"] = compress(data, compression)
        posting = envelope.post_task(data, content_type, encoding, headers, properties, queue, unique)
        _patiently(partial(self.kit.sender.send, posting), self.kit)
        signals.after_task_publish.send(sender=name, body=body, headers=headers, exchange="", routing_key=queue)


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


class NoProducer:
    """Stands where Celery expects a kombu producer, which a send of ours does not need."""

    @property
    def connection(self) -> NoProducer:
        return self

    @contextmanager
    def _reraise_as_library_errors(self) -> Any:
        yield


def direct_send_task(app: Any, kit: Kit) -> Callable[..., Any]:
    """The app's ``send_task``, without a producer where none is needed, and with the id that the job really has."""
    stock = app.send_task
    no_producer = NoProducer()

    def send_task(name: str, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        chosen = more or any(options.get(key) for key in ("producer", "connection", "publisher"))
        if not chosen and _may_send_alone(app):
            options["producer"] = no_producer
        result = stock(name, args, kwargs, *more, **options)
        answer = kit.sender.last_answer()
        if answer is not None:
            result.added = answer[1]
            result.id = answer[1].id or result.id
        return result

    return send_task


def _may_send_alone(app: Any) -> bool:
    """Whether nothing but the job itself has to be sent: no event, no reply queue to be declared."""
    if app.conf.task_send_sent_event:
        return False
    backend = app.backend
    if "on_task_call" not in vars(backend):
        if type(backend).__module__ != "celery.backends.redis":
            return bool(type(backend).on_task_call is Backend.on_task_call)
        # It would subscribe to the result now, on a connection without a time bound; `get` subscribes anyway.
        backend.on_task_call = lambda producer, task_id: {}
    return True
