"""Checks of the project's own settings: whether Celery or queue_kit was told to lose or repeat work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from queue_kit.observe.doctor.facts import Facts, Finding, Verdict, bad, ok, some, warn

_SHORT_LEASE_MS: Final = 5_000
_STALLS_FOR_FALSE_ALARMS: Final = 2
_SHORT_MEMORY_MS: Final = 60_000
_LONG_SEND_MS: Final = 10_000
_PICKLES: Final = frozenset({"pickle", "application/x-python-serialize"})

#: Settings of Celery's that are legal and cost something: name, which values, verdict, why, what would be right.
_COSTLY: Final[tuple[tuple[str, Callable[[Any], bool], Verdict, str, str], ...]] = (
    (
        "task_always_eager", bool, Verdict.BAD, "jobs run inside whoever sends them: no queue, no retry, no record",
        "leave it out, except in tests",
    ),
    (
        "task_acks_late", lambda value: value is False, Verdict.WARN,
        "each job may run at most once: a crash or a deploy fails it (cause lost)", "leave it out",
    ),
    (
        "worker_prefetch_multiplier", lambda value: value == 0, Verdict.WARN,
        "one worker takes ahead all that it can, while others idle", "leave it out: 1",
    ),
    (
        "broker_connection_max_retries", lambda value: value is not None and value < 1000, Verdict.WARN,
        "workers end when Redis is away for longer than so many attempts", "leave it out: they go on trying",
    ),
    (
        "broker_connection_retry_on_startup", lambda value: value is False, Verdict.WARN,
        "workers end when Redis is not there at their start", "leave it out",
    ),
    (
        "accept_content", lambda value: bool(_PICKLES & set(value or ())), Verdict.WARN,
        "whoever can write to Redis can run code in the workers", "use json alone",
    ),
    (
        "task_serializer", lambda value: value in _PICKLES, Verdict.WARN,
        "jobs are pickles: workers must run whatever code is in them, and one of an older version may not open", "use json",
    ),
    (
        "result_serializer", lambda value: value in _PICKLES, Verdict.WARN,
        "results are pickles: whoever reads one runs whatever code is in it", "use json",
    ),
)  # fmt: skip


def refused(facts: Facts) -> Iterator[Finding]:
    """What no worker boots with."""
    for problem in facts.refused:
        yield bad("settings", f"workers refuse to start: {problem}", "see there")
    if not facts.refused:
        yield ok("settings", "a worker would start with them")


def celery_settings(facts: Facts) -> Iterator[Finding]:
    """What Celery allows and the promises do not like."""
    for name, costs, verdict, why, right in _COSTLY:
        if costs(facts.conf.get(name)):
            yield Finding(verdict, "settings", f"{name}: {why}", right)


def results(facts: Facts) -> Iterator[Finding]:
    """Whether results pile up beside the jobs."""
    backend = str(facts.conf.get("result_backend") or "")
    if backend.startswith(("redis", "rediss", "sentinel", "unix")) and not facts.conf.get("result_expires"):
        says = "result_expires is none: every result stays in Redis for ever, until no job fits in beside them"
        yield warn("results", says, "leave result_expires out: a day")


def at_most_once(facts: Facts) -> Iterator[Finding]:
    """Tasks that a crash loses, because they ask for it."""
    if facts.at_most_once and facts.conf.get("task_acks_late") is not False:
        says = f"acks_late=False: a crash or a deploy fails these instead of running them again: {some(facts.at_most_once)}"
        yield warn("tasks", says, "leave acks_late out where a second run is harmless")


def leases(facts: Facts) -> Iterator[Finding]:
    """How long a pause, an outage or a frozen machine may last before work runs twice."""
    settings = facts.settings
    lease_ms = settings.worker_lock_duration_ms
    survives_s = lease_ms * 0.75 / 1000
    if lease_ms < _SHORT_LEASE_MS:
        says = f"WORKER_LOCK_DURATION_MS {lease_ms}: a pause of {survives_s:.1f} s makes what runs run twice"
        yield warn("leases", says, "30000, unless pauses are impossible")
    else:
        yield ok("leases", f"pauses and outages of up to {survives_s:.1f} s cost no second run")
    if settings.worker_stalled_interval_ms > lease_ms:
        says = "WORKER_STALLED_INTERVAL_MS is above the lease: jobs of dead workers wait for the next look"
        yield warn("leases", says, "at most WORKER_LOCK_DURATION_MS; 5000 by default")
    if settings.worker_inferred_death_ms and settings.worker_max_stalled_count < _STALLS_FOR_FALSE_ALARMS:
        allowed = f"WORKER_MAX_STALLED_COUNT allows {settings.worker_max_stalled_count}"
        says = f"WORKER_INFERRED_DEATH_MS: a false alarm counts as a stall, and {allowed}: they fail a healthy job"
        yield warn("leases", says, "WORKER_MAX_STALLED_COUNT 3")


def deadlines(facts: Facts) -> Iterator[Finding]:
    """Whether a deploy runs long jobs twice, and how long a send may hold up a request."""
    settings, limit_s = facts.settings, facts.conf.get("task_time_limit")
    longest_ms = max(settings.job_timeout_ms, int((limit_s or 0) * 1000), *facts.timeouts_ms.values())
    if longest_ms > settings.shutdown_timeout_ms:
        times = f"a run may last {longest_ms} ms, a shutdown waits {settings.shutdown_timeout_ms}"
        longer = [name for name, timeout_ms in facts.timeouts_ms.items() if timeout_ms > settings.shutdown_timeout_ms]
        which = f" ({some(longer)})" if longer else ""
        says = f"SHUTDOWN_TIMEOUT_MS: {times}: a deploy runs longer ones again{which}"
        yield warn("deadlines", says, "SHUTDOWN_TIMEOUT_MS above the longest run, the platform's grace period above that")
    else:
        yield ok("deadlines", f"a shutdown waits {settings.shutdown_timeout_ms} ms, as long as a declared run may last")
    if settings.enqueue_timeout_ms > _LONG_SEND_MS:
        says = f"ENQUEUE_TIMEOUT_MS {settings.enqueue_timeout_ms}: an outage of Redis holds up every request that sends, so long"
        yield warn("deadlines", says, "1000")


def known_ids(facts: Facts) -> Iterator[Finding]:
    """Whether a late duplicate of an id is still seen."""
    known_ms = facts.settings.job_known_after_removal_ms
    if known_ms < _SHORT_MEMORY_MS:
        says = f"JOB_KNOWN_AFTER_REMOVAL_MS {known_ms}: an id that is sent again after that is a second job"
        yield warn("ids", says, "longer than any sender tries again: 300000 by default")
