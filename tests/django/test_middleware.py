"""The middleware: a correlation id from the request to its jobs, and 503 where a job could not be sent; in threads and loops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings

from deploy import celery_app
from queue_kit import QueueUnavailable, open_census
from queue_kit.django.middleware import QueueUnavailableMiddleware
from queue_kit.observe import transitions
from queue_kit.observe.correlation import correlation_id
from tests.support.redis_server import RedisServer

MIDDLEWARE = [f"queue_kit.django.middleware.{name}" for name in ("CorrelationIdMiddleware", "QueueUnavailableMiddleware")]
ID = "click-1:a.b_C"


@pytest.fixture(autouse=True)
def pages() -> Iterator[None]:
    with override_settings(ROOT_URLCONF="tests.django.correlation_urls", MIDDLEWARE=MIDDLEWARE):
        yield


def carried(answer: Any) -> str:
    """The correlation id of the job that a request has sent."""
    view = open_census(celery_app).job(answer.json()["job"])
    assert view is not None
    return view.correlation_id


def given(value: str) -> dict[str, str]:
    return {"x-correlation-id": value}


@pytest.mark.parametrize("path", ["/sends", "/sends-async"])
def test_the_id_of_a_request_is_echoed_and_carried_to_its_job(queue: RedisServer, path: str) -> None:
    """SPEC 11."""
    answer = Client().get(path, headers=given(ID))
    assert (answer.headers["x-correlation-id"], carried(answer)) == (ID, ID)


@pytest.mark.parametrize("bad", ["", "two words", "a" * 201, "a\nb", "<script>", "ä", "a,b", "a;b"])
def test_an_id_that_does_not_fit_is_replaced(queue: RedisServer, bad: str) -> None:
    answer = Client().get("/sends", headers=given(bad))
    made = answer.headers["x-correlation-id"]
    assert made not in ("", bad)
    assert (len(made), carried(answer)) == (36, made)


def test_the_longest_id_fits(queue: RedisServer) -> None:
    assert Client().get("/sends", headers=given("a" * 200)).headers["x-correlation-id"] == "a" * 200


def test_each_request_without_an_id_gets_one_of_its_own(queue: RedisServer) -> None:
    made = {Client().get("/sends").headers["x-correlation-id"] for _ in range(3)}
    assert len(made) == 3
    assert correlation_id.get() == ""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/on-commit", "/outbox"])
def test_a_job_that_is_sent_after_its_request_bears_the_requests_id(
    queue: RedisServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """So does the line that says that it is sent."""
    with caplog.at_level(logging.INFO, transitions.logger.name):
        answer = Client().get(path, headers=given(ID))
        call_command("outbox_relay", once=True, stdout=StringIO())
    assert carried(answer) == ID
    (line,) = [record for record in caplog.records if record.name == transitions.logger.name]
    assert (line.transition, line.correlation_id) == ("added", ID)  # type: ignore[attr-defined]


def test_requests_that_one_loop_serves_at_once_keep_their_ids_apart(queue: RedisServer) -> None:
    async def many() -> list[Any]:
        client = AsyncClient()
        return await asyncio.gather(*(client.get("/sends-async", headers=given(f"c-{n}")) for n in range(20)))

    for number, answer in enumerate(asyncio.run(many())):
        assert (answer.headers["x-correlation-id"], answer.json()["given"]) == (f"c-{number}", f"c-{number}")
        assert carried(answer) == f"c-{number}"


def test_requests_that_threads_serve_at_once_keep_their_ids_apart(queue: RedisServer) -> None:
    answers: dict[int, Any] = {}

    def one(number: int) -> None:
        celery_app.set_current()
        answers[number] = Client().get("/sends", headers=given(f"c-{number}"))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: carried(answer) for number, answer in answers.items()} == {n: f"c-{n}" for n in range(10)}


# -- the queue is away ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/cannot", "/cannot-async"])
def test_a_program_is_told_in_json_and_when_to_come_back(path: str) -> None:
    """H4: also on an answer of 503 the correlation id is echoed."""
    answer = Client().get(path, headers=given(ID))
    assert (answer.status_code, answer.headers["Retry-After"], answer.headers["x-correlation-id"]) == (503, "2", ID)
    assert "send the same request again" in answer.json()["error"]


def test_a_loop_answers_503_as_a_thread_does() -> None:
    answer = asyncio.run(AsyncClient().get("/cannot-async", headers=given(ID)))
    assert (answer.status_code, answer.headers["x-correlation-id"]) == (503, ID)


@pytest.mark.parametrize("accepts", ["text/html,application/xhtml+xml,*/*;q=0.8", "text/html"])
def test_a_browser_gets_a_page(accepts: str) -> None:
    answer = Client().get("/cannot", headers={"accept": accepts})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert "<h1>" in answer.content.decode()


def test_a_project_without_a_page_of_its_own_has_a_plain_one() -> None:
    with override_settings(TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}]):
        page = Client().get("/cannot", headers={"accept": "text/html"}).content.decode()
    assert "<h1>Not available just now</h1>" in page


def test_every_other_exception_passes() -> None:
    middleware = QueueUnavailableMiddleware(lambda request: HttpResponse())
    request: HttpRequest = RequestFactory().get("/")
    assert middleware.process_exception(request, ValueError()) is None
    assert middleware.process_exception(request, QueueUnavailable()) is not None
