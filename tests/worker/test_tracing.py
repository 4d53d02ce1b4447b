"""OpenTelemetry's and Sentry's instrumentations of Celery, unchanged, see one job where it has several runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from queue_kit import dead_letters, enqueue, install, open_census
from queue_kit.states import State
from tests.apps import traced_app  # noqa: F401 - declares the jobs
from tests.support.fixtures import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.worker.sending import current

_QUEUE = "traced"


def send(request: HttpRequest, name: str, times: int) -> HttpResponse:
    """A view that sends a job."""
    payload = {"times": times} if times else {}
    return HttpResponse(enqueue(name, payload).id)


urlpatterns = [path("send/<str:name>/<int:times>", send)]


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    """This process's spans; Django and Celery are instrumented."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    DjangoInstrumentor().instrument(tracer_provider=provider)
    CeleryInstrumentor().instrument(tracer_provider=provider)
    yield exporter
    CeleryInstrumentor().uninstrument()
    DjangoInstrumentor().uninstrument()


@pytest.fixture
def spans(
    exporter: InMemorySpanExporter, redis_server: RedisServer, start_worker: StartWorker, tmp_path: Path, settings: Any
) -> Iterator[Spans]:
    """A site whose one page sends jobs, and a worker that runs them; both traced."""
    settings.ROOT_URLCONF, settings.ALLOWED_HOSTS = __name__, ["testserver"]
    settings.MIDDLEWARE = [each for each in settings.MIDDLEWARE if "opentelemetry" in each]
    app = Celery("site", broker=redis_server.url(), set_as_current=False)
    install(app)
    start_worker("tests.apps.traced_app", queues=[_QUEUE], env={"TRACED_FOLDER": str(tmp_path)}, concurrency=1)
    with current(app):
        yield Spans(app, exporter, tmp_path)
    app.close()


class Spans:
    """The spans of both sides, by trace."""

    def __init__(self, app: Celery, exporter: InMemorySpanExporter, folder: Path) -> None:
        self._app, self._census, self._exporter, self._folder = app, open_census(app), exporter, folder

    def of_request(self, name: str, times: int = 0, until: str = "run/") -> list[dict[str, Any]]:
        """Ask for a page that sends a job, wait until that has ended, and return the spans of the request's trace."""
        self._exporter.clear()
        job_id = Client().get(f"/send/{name}/{times}").content.decode()
        wait_until(lambda: self._has_ended(job_id), says=f"{job_id} has ended", within_s=20)
        wait_until(lambda: spans_of(self.lines("spans"), until), says=f"there is a span {until}")
        web = [json.loads(span.to_json()) for span in self._exporter.get_finished_spans()]
        trace_id = next(span["context"]["trace_id"] for span in web if span["kind"].endswith("SERVER"))
        return [span for span in web + self.lines("spans") if span["context"]["trace_id"] == trace_id]

    def _has_ended(self, job_id: str) -> bool:
        view = self._census.job(job_id)
        return view is not None and view.state in (State.COMPLETED, State.FAILED)

    def errors(self) -> list[tuple[str, str]]:
        """The exceptions that Sentry got: class, and task."""
        found = [event for event in self.lines("sentry") if "exception" in event]
        return [(event["exception"]["values"][0]["type"], event["transaction"]) for event in found]

    def letter(self) -> str:
        """The id of the only dead letter."""
        (letter,) = dead_letters(self._app).ids()
        return letter

    def lines(self, name: str) -> list[dict[str, Any]]:
        """What the worker has written into one of its files."""
        path = self._folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_request_its_send_and_every_run_are_one_trace(spans: Spans) -> None:
    """Given a job that fails once: each span hangs below the one before, and each run has its counters."""
    seen = spans.of_request("traced.flaky")
    request, sent, again = span_of(seen, "GET"), *spans_of(seen, "apply_async/traced.flaky")
    first, second = spans_of(seen, "run/traced.flaky")
    assert [parent_of(span, seen) for span in (request, sent, first, again, second)] == [None, request, sent, first, again]
    assert [(run["attributes"]["qwk.attempts_made"], run["events"]) for run in (first, second)] == [(0, []), (1, [])]
    assert spans.errors() == []


def test_a_failure_names_its_dead_letter(spans: Spans) -> None:
    """On the span of the run, beside the exception; Sentry has the exception once, with its job."""
    seen = spans.of_request("traced.refused")
    run = span_of(seen, "run/traced.refused")
    assert [event["name"] for event in run["events"]] == ["exception", "dead-lettered"]
    assert run["events"][1]["qwk.dead_letter"] == spans.letter()
    assert spans.errors() == [("NonRetryableError", "traced.refused")]


def test_a_crash_is_an_event_of_the_run_that_follows(spans: Spans) -> None:
    """The span of a killed run is lost with its process; the next one says so."""
    seen = spans.of_request("traced.crash", times=1)
    run = span_of(seen, "run/traced.crash")
    assert parent_of(run, seen) == span_of(seen, "apply_async/traced.crash")
    assert run["events"] == [{"name": "stalled", "qwk.stalled_count": 1}]


def test_a_job_that_ends_without_a_run_has_a_span_all_the_same(spans: Spans) -> None:
    """Given a job that kills each process: no run of it is left to tell, the main process does."""
    seen = spans.of_request("traced.crash", times=9, until="dead-letter/traced.crash")
    ended = span_of(seen, "dead-letter/traced.crash")
    assert parent_of(ended, seen) == span_of(seen, "apply_async/traced.crash")
    assert (ended["attributes"]["qwk.cause"], ended["status"]["status_code"]) == ("stalled", "ERROR")


def spans_of(seen: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Those whose names begin so, oldest first."""
    return sorted((span for span in seen if span["name"].startswith(name)), key=lambda span: span["start_time"])


def span_of(seen: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The only one."""
    (span,) = spans_of(seen, name)
    return span


def parent_of(span: dict[str, Any], seen: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The span that this one hangs below."""
    return next((other for other in seen if other["context"]["span_id"] == span["parent_id"]), None)
