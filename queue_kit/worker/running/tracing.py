"""Tells OpenTelemetry what Celery's own instrumentation cannot know: the counters of a run, the stall before it, the dead letter
after it. Without it a trace would show two runs of one job and no word of the crash between them.

Nothing is imported for it: where the program has not loaded OpenTelemetry, nothing is told.
"""

from __future__ import annotations

import sys
from typing import Any

from celery import signals

from queue_kit.transport.kit import Run


def _opentelemetry() -> Any:
    return sys.modules.get("opentelemetry.trace")


def tell_run(run: Run) -> None:
    """Put the run's counters on the span that is open, and the stall that it follows as an event."""
    trace = _opentelemetry()
    if trace is None or not (span := trace.get_current_span()).is_recording():
        return
    counters = {name: run.facts.get(name, 0) for name in ("attempts_made", "attempts_started", "stalled_count")}
    span.set_attributes({"qwk.queue": run.facts.get("queue", "")} | {f"qwk.{name}": n for name, n in counters.items()})
    if counters["stalled_count"]:
        span.add_event("stalled", {"qwk.stalled_count": counters["stalled_count"]})


def hear_failures() -> None:
    """Name the dead letter on the span of a run that has failed for good. Safe to call twice."""
    signals.task_failure.connect(_on_failure, weak=False)


def _on_failure(sender: Any = None, task_id: str = "", **kwargs: Any) -> None:
    trace, kit = _opentelemetry(), getattr(sender.app, "queue_kit", None)
    run = kit.running.get(task_id) if kit is not None else None
    if trace is not None and run is not None:
        letter = f"dlq-{run.facts.get('queue', '')}-{run.id}-{run.facts.get('attempts_made', 0) + 1}"
        trace.get_current_span().add_event("dead-lettered", {"qwk.dead_letter": letter})


def tell_ended(request: Any, job_id: str, cause: str) -> None:
    """A job has failed outside its own run: a span of this process, in the trace of the job's last send, says so."""
    trace = _opentelemetry()
    if trace is None:
        return
    from opentelemetry.propagate import extract  # noqa: PLC0415 - it is there if the other is

    carrier = {name: value for name, value in vars(request).items() if isinstance(value, str)}
    tracer = trace.get_tracer("queue_kit")
    with tracer.start_as_current_span(f"dead-letter/{request.task}", context=extract(carrier)) as span:
        span.set_attributes({"messaging.message.id": job_id, "qwk.cause": cause})
        span.set_status(trace.StatusCode.ERROR, cause)
