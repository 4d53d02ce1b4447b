"""Puts queue_kit into one Celery app; without one place for it a second app in the process would be changed too."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from celery import Celery, signals
from celery.utils.imports import symbol_by_name

from queue_kit.errors import ConfigurationError
from queue_kit.settings import Settings, load
from queue_kit.transport.kit import Kit
from queue_kit.transport.sender import Sender
from queue_kit.worker.refusals import CONSUMER, check_worker
from queue_kit.worker.running.task import JobTask, adopt
from queue_kit.worker.sending.producer import producers_of
from queue_kit.worker.sending.publish import amqp_class, send_task_of
from queue_kit.worker.sending.shortcut import QuickTask
from queue_kit.worker.steps import Roles

#: What the promises need, where the project has not said otherwise.
_PREFERRED: Final = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_prefetch_multiplier": 1,
    "worker_enable_prefetch_count_reduction": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_channel_error_retry": True,  # what Redis refuses in passing (a full server, a replica) must not end a worker
    "worker_consumer": CONSUMER,
}


def install(app: Celery, options: Mapping[str, Any] | Settings | None = None) -> None:
    """Give ``app`` the lifecycle and the promises of queue_kit. Its ``broker_url`` stays what it is; other apps stay stock.

    :param options: settings by name, over the environment; see :class:`queue_kit.settings.Settings`. Or all of them, read.
    :raises ConfigurationError: a wrong setting, named with what would be right; a second call for the same app; or tasks
        that were used before it.

    The project's own Celery settings may be given before or after. Those that contradict the promises are refused by name
    when a worker boots, and when a job is first sent.
    """
    if getattr(app, "queue_kit", None) is not None:
        raise ConfigurationError("install: this app has queue_kit already")
    settings = options if isinstance(options, Settings) else load(options)
    kit = Kit.of(settings, lambda queue: queue in app.amqp.queues)
    _settle_used_tasks(app)
    app.queue_kit = kit
    _replace_amqp(app, kit)
    kit.sender = Sender(kit, app.connection_for_write)
    app.send_task = send_task_of(app)
    app.producer_or_acquire = producers_of(app)
    _replace_task_class(app)
    app.steps["worker"].add(Roles)
    if app.configured:
        _prefer(app)
    # Also each time that the project loads its settings anew, which drops what was set before.
    app.on_after_configure.connect(lambda sender, **_: _prefer(sender), sender=app, weak=False)
    app.on_after_finalize.connect(_adopt_all, sender=app, weak=False)
    if app.finalized:
        _adopt_all(app)
    signals.celeryd_init.connect(partial(_check_at_boot, app), weak=False)


def _settle_used_tasks(app: Celery) -> None:
    """A task that has been used has copied the app's settings, and does not tell its own ``acks_late=False`` from them."""
    if not app.configured or app.conf.value_set_for("task_acks_late"):
        return
    used = [task for task in app._tasks.values() if task.__bound__ and not task.acks_late]
    own = sorted(task.name for task in used if not task.name.startswith("celery."))
    if own:
        raise ConfigurationError(
            f"install: call it before tasks are used, or set task_acks_late: {', '.join(own)} cannot be told from tasks that "
            "ask to run at most once"
        )
    for task in used:
        task.acks_late = True


def _replace_amqp(app: Celery, kit: Kit) -> None:
    """Where the app has sent something already, its pool is left to others: Kombu shares it among apps with equal URLs."""
    app.amqp_cls = amqp_class(symbol_by_name(app.amqp_cls), kit)
    app._pool = None
    app.__dict__.pop("amqp", None)


def _replace_task_class(app: Celery) -> None:
    base = symbol_by_name(app.task_cls)
    app.task_cls = type("JobTask", (QuickTask, JobTask, base), {"__module__": base.__module__, "abstract": True})
    app.__dict__.pop("Task", None)


def _adopt_all(sender: Celery, **kwargs: Any) -> None:
    for task in sender._tasks.values():
        adopt(task)


def _prefer(app: Celery) -> None:
    conf = app.conf
    # Celery puts defaults given late over the project's own settings.
    conf.add_defaults({name: value for name, value in _PREFERRED.items() if not conf.value_set_for(name)})


def _check_at_boot(app: Celery, instance: Any = None, **kwargs: Any) -> None:
    """End a worker that could not keep the promises, before it is built: one message and no traceback."""
    if instance is None or instance.app is not app:
        return
    try:
        check_worker(app)
    except ConfigurationError as error:
        sys.exit("\n  ".join(["The worker cannot start:", *error.problems]))
