"""Declares jobs; without it each task would spell out Celery's options, and retry by Celery's whole seconds."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from celery import shared_task
from celery.exceptions import Reject
from pydantic import BaseModel, ValidationError

from queue_kit.errors import InvalidPayload, NonRetryableError
from queue_kit.policy import Backoff, BackoffFunction, RetryPolicy, check_timeout, exponential
from queue_kit.rules.masked import masked_fields
from queue_kit.rules.outcome import kind_of
from queue_kit.settings import Settings
from queue_kit.transport.envelope import PROPERTY
from queue_kit.transport.kit import Run
from queue_kit.worker.running.failure import failure_of
from queue_kit.worker.running.lost import LeaseLost
from queue_kit.worker.running.waits import wait_ms

#: What ``max_retries=None`` means in Celery, as a number of attempts.
_NO_LIMIT: Final = 2**31


@dataclass(frozen=True, slots=True)
class Declared:
    """What a job was declared with; ``None`` leaves it to the settings."""

    name: str
    queue: str | None
    attempts: int | None
    backoff: Backoff | BackoffFunction | None
    payload: type[BaseModel] | None
    timeout_ms: int | None = None

    def fields(self, payload: Any) -> dict[str, Any]:
        """A payload as keyword arguments of the task, not checked yet.

        :raises InvalidPayload: it is neither a mapping with names as keys nor an instance of a model.
        """
        if isinstance(payload, BaseModel):
            payload = payload.model_dump(mode="json", by_alias=True)
        if payload is None:
            return {}
        if not isinstance(payload, Mapping) or not all(isinstance(field, str) for field in payload):
            raise InvalidPayload(f"{self.name}: the payload must be a mapping of field names or a {_model_name(self.payload)}")
        return dict(payload)

    def dump(self, payload: Any) -> dict[str, Any]:
        """A payload as the task will get it: complete, checked and plain.

        :raises InvalidPayload: names each field at fault; values are not echoed.
        """
        return self.check((), self.fields(payload))

    def check(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """Arguments of the task as its payload model has them, complete and plain; untouched without a model.

        :raises InvalidPayload: names each field at fault; values are not echoed.
        """
        if self.payload is None:
            return kwargs
        if args:
            raise InvalidPayload(f"{self.name}: its payload is given as keyword arguments, the fields of {self.payload.__name__}")
        return self.read(kwargs or {}).model_dump(mode="json", by_alias=True)

    def read(self, fields: Mapping[str, Any]) -> BaseModel:
        """The payload model of these fields.

        :raises InvalidPayload: names each field at fault; values are not echoed.
        """
        assert self.payload is not None
        try:
            return self.payload.model_validate(dict(fields))
        except ValidationError as error:
            raise InvalidPayload(f"{self.name}: {_faults(error)}") from None


def job(
    name: str, *, queue: str | None = None, attempts: int | None = None,
    backoff: Backoff | BackoffFunction | None = None, timeout_ms: int | None = None,
    payload: type[BaseModel] | None = None, **options: Any,
) -> Callable[[Callable[..., Any]], Any]:  # fmt: skip
    """Declare a function as a job. The result is a Celery task, registered with every app as ``shared_task`` does.

    :param name: how it is enqueued, such as ``"email.send"``.
    :param queue: where it goes unless the call or ``task_routes`` says otherwise.
    :param attempts: runs in all, the first included (setting ``JOB_ATTEMPTS``).
    :param backoff: the waits between them (from ``JOB_BACKOFF_DELAY_MS``, doubling): ``fixed(...)``, ``exponential(...)``, or
        a function that is given the error and the attempts made, and answers milliseconds, or ``"stop"`` to fail at once.
    :param timeout_ms: the deadline of one run (setting ``JOB_TIMEOUT_MS``).
    :param payload: a pydantic model; the function then takes one instance of it, else plain keyword arguments.
    :param options: options of a Celery task. Explicit ``max_retries`` or ``retry_backoff`` win over the policy.
    :raises ValueError: for ``attempts`` together with ``max_retries``, a value out of range, or a field of the payload that
        would be sent as asterisks, naming it.
    """
    if attempts is not None:
        RetryPolicy(attempts, backoff or exponential(0))
        if "max_retries" in options:
            raise ValueError("attempts: leave it out where max_retries is given; attempts counts the first run too")
    elif backoff is not None:
        RetryPolicy(1, backoff)
    if options.get("max_retries", 0) is None:
        attempts = _NO_LIMIT
    declared = Declared(name, queue, attempts, backoff, payload, check_timeout(timeout_ms))
    options = {
        "autoretry_for": (Exception,),
        "dont_autoretry_for": (NonRetryableError, Reject),
        "max_retries": None,
        "retry_jitter": False,
        **options,
        "declared": declared,
    }
    if payload is not None:
        _check_model(name, payload)
        options["typing"] = False
    return lambda function: shared_task(name=name, **options)(_with_payload(function, declared))


def _check_model(name: str, model: type[BaseModel]) -> None:
    masked = masked_fields(model)
    if masked:
        raise ValueError(
            f"{name}: payload: pydantic would send {', '.join(masked)} as asterisks; send what the secret is found by, or give "
            "the field a field_serializer that writes it, which puts it into Redis in the clear"
        )


def _with_payload(function: Callable[..., Any], declared: Declared) -> Callable[..., Any]:
    if declared.payload is None:
        return function
    if not inspect.signature(function).parameters:
        raise ValueError(f"{declared.name}: a function with a payload model takes it as its argument")

    @wraps(function)
    def run(**fields: Any) -> Any:
        return function(declared.read(fields))

    del run.__wrapped__  # Celery reads the signature, which is that of the fields
    return run


def policy_of(task: Any, headers: Mapping[str, Any] | None, settings: Settings) -> RetryPolicy | None:
    """The policy of a declared job for one message: call over task over setting. ``None`` for a plain task."""
    declared = getattr(task, "declared", None)
    if declared is None:
        return None
    ours = (headers or {}).get(PROPERTY) or {}
    attempts = ours.get("attempts") or declared.attempts
    if attempts is None:
        attempts = settings.job_attempts if task.max_retries is None else task.max_retries + 1
    backoff = Backoff(**ours["backoff"]) if ours.get("backoff") else declared.backoff
    return RetryPolicy(attempts, backoff or exponential(settings.job_backoff_delay_ms))


def timeout_of(task: Any, headers: Mapping[str, Any] | None, settings: Settings) -> int | None:
    """The deadline of a run in milliseconds: call over task over setting. ``None`` for a plain task, which has none."""
    declared = getattr(task, "declared", None)
    if declared is None:
        return None
    ours = (headers or {}).get(PROPERTY) or {}
    return ours.get("timeout_ms") or declared.timeout_ms or settings.job_timeout_ms


#: What the mixin is mixed into; Celery is untyped.
_Host: Any = object


class JobTask(_Host):
    """Mixed into the app's task class: retries of declared jobs follow their policy."""

    declared: Declared | None = None

    def retry(
        self, args: Any = None, kwargs: Any = None, exc: Exception | None = None, throw: bool = True,
        eta: Any = None, countdown: float | None = None, max_retries: int | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Retry as Celery does; where the call says nothing, a declared job's policy says when and how often."""
        if isinstance(exc, (Reject, NonRetryableError)):
            raise exc  # Celery's automatic retry would take a refusal for a failure that may pass
        request, error = self.request, exc or sys.exc_info()[1]
        self._note(error)
        settings = self.app.queue_kit.settings if hasattr(self.app, "queue_kit") else Settings()
        policy = policy_of(self, request.headers, settings)
        if policy is not None and not request.called_directly:
            made = request.retries + 1
            if max_retries is None and made >= policy.attempts:
                raise exc or self.MaxRetriesExceededError(f"no attempts left of {policy.attempts}")
            if countdown is None and not eta:
                delay_ms = wait_ms(policy, made, error, settings)
                if delay_ms is None:
                    raise exc or self.MaxRetriesExceededError("the backoff function has said stop")
                countdown = delay_ms / 1000
        limit = self.max_retries if max_retries is None else max_retries
        if self._run is not None and limit is not None:
            self._run.exhausted = request.retries >= limit
        try:
            return super().retry(
                args, kwargs, exc=exc, throw=throw, eta=eta, countdown=countdown, max_retries=max_retries, **options
            )
        finally:
            if self._run is not None and self._run.lost:
                raise LeaseLost(f"the lease of {request.id} is lost")

    @property
    def override_max_retries(self) -> int | None:
        """The limit that one run gave to its retry. Celery keeps it on the task, where the next job of the process finds it."""
        try:
            limit: int | None = self.request.__dict__["override_max_retries"]
        except KeyError:
            raise AttributeError("override_max_retries") from None
        return limit

    @override_max_retries.setter
    def override_max_retries(self, limit: int | None) -> None:
        self.request.__dict__["override_max_retries"] = limit

    @override_max_retries.deleter
    def override_max_retries(self) -> None:
        self.request.__dict__.pop("override_max_retries", None)

    @property
    def _run(self) -> Run | None:
        kit = getattr(self.app, "queue_kit", None)
        return kit.running.get(self.request.id) if kit is not None else None

    def _note(self, error: BaseException | None) -> None:
        """Keep what this attempt failed with, for the job's history."""
        if self._run is not None and error is not None:
            self._run.why = kind_of(type(error)), failure_of(error).reason


def adopt(task: Any) -> None:
    """Have a task whose class is not the app's (it has a base of its own, or is older than `install`) retry as all do."""
    kind = type(task)
    if not issubclass(kind, JobTask):
        own = {"declared": getattr(kind, "declared", None), "__module__": kind.__module__, "__doc__": kind.__doc__}
        task.__class__ = type(kind.__name__, (JobTask, kind), own)


def _model_name(model: type[BaseModel] | None) -> str:
    return model.__name__ if model else "mapping"


def _faults(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'payload'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    )
