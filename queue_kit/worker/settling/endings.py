"""How the main process ends a job whose run could not: the move, and all that Celery tells of it. Without it what a run that
was killed would have told, its result, its callers, its signals, would be told by nobody.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from celery import signals
from celery.exceptions import Retry, TimeLimitExceeded
from celery.utils.log import get_logger
from celery.utils.serialization import get_pickled_exception
from kombu.utils.encoding import safe_repr
from kombu.utils.json import dumps, loads

from queue_kit.errors import JobTimeoutError
from queue_kit.policy import RetryPolicy
from queue_kit.rules.outcome import Fail, Failure, decide, kind_of
from queue_kit.rules.packing import unpack
from queue_kit.states import Cause
from queue_kit.store import Message, When
from queue_kit.transport.held import HeldJob
from queue_kit.worker.running.backend import free_claim
from queue_kit.worker.running.failure import failure_of
from queue_kit.worker.running.lineage import replaced_by
from queue_kit.worker.running.trace import Report
from queue_kit.worker.settling.settle import Settler

logger = get_logger(__name__)

#: What the mixin is mixed into; Celery is untyped.
_Host: Any = object


class Endings(_Host):
    """Mixed into the request of a job."""

    job: HeldJob | None = None
    settler: Settler

    def _settle_once(self, settle: Any) -> None:
        assert self.job is not None
        if not self.job.ended:
            settle(self.job)

    def _next_message(self) -> Message:
        """The job's message with one more retry counted, as ``Task.retry`` would have sent it."""
        assert self.job is not None
        claimed = self.job.claimed
        message = unpack(claimed.message, claimed.id, claimed.name, claimed.queue, loads)
        message["headers"]["retries"] = (message["headers"].get("retries") or 0) + 1
        message["headers"]["eta"] = None
        nesting = message["headers"].get("replaced_task_nesting") or 0
        return Message(dumps(message), claimed.queue, self.job.name, nesting)

    def _retry_here(self, message: Message, when: When, error: Any, exc_info: Any) -> None:
        """The retry that the run could not make itself."""
        reason = failure_of(error).reason
        cause = kind_of(type(error))
        self._settle_once(lambda job: self.settler.retry(job, message, when, reason, cause))
        context = self._context
        if self.store_errors:
            self.task.backend.mark_as_retry(self.id, error, exc_info.traceback, request=context)
        self.send_event("task-retried", exception=safe_repr(error), traceback=str(exc_info.traceback))
        retry = Retry(exc=error, when=(when.delay_ms or 0) / 1000)
        self._with_context(lambda: signals.task_retry.send(self.task, request=context, reason=retry, einfo=exc_info))

    def _fail(self, error: BaseException, exc_info: Any, end: Fail, report: Report, *, stored: bool) -> None:
        failure = report.failure or failure_of(error, exc_info.traceback)
        failure = Failure(failure.error_class, failure.message, failure.stack, end.cause, failure.retryable)
        self._settle_once(lambda job: self.settler.fail(job, failure, exhausted=end.exhausted))
        for job_id, nesting in replaced_by(self._payload[2]):
            self.settler.fail_replaced(job_id, nesting, failure)
        if not stored:
            self._tell_failure(error, exc_info)
        self.send_event(
            "task-failed", exception=safe_repr(get_pickled_exception(error)), traceback=exc_info.traceback
        )

    def _tell_failure(self, error: BaseException, exc_info: Any) -> None:
        """What the run would have told if it could: the result, errbacks, the chord, and Celery's signal."""
        logger.error("job %s[%s] failed: %r", self.name, self.id, error)
        free_claim(self.task.backend, self._context)
        self.task.backend.mark_as_failure(self.id, error, request=self._context, store_result=self.store_errors)
        if isinstance(error, (TimeLimitExceeded, JobTimeoutError)):
            self.task.on_failure(error, self.id, self.args, self.kwargs, exc_info)
        self._with_context(
            lambda: signals.task_failure.send(
                sender=self.task, task_id=self.id, exception=error, args=self.args, kwargs=self.kwargs,
                traceback=exc_info.traceback, einfo=exc_info,
            )
        )  # fmt: skip

    def _with_context(self, tell: Any) -> None:
        self.task.request_stack.push(self._context)
        try:
            tell()
        finally:
            self.task.request_stack.pop()

    def _stopped(self, job: HeldJob) -> None:
        self.send_event("task-revoked", terminated=False, signum=None, expired=False)
        self.settler.cancel(job, job.cancel or Cause.CANCELLED, tell=True)

    def _end_of(self, failure: Failure, policy: RetryPolicy | None, made: int, report: Report) -> Fail:
        """Why a run that will not be repeated has failed. A plain task has no attempts left once it has retried enough."""
        if policy is None:
            spent = made > 1 and self.task.max_retries is not None and made > self.task.max_retries
            tried_again = report.exhausted or spent
            if failure.cause is Cause.EXHAUSTED and not tried_again:
                return Fail(Cause.NON_RETRYABLE, exhausted=False)
            return Fail(failure.cause, exhausted=tried_again)
        end = decide(failure, made, policy.attempts)
        if isinstance(end, Fail):
            return end
        # Attempts were left, but the backoff function, or an option of the task, says that the error is final.
        return Fail(Cause.NON_RETRYABLE if failure.cause is Cause.EXHAUSTED else failure.cause, exhausted=False)


def when_of(retry: Retry) -> When:
    """When a retry is due that was raised by hand, and never sent: after seconds, at an instant, or at once."""
    if isinstance(retry.when, datetime):
        return When(due_at_ms=int(retry.when.timestamp() * 1000))
    return When(delay_ms=max(0, round(float(retry.when or 0) * 1000)))
