"""One job in the worker's main process, from the pool's first word of it to the settle; stock Celery acknowledges here
in nine places, ours decides in one and hands the move to the settler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from billiard.einfo import ExceptionInfo
from celery import signals
from celery.exceptions import (
    Ignore,
    InvalidTaskError,
    Reject,
    Retry,
    TaskRevokedError,
    Terminated,
    TimeLimitExceeded,
    WorkerLostError,
)  # fmt: skip
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.request import Request as StockRequest
from redis.exceptions import RedisError

from queue_kit.policy import RetryPolicy
from queue_kit.rules.outcome import AGAIN, Fail, Failure, Release, decide
from queue_kit.states import Cause
from queue_kit.store import When
from queue_kit.transport import points
from queue_kit.transport.envelope import PROPERTY
from queue_kit.transport.held import HeldJob
from queue_kit.worker.running import deadline
from queue_kit.worker.running.failure import failure_of, unwrapped
from queue_kit.worker.running.lineage import replaced_by
from queue_kit.worker.running.lost import LeaseLost
from queue_kit.worker.running.task import policy_of, timeout_of
from queue_kit.worker.running.trace import Report, trace_job
from queue_kit.worker.running.waits import wait_ms
from queue_kit.worker.settling.endings import Endings, when_of
from queue_kit.worker.settling.settle import Settler

logger = get_logger(__name__)

_WITH_REPORT = 4  # parts of an outcome that our own trace target has made


def _how_to_ask(result: Any) -> Callable[[], bool]:
    """How to ask a pool whether it is done with a run; each pool hands out its own kind of handle (solo none: it is)."""
    handle = getattr(result, "f", result)
    ask = getattr(handle, "ready", None) or getattr(handle, "done", None)
    return ask or (lambda: True)


class JobRequest(Endings, StockRequest):
    """Mixed over a task's own request class. A message that is no job (a broadcast) keeps the stock behaviour."""

    acknowledged: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Celery's factory overrides two methods in the class that it makes for each task; ours are put back."""
        super().__init_subclass__(**kwargs)
        if cls.__qualname__.startswith("create_request_cls."):
            del cls.execute_using_pool, cls.on_success

    def __init__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(message, *args, **kwargs)
        self.job = self._app.queue_kit.held.get(message.delivery_tag)
        if self.job is not None:
            self.settler = Settler(self._app.queue_kit, self._app.queue_kit.held)
            if not isinstance(self.args, list | tuple) or not isinstance(self.kwargs, dict):
                raise InvalidTaskError("its arguments are not a list and a mapping")  # which Celery would call a success

    @property
    def policy(self) -> RetryPolicy | None:
        """The retry policy of a declared job; ``None`` for a plain task."""
        return policy_of(self.task, self.request_dict, self._app.queue_kit.settings)

    @property
    def timeout_ms(self) -> int | None:
        """The deadline of a run of a declared job; ``None`` for a plain task."""
        return timeout_of(self.task, self.request_dict, self._app.queue_kit.settings)

    @property
    def limits(self) -> deadline.Limits:
        """Hard and soft time limit in seconds."""
        return deadline.limits(self.timeout_ms, self._own_limits, self._app.queue_kit.settings)

    @property
    def _own_limits(self) -> deadline.Limits:
        hard, soft = self.time_limits
        return hard or self.task.time_limit, soft or self.task.soft_time_limit

    # -- into the pool ------------------------------------------------------------------------------------------------

    def execute_using_pool(self, pool: Any, **kwargs: Any) -> Any:
        """Hand the job to the pool.

        :raises TaskRevokedError: when it will not run here: revoked, expired, or its reservation was lost.
        """
        if self.job is None:
            return super().execute_using_pool(pool, **kwargs)
        try:
            may_run = not self.revoked() and self.settler.begin(self.job)
            result = self._enter(pool, self.job) if may_run else None
        except (OSError, RedisError):
            raise  # the main loop connects anew, and all slots are free then
        except Exception as error:  # noqa: BLE001 - a message may hold anything
            may_run = False
            self._refuse(self.job, error)
        if not may_run:
            # For this error alone Celery gives the slot back: with another, each such message would cost the pool one for ever.
            state.task_ready(self)
            raise TaskRevokedError(self.id)
        self._apply_result = None if result is None else ref(result)
        self.job.left_pool = _how_to_ask(result)
        return result

    def _refuse(self, job: HeldJob, error: Exception) -> None:
        """What the message says cannot be used, though it could be read."""
        logger.error("job %s[%s] is malformed: %r", self.name, self.id, error)
        if job.begun or self.settler.begin(job):
            failure = Failure(type(error).__name__, str(error), "", Cause.MALFORMED, False)
            self._settle_once(lambda job: self.settler.fail(job, failure, tell=True))
            signals.task_rejected.send(sender=self, message=self._message, exc=error)

    def _enter(self, pool: Any, job: HeldJob) -> Any:
        hard, soft = self.limits
        self._tell_the_run(job)
        points.reached("pool entering")
        return pool.apply_async(
            trace_job,
            args=(self.type, self.id, self.request_dict, self.body, self.content_type, self.content_encoding),
            accept_callback=self.on_accepted,
            timeout_callback=self.on_timeout,
            callback=self.on_success,
            error_callback=self.on_failure,
            soft_timeout=soft,
            timeout=hard,
            correlation_id=self.id,
        )

    def _tell_the_run(self, job: HeldJob) -> None:
        """What the run has to know beside its message: where it is told to stop, and its deadline."""
        facts = self.request_dict["properties"][PROPERTY]
        facts["slot"], facts["timeout_ms"] = job.slot, self.timeout_ms
        facts["soft_limit"] = self._own_limits[1] is not None

    def maybe_expire(self) -> bool:
        """Whether it has expired since the claim. Its id is not added to the revoked: a replay may run on this worker."""
        known = self.id in state.revoked
        expired = bool(super().maybe_expire())
        if expired and not known:
            state.revoked.discard(self.id)
        return expired

    # -- out of the pool ----------------------------------------------------------------------------------------------

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """The pool is about to run the function."""
        points.reached("accepted")
        if self.job is None:
            return super().on_accepted(pid, time_accepted)
        self._app.queue_kit.held.started(self.job, time_accepted)
        try:
            super().on_accepted(pid, time_accepted)
        except Exception:  # it runs all the same
            logger.exception("job %s[%s]: that it has begun could not be told", self.name, self.id)

    def on_success(self, outcome: Any, **kwargs: Any) -> None:
        """The pool has run the function, to whatever end."""
        if self.job is None:
            return super().on_success(outcome, **kwargs)
        points.reached("result arrived")
        if self.job.ended or isinstance(outcome, ExceptionInfo):
            return self.on_failure(outcome)
        self._guarded(lambda: self._on_outcome(outcome))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Nothing that goes wrong here may reach the pool: with it the outcomes that lie behind this one would be lost, and a job
        that is held for ever keeps its lease for ever."""
        assert self.job is not None
        try:
            act()
        except Exception as error:
            logger.exception("job %s[%s]: what has become of it could not all be told", self.name, self.id)
            failure = failure_of(error)
            self._settle_once(lambda job: self.settler.fail(job, failure, tell=True))

    def _on_outcome(self, outcome: Any) -> None:
        if len(outcome) < _WITH_REPORT:
            return self._on_killed()
        failed, retval, runtime, report = outcome
        if failed:
            return self._on_raised(retval, report)
        state.task_ready(self, successful=True)
        if report.moved:
            self._settle_once(self.settler.moved)
        else:
            self._settle_once(self.settler.complete)
        self.send_event("task-succeeded", result=retval, runtime=runtime)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """The pool could not run it to an end, or lost the process that did."""
        if self.job is None:
            return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        if self.job.ended:
            return state.task_ready(self)
        if isinstance(unwrapped(exc_info.exception), TimeLimitExceeded) and self.timeout_ms and not self._own_limits[0]:
            exc_info = deadline.killed(self.timeout_ms, self.limits[0] or 0)
        failure = failure_of(exc_info.exception, exc_info.traceback)
        self._guarded(lambda: self._on_raised(exc_info, Report(failure, stored=return_ok)))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """A time limit was passed. The hard one ends the run; its process is being killed."""
        if self.job is None or soft:
            return super().on_timeout(soft, timeout)
        if not self.job.ended:
            try:
                raise TimeLimitExceeded(timeout)
            except TimeLimitExceeded:
                self.on_failure(ExceptionInfo())

    def _on_raised(self, exc_info: Any, report: Report) -> None:
        assert self.job is not None
        state.task_ready(self)
        error = unwrapped(exc_info.exception)
        if isinstance(error, Retry) and report.moved:
            self.on_retry(exc_info)
        elif isinstance(error, Retry):
            self._retry_here(self._next_message(), when_of(error), error.exc or error, exc_info)
        elif isinstance(error, LeaseLost) or isinstance(getattr(error, "reason", None), LeaseLost):
            self._app.queue_kit.held.lose(self.job, "its outcome is refused")
            self._settle_once(self.settler.moved)
        elif isinstance(error, Ignore):
            self._on_ignored(report)
        elif isinstance(error, WorkerLostError):
            self._on_lost(error)
        elif isinstance(error, (Terminated, SystemExit, KeyboardInterrupt)):
            self._on_terminated(error)
        elif isinstance(error, Reject):
            self._on_rejected(error, exc_info, report)
        else:
            self._on_error(error, exc_info, report)

    def on_retry(self, exc_info: Any) -> None:
        """The run has published its retry, and with it moved the job."""
        if self.job is not None:
            self._settle_once(self.settler.moved)
        super().on_retry(exc_info)

    def _on_ignored(self, report: Report) -> None:
        ending = report.ending
        if report.moved:
            self._settle_once(self.settler.moved)
        elif isinstance(ending, Release):
            self._settle_once(lambda job: self.settler.release(job, how=ending))
        elif ending is not None:
            self._settle_once(self._stopped)
        elif report.replaced:
            self._settle_once(self.settler.replace)
        else:
            self._settle_once(self.settler.complete)

    def _on_terminated(self, error: BaseException) -> None:
        """Killed by our own signal: for a revoke, else because this worker is being shut down."""
        if isinstance(error, Terminated) and not self._already_revoked and not self._already_cancelled:
            self._announce_revoked("terminated", True, str(error), False)
        else:
            self._on_lost(error)

    def _on_lost(self, error: BaseException) -> None:
        """The process that ran the job is gone: a stall, unless our own shutdown took it."""
        if self._app.queue_kit.held.forced:
            return None  # the shutdown has killed it, and hands all of them back in order
        if self._already_cancelled or state.should_terminate:
            return self._settle_once(self.settler.hand_back)
        logger.warning("the process that ran %s[%s] was lost: %s", self.name, self.id, error)
        self._settle_once(self.settler.stall)

    def _on_killed(self) -> None:
        """A greenlet was killed; gevent's pool says so by an outcome without a report."""
        state.task_ready(self)
        self._on_lost(WorkerLostError("its greenlet was killed"))

    def _on_rejected(self, error: Reject, exc_info: Any, report: Report) -> None:
        if error.requeue:
            self._settle_once(lambda job: self.settler.release(job, "tail"))
            self.send_event("task-rejected", requeue=True)
        elif report.unsent is not None:
            message, when = report.unsent
            self._retry_here(message, when, error.reason, exc_info)
        else:
            self._fail(error, exc_info, Fail(Cause.NON_RETRYABLE, exhausted=False), report, stored=False)

    def _on_error(self, error: BaseException, exc_info: Any, report: Report) -> None:
        assert self.job is not None
        if self.job.lost:
            return self._settle_once(self.settler.moved)
        if self.job.cancel and not report.stored:
            return self._settle_once(self._stopped)
        policy, made = self.policy, (self.request_dict.get("retries") or 0) + 1
        failure = report.failure or failure_of(error, exc_info.traceback)
        if report.unsent is not None:
            message, when = report.unsent
            return self._retry_here(message, when, error, exc_info)
        again = policy is not None and not report.stored and decide(failure, made, policy.attempts) == AGAIN
        delay_ms = wait_ms(policy, made, error, self._app.queue_kit.settings) if policy is not None and again else None
        if delay_ms is not None:
            return self._retry_here(self._next_message(), When(delay_ms=delay_ms), error, exc_info)
        self._fail(error, exc_info, self._end_of(failure, policy, made, report), report, stored=report.stored)

    # -- Celery's own words -------------------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Celery's word for "done with it"; where it comes from a path that is not ours, the job is complete."""
        if self.job is None:
            super().acknowledge()
        elif not self.acknowledged:
            self.acknowledged = True
            self._settle_once(self.settler.complete)

    def reject(self, requeue: bool = False) -> None:
        """Celery's word for "not done": back to the tail, or failed."""
        if self.job is None:
            return super().reject(requeue)
        if not self.acknowledged:
            self.acknowledged = True
            error = Reject("rejected", requeue=requeue)
            if requeue:
                self._settle_once(lambda job: self.settler.release(job, "tail"))
            else:
                self._settle_once(lambda job: self.settler.fail(job, failure_of(error), tell=True))

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        if self.job is not None:
            self._settle_once(lambda job: self.settler.cancel(job, "expired" if expired else "revoked"))
            cause = Cause.EXPIRED if expired else Cause.NON_RETRYABLE
            stopped = Failure("TaskRevokedError", f"step {self.id} of its canvas: {reason}", "", cause, False)
            for job_id, nesting in replaced_by(self._payload[2]):
                self.settler.fail_replaced(job_id, nesting, stopped)
        super()._announce_revoked(reason, terminated, signum, expired)
