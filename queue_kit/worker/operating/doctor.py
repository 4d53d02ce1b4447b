"""Reads what a doctor judges: the server and the queues of an app, its settings, and the workers that answer.

Without it each command would look at its own part, and none at the way in which they fit together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from queue_kit.errors import ConfigurationError
from queue_kit.observe.doctor import Facts, Finding, WorkerFacts, examine, examine_project
from queue_kit.store.examination import Examination
from queue_kit.store.stock import StockKeys
from queue_kit.worker.apps import app_with_queue_kit
from queue_kit.worker.refusals import CONSUMER, check_worker
from queue_kit.worker.server import judge

#: Keys that are looked at in search of those that nothing cleans up.
KEYS: Final = 20_000
#: How long workers have to answer.
ANSWERS_IN_S: Final = 1.0
_TOLD_WITHIN_MS: Final = 60_000
_CONF: Final = (
    "task_always_eager", "task_acks_late", "worker_prefetch_multiplier", "broker_connection_max_retries",
    "broker_connection_retry_on_startup", "accept_content", "task_serializer", "result_serializer", "result_backend",
    "result_expires", "task_time_limit", "task_soft_time_limit", "task_queues", "task_create_missing_queues",
)  # fmt: skip


def examine_app(app: Any = None, *, keys: int = KEYS, wait_s: float = ANSWERS_IN_S) -> list[Finding]:
    """Examine an app's whole set-up; changes nothing. A Redis that does not answer is a finding.

    :param keys: how many keys to look at in search of those that nothing cleans up.
    :param wait_s: how long workers have to answer.
    :raises ConfigurationError: the app has no queue_kit.
    """
    chosen = app_with_queue_kit(app)
    facts = _of_project(chosen)
    try:
        facts = _of_redis(chosen, facts, keys)
        if not facts.unfit:
            facts = _of_workers(chosen, facts, wait_s)
    except (RedisError, OSError) as error:
        facts = replace(facts, trouble=str(error) or type(error).__name__)
    return examine(facts)


def examine_settings(app: Celery) -> list[Finding]:
    """Examine what an app is told to do: its settings and its tasks. Redis is not asked."""
    return examine_project(_of_project(app))


def _of_project(app: Celery) -> Facts:
    # At most once is what a task asks for itself; the app's own setting is a finding of its own.
    once = sorted(name for name, task in app.tasks.items() if not task.acks_late and not name.startswith("celery."))
    return Facts(
        settings=app.queue_kit.settings,
        declared_queues=frozenset(app.amqp.queues),
        tasks=frozenset(app.tasks),
        conf={name: app.conf.get(name) for name in _CONF},
        refused=_refused(app),
        at_most_once=once,
        timeouts_ms={name: timeout_ms for name, task in app.tasks.items() if (timeout_ms := _declared_timeout(task))},
        endless=sorted(name for name, task in app.tasks.items() if _is_endless(task)),
        queue_of={name: queue for name, task in app.tasks.items() if (queue := _declared_queue(task))},
        beat=dict(_scheduled(app.conf.beat_schedule or {})),
    )


def _is_endless(task: Any) -> bool:
    return getattr(task, "declared", None) is None and task.max_retries is None and bool(getattr(task, "autoretry_for", ()))


def _declared_timeout(task: Any) -> int | None:
    declared = getattr(task, "declared", None)
    return declared.timeout_ms if declared is not None else None


def _declared_queue(task: Any) -> str | None:
    declared = getattr(task, "declared", None)
    return declared.queue if declared is not None else None


def _scheduled(schedule: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for entry, what in schedule.items():
        if isinstance(what, Mapping) and what.get("task"):
            yield str(entry), str(what["task"])


def _refused(app: Celery) -> Sequence[str]:
    try:
        check_worker(app)
    except ConfigurationError as error:
        return error.problems
    return ()


def _of_redis(app: Celery, facts: Facts, keys: int) -> Facts:
    settings, stock = facts.settings, StockKeys.of(app.conf.broker_transport_options)
    with app.connection_for_read().open_any(settings.redis_timeout_ms) as client:
        read = Examination(client, app.queue_kit.keys, stock)
        server, our_now_ms = read.server(), time.time_ns() // 1_000_000
        # Its policy has a line of its own.
        unfit = judge({**server.info, "maxmemory_policy": "noeviction"}, settings).refusal if server.info else ""
        facts = replace(facts, server=server, unfit=unfit, our_now_ms=our_now_ms)
        if unfit:  # a cluster, say, would answer no more
            return facts
        names = sorted(facts.declared_queues.union(read.queues()))
        overdue_ms = 2 * settings.worker_stalled_interval_ms + app.queue_kit.moves.renewal_ms
        return replace(
            facts,
            workers=_enrolled(read),
            queues=[read.queue(name, server.now_ms, overdue_ms) for name in names],
            strays=read.strays(keys),
            unacked=read.unacked(),
            untold=read.untold(server.now_ms - _TOLD_WITHIN_MS),
        )


# -- workers --------------------------------------------------------------------------------------------------------------


def _enrolled(read: Examination) -> list[WorkerFacts]:
    """Those that have lately said that they live."""
    return [
        WorkerFacts(name=one.facts.node, ours=True, queues=frozenset(one.facts.queues), tasks=None)
        for one in read.workers()
        if one.is_heard
    ]


def _of_workers(app: Celery, facts: Facts, wait_s: float) -> Facts:
    """A full Redis lets nobody ask."""
    try:
        return replace(facts, workers=_merged(facts.workers, _answering(app, wait_s)))
    except (RedisError, OSError, OperationalError) as error:
        return replace(facts, unasked=str(error) or type(error).__name__)


def _merged(enrolled: Sequence[WorkerFacts], answering: Sequence[WorkerFacts]) -> list[WorkerFacts]:
    """One that is on the roster is ours, whatever its own consumer is called; one that is busy in its main loop is on the roster
    alone."""
    ours, heard = {worker.name for worker in enrolled}, {worker.name for worker in answering}
    return [
        *(replace(worker, ours=worker.ours or worker.name in ours) for worker in answering),
        *(worker for worker in enrolled if worker.name not in heard),
    ]


def _answering(app: Celery, wait_s: float) -> list[WorkerFacts]:
    """Those that answer a broadcast, stock ones on the same database among them."""
    queues = app.control.inspect(timeout=wait_s).active_queues() or {}
    names = sorted(queues)
    if not names:
        return []
    again = app.control.inspect(names, timeout=wait_s, limit=len(names))  # waits no longer than they take
    tasks, conf = again.registered() or {}, again.conf() or {}
    own = frozenset(name for name in app.tasks if name.startswith("celery."))  # every worker has these, and none names them
    return [
        WorkerFacts(
            name=name,
            ours=conf.get(name, {}).get("worker_consumer") == CONSUMER,
            queues=frozenset(queue["name"] for queue in queues[name]),
            tasks=own.union(task.partition(" [")[0] for task in tasks.get(name, ())),
        )
        for name in names
    ]
