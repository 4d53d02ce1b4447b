"""The JSON addresses for programs, with every refusal: each is JSON that says what would be right."""

from __future__ import annotations

import uuid

import pytest
from django.test import Client

from tests.support.redis_server import RedisServer
from ticketing.models import Event, Hold, Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def url(event: Event) -> str:
    return f"/ticketing/events/{event.pk}/"


def ask(site: Client, url: str, body: object = ""):
    return site.post(url, body, content_type="application/json")


def hold(site: Client, url: str, seat: str = "B4") -> dict[str, str]:
    answer = ask(site, f"{url}holds", {"seat": seat, "holder": "Ada"})
    assert answer.status_code == 201
    return answer.json()


def test_a_hold_answers_201_with_its_jobs_and_needs_no_token(queue: RedisServer, url: str) -> None:
    site = Client(enforce_csrf_checks=True)
    body = hold(site, url)
    assert (body["seat"], body["status"]) == ("B4", "held")
    assert body["releaseJob"] != body["renderJob"]
    assert site.get(f"/ticketing/holds/{body['holdId']}").json()["status"] == "held"


def test_a_taken_seat_is_409(site: Client, queue: RedisServer, url: str) -> None:
    hold(site, url)
    answer = ask(site, f"{url}holds", {"seat": "b4", "holder": "Ben"})
    assert (answer.status_code, answer.json()) == (409, {"error": "seat B4 is taken"})


def test_with_the_queue_down_503_and_the_seat_is_free(site: Client, queue_down: None, url: str) -> None:
    """H4: within a second or so, with Retry-After, nothing half-written."""
    answer = ask(site, f"{url}holds", {"seat": "B4", "holder": "Ada"})
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    assert "Nothing is lost" in answer.json()["error"]
    assert Seat.objects.with_current_hold().filter(hold_status__isnull=False).count() == 0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "seat must be given"),
        ([], "seat must be given"),
        ("[" * 100_000, "seat must be given"),
        (b"\xff\xfe", "seat must be given"),
        ({"seat": None, "holder": None}, "seat must be given"),
        ({"seat": {"a": ["b"]}, "holder": "Ada"}, "such as B12"),
        ({"seat": "B4"}, "holder must be given"),
        ({"seat": "B4", "holder": "   "}, "holder must be given"),
        ({"seat": "row 4", "holder": "Ada"}, "such as B12"),
        ({"seat": "4B", "holder": "Ada"}, "such as B12"),
        ({"seat": "ß4", "holder": "Ada"}, "such as B12"),
        ({"seat": "B4", "holder": "A" * 101}, "100 characters"),
        ({"seat": "B4", "holder": "A\x00"}, "Null characters"),
        *(({"seat": "B4", "holder": holder}, "holder must be text") for holder in (["Ada"], [], {}, True, 7)),
        ({"seat": "B4", "holder": "\u200b\u202e \u2060"}, "holder must be given"),
        (b'{"seat": "B4", "holder": "half \\ud800"}', "without control characters"),
    ],
)
def test_a_hold_that_cannot_be_read_is_400_and_says_why(site: Client, url: str, body: object, says: str) -> None:
    answer = ask(site, f"{url}holds", body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_a_body_that_is_too_large_is_413(site: Client, url: str) -> None:
    answer = ask(site, f"{url}holds", {"seat": "B4", "holder": "A" * 3_000_000})
    assert (answer.status_code, "too large" in answer.json()["error"]) == (413, True)


def test_what_is_not_there_is_404_in_json(site: Client, url: str) -> None:
    nobody = uuid.uuid4()
    wanted = {"seat": "Z99", "holder": "Ada"}
    answers = [
        ask(site, f"{url}holds", wanted),
        ask(site, "/ticketing/events/999/holds", wanted),
        ask(site, f"/ticketing/events/{'9' * 40}/holds", wanted),
        ask(site, f"/ticketing/holds/{nobody}/purchase"),
        site.get(f"/ticketing/holds/{nobody}"),
    ]
    assert [(answer.status_code, answer.json()["error"][:11]) for answer in answers] == [(404, "there is no")] * 5


def test_a_held_seat_can_be_bought_and_stays_sold(site: Client, queue: RedisServer, url: str) -> None:
    body = hold(site, url)
    answer = ask(site, f"/ticketing/holds/{body['holdId']}/purchase")
    assert (answer.status_code, answer.json()["status"]) == (200, "sold")
    assert ask(site, f"{url}holds", {"seat": "B4", "holder": "Ben"}).status_code == 409


def test_a_hold_that_is_over_cannot_be_bought(site: Client, queue: RedisServer, url: str) -> None:
    body = hold(site, url)
    Hold.objects.update(status="released")
    assert ask(site, f"/ticketing/holds/{body['holdId']}/purchase").status_code == 409
