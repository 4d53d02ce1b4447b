"""An app under OpenTelemetry's and Sentry's own instrumentations, unchanged; what they would send to a server goes into files.

Without it nothing would show that a trace goes on from the send over every run of a job.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentry_sdk
from celery import Celery, signals
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

from queue_kit import NonRetryableError, current_job, fixed, install, job

LEASE_MS, REAP_MS = 2_000, 200


def _write(name: str, what: dict[str, Any]) -> None:
    line = json.dumps(what, default=str).encode() + b"\n"
    handle = os.open(Path(os.environ["TRACED_FOLDER"]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, line)  # whole: lines of several processes do not mix
    finally:
        os.close(handle)


class FileExporter(SpanExporter):
    """Each span that has ended, as a line."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            events = [{"name": event.name, **(event.attributes or {})} for event in span.events]
            _write("spans", json.loads(span.to_json()) | {"events": events})
        return SpanExportResult.SUCCESS


class FileTransport(Transport):
    """Each event for Sentry, as a line."""

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            _write("sentry", dict(event))


def observe(**kwargs: Any) -> None:
    """Set both up in the worker, before its pool forks: a job that ends without a run is told of by the main process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument()
    sentry_sdk.init(dsn="http://key@sentry.invalid/1", transport=FileTransport, integrations=[CeleryIntegration()])


app = Celery("traced", broker=os.environ.get("CELERY_BROKER_URL", "redis://"), set_as_current=False)  # a worker makes it current
install(app, {"WORKER_LOCK_DURATION_MS": LEASE_MS, "WORKER_STALLED_INTERVAL_MS": REAP_MS})

if os.environ.get("TRACED_FOLDER"):
    signals.worker_init.connect(observe, weak=False)


@job("traced.flaky", queue="traced", attempts=2, backoff=fixed(0))
def flaky() -> None:
    """Fails the first time."""
    if current_job().attempts_made == 0:
        raise ConnectionError("not yet")


@job("traced.refused", queue="traced")
def refused() -> None:
    """Fails for good."""
    raise NonRetryableError("never")


@job("traced.crash", queue="traced")
def crash(times: int) -> None:
    """Kills the process it runs in, so often."""
    if current_job().stalled_count < times:
        os.kill(os.getpid(), signal.SIGKILL)
