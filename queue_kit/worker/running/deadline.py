"""What becomes of a run that goes on past its deadline; without it a job that ignores its token, or hangs, would hold its slot
for good.

Declared jobs only: a plain task keeps Celery's own limits. After the deadline and its grace JobTimeoutError is raised inside
the run, by the means that each pool has: in prefork by the signal of Celery's soft time limit, in solo by a timer of the main
thread, in gevent by a timeout of the greenlet. The threads pool has none. Prefork's hard time limit kills the process later.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import SoftTimeLimitExceeded
from billiard.pool import SIG_SOFT_TIMEOUT
from billiard.process import current_process

from queue_kit.errors import JobTimeoutError
from queue_kit.settings import Settings
from queue_kit.transport.kit import Run

#: Seconds before and after the start and the stop of a run, times in seconds: hard limit, soft limit; None for none.
Limits = tuple[float | None, float | None]

#: The run in the main thread of this pool process, for the signal, which nobody can give arguments.
_watched: Run | None = None


# -- in the worker's main process -----------------------------------------------------------------------------------------


def limits(timeout_ms: int | None, own: Limits, settings: Settings) -> Limits:
    """Hard and soft time limit of a run for the pool, in seconds. Limits that the task or the call names itself win."""
    hard, soft = own
    if timeout_ms is None:
        return own
    overdue_s = (timeout_ms + settings.job_timeout_grace_ms) / 1000
    hard = hard or overdue_s + settings.job_timeout_kill_ms / 1000
    soft = soft or overdue_s
    # Celery counts the hard limit from the soft one, and would wait for the later of the two.
    return hard, soft if soft < hard else None


def killed(timeout_ms: int, limit_s: float) -> ExceptionInfo:
    """The error of a run whose process was killed for its deadline."""
    try:
        raise JobTimeoutError(f"the job ran past its deadline of {timeout_ms} ms and was killed after {limit_s:g} s")
    except JobTimeoutError:
        return ExceptionInfo()


def within(hard_limit_s: float | None, started_at_s: float | None) -> bool:
    """Whether a run may still be going on; one that its pool cannot end is not waited for beyond its hard limit."""
    return hard_limit_s is None or started_at_s is None or time.time() - started_at_s <= hard_limit_s


# -- where the pool runs the job ------------------------------------------------------------------------------------------


def overdue(run: Run) -> JobTimeoutError:
    """The error of a run that went past its deadline."""
    return JobTimeoutError(f"the job ran past its deadline of {run.stop.timeout_ms} ms")


def watch(run: Run | None) -> None:
    """In a process of the prefork pool: let the signal of the soft time limit find this run, and no other."""
    global _watched  # noqa: PLW0603 - a signal handler belongs to its process
    if not _in_prefork():
        return
    _watched = run
    # Looked at before each run, since the one before may have taken the signal for itself. Not after it: the look is slow.
    if run is not None and signal.getsignal(SIG_SOFT_TIMEOUT) is not _on_soft_limit:
        signal.signal(SIG_SOFT_TIMEOUT, _on_soft_limit)


@contextmanager
def interrupted(run: Run, grace_ms: int) -> Iterator[None]:
    """Raise JobTimeoutError within this, once the deadline and the grace are over, if the pool can."""
    way = _way() if run.stop.timeout_ms is not None else None
    with nullcontext() if way is None else way(run, (run.stop.time_left_s or 0.0) + grace_ms / 1000):
        run.inside = True
        try:
            yield
        finally:
            run.inside = False


def _way() -> Callable[[Run, float], AbstractContextManager[None]] | None:
    if _in_prefork():
        return None  # the main process sends the signal
    if _in_greenlet():
        return _by_greenlet
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        return _by_alarm
    return None


def _in_prefork() -> bool:
    return current_process().name != "MainProcess" and threading.current_thread() is threading.main_thread()


def _in_greenlet() -> bool:
    gevent = sys.modules.get("gevent")
    return gevent is not None and isinstance(gevent.getcurrent(), gevent.Greenlet)


def _on_soft_limit(signum: int, frame: Any) -> None:
    run = _watched
    if run is None:
        return  # meant for a run that has ended meanwhile
    if run.stop.timeout_ms is None:
        raise SoftTimeLimitExceeded()
    left_s = run.stop.time_left_s or 0.0
    if not run.inside:
        return  # it has its result, or has not begun
    if run.facts.get("soft_limit") and left_s > 0:
        raise SoftTimeLimitExceeded()
    # The clock of the main process may be ahead by a little; far ahead, the signal was meant for the run before.
    if left_s * 2000 <= run.stop.timeout_ms:
        raise overdue(run)


@contextmanager
def _by_alarm(run: Run, seconds: float) -> Iterator[None]:
    def ring(signum: int, frame: Any) -> None:
        if run.inside:
            raise overdue(run)

    if signal.getitimer(signal.ITIMER_REAL)[0]:
        yield  # the program has an alarm of its own
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_greenlet(run: Run, seconds: float) -> Iterator[None]:
    timeout = sys.modules["gevent"].Timeout.start_new(seconds, overdue(run))
    try:
        yield
    finally:
        timeout.close()
