"""Puts queue_kit into one Celery app; without one place for it a second app in the process would be changed too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery
from celery.utils.imports import symbol_by_name

from queue_kit.errors import ConfigurationError
from queue_kit.settings import load
from queue_kit.transport.kit import Kit
from queue_kit.transport.sender import Sender
from queue_kit.worker.publish import amqp_class, direct_send_task
from queue_kit.worker.steps import Roles
from queue_kit.worker.task import JobTask

#: Celery settings that bypass or lose jobs: name → (what is refused, why).
_REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "task_retry_on_worker_lost": (lambda value: value, "a lost worker is a stall here, counted and limited"),
    "task_acks_on_failure": (lambda value: value is False, "on Redis it deletes what fails"),
    "task_acks_on_timeout": (lambda value: value is False, "it runs what timed out again without end"),
    "task_acks_on_failure_or_timeout": (lambda value: value is False, "on Redis it deletes what fails"),
    "worker_cancel_long_running_tasks_on_connection_loss": (
        lambda value: value, "leases outlive a lost connection, so its jobs must not be killed",
    ),
    "task_protocol": (lambda value: value == 1, "jobs need task protocol 2"),
}  # fmt: skip


def install(app: Celery, options: Mapping[str, Any] | None = None) -> None:
    """Give ``app`` the lifecycle and the promises of queue_kit. Its ``broker_url`` stays what it is; other apps stay stock.

    :param options: settings by name, over the environment; see :class:`queue_kit.settings.Settings`.
    :raises ConfigurationError: a wrong setting, named with what would be right; or a second call for the same app.

    Celery settings that contradict the promises are refused by name when the app is first used.
    """
    if getattr(app, "queue_kit", None) is not None:
        raise ConfigurationError("install: this app has queue_kit already")
    kit = Kit.of(load(options), lambda queue: queue in app.amqp.queues)
    app.queue_kit = kit
    _replace_amqp(app, kit)
    kit.sender = Sender(kit, app.connection_for_write)
    app.send_task = direct_send_task(app, kit)
    _replace_task_class(app)
    app.steps["worker"].add(Roles)
    _prefer(app)
    app.on_after_configure.connect(lambda sender, **_: check_celery_settings(sender), sender=app, weak=False)


def _replace_amqp(app: Celery, kit: Kit) -> None:
    app.amqp_cls = amqp_class(symbol_by_name(app.amqp_cls), kit)
    if "amqp" in app.__dict__:  # it has sent something already: its connections have the stock transport
        if app._pool is not None:
            app._pool.force_close_all()
            app._pool = None
        del app.__dict__["amqp"]


def _replace_task_class(app: Celery) -> None:
    base = symbol_by_name(app.task_cls)
    app.task_cls = type("JobTask", (JobTask, base), {"__module__": base.__module__, "abstract": True})
    app.__dict__.pop("Task", None)


def _prefer(app: Celery) -> None:
    """Settings that the promises need, where the project has not said otherwise."""
    app.conf.worker_consumer = "queue_kit.worker.consumer:Consumer"
    preferred = {
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        "worker_enable_prefetch_count_reduction": False,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
    }
    app.add_defaults(preferred)


def check_celery_settings(app: Celery) -> None:
    """Refuse what would bypass or lose jobs.

    :raises ConfigurationError: names each setting and why.
    """
    problems = [
        f"{name}: leave it out; {why}" for name, (refused, why) in _REFUSED.items() if refused(app.conf.get(name))
    ]
    if problems:
        raise ConfigurationError(problems)
