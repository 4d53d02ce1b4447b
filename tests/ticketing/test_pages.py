"""The page, the map and the JSON addresses, with every refusal."""

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


def test_the_page_shows_the_stored_map_and_the_free_seats(site: Client, url: str) -> None:
    page = site.get(url).content.decode()
    assert f'src="{url}seat-map.svg?v=1"' in page
    assert "<option>B4</option>" in page
    assert "://" not in page


def test_the_map_is_served_once_and_then_known(site: Client, url: str) -> None:
    answer = site.get(f"{url}seat-map.svg")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/svg+xml")
    assert b'data-seat="B4"' in answer.content
    again = site.get(f"{url}seat-map.svg", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_hold_answers_201_with_its_jobs(site: Client, queue: RedisServer, url: str) -> None:
    body = hold(site, url)
    assert (body["seat"], body["status"]) == ("B4", "held")
    assert body["releaseJob"] != body["renderJob"]
    assert site.get(f"/ticketing/holds/{body['holdId']}").json()["status"] == "held"
    assert "<option>B4</option>" not in site.get(url).content.decode()


def test_a_taken_seat_is_409(site: Client, queue: RedisServer, url: str) -> None:
    hold(site, url)
    answer = ask(site, f"{url}holds", {"seat": "b4", "holder": "Ben"})
    assert (answer.status_code, answer.json()) == (409, {"error": "seat B4 is taken"})


def test_with_the_queue_down_503_and_the_seat_is_free(site: Client, queue_down: None, url: str) -> None:
    answer = ask(site, f"{url}holds", {"seat": "B4", "holder": "Ada"})
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    assert "<option>B4</option>" in site.get(url).content.decode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "seat must be given"),
        ([], "seat must be given"),
        ({"seat": "B4"}, "holder must be given"),
        ({"seat": "row 4", "holder": "Ada"}, "characters"),
        ({"seat": "4B", "holder": "Ada"}, "such as B12"),
        ({"seat": "B4", "holder": "A" * 101}, "100 characters"),
    ],
)
def test_a_hold_that_cannot_be_read_is_400_and_says_why(site: Client, url: str, body: object, says: str) -> None:
    answer = ask(site, f"{url}holds", body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_what_is_not_there_is_404_in_json(site: Client, url: str) -> None:
    nobody = uuid.uuid4()
    wanted = {"seat": "Z99", "holder": "Ada"}
    answers = [
        ask(site, f"{url}holds", wanted),
        ask(site, "/ticketing/events/999/holds", wanted),
        ask(site, f"/ticketing/holds/{nobody}/purchase"),
        site.get(f"/ticketing/holds/{nobody}"),
    ]
    assert [(answer.status_code, answer.json()["error"][:11]) for answer in answers] == [(404, "there is no")] * 4


def test_a_held_seat_can_be_bought_and_stays_sold(site: Client, queue: RedisServer, url: str) -> None:
    body = hold(site, url)
    answer = ask(site, f"/ticketing/holds/{body['holdId']}/purchase")
    assert (answer.status_code, answer.json()["status"]) == (200, "sold")
    assert ask(site, f"{url}holds", {"seat": "B4", "holder": "Ben"}).status_code == 409


def test_a_hold_that_is_over_cannot_be_bought(site: Client, queue: RedisServer, url: str) -> None:
    body = hold(site, url)
    Hold.objects.update(status="released")
    assert ask(site, f"/ticketing/holds/{body['holdId']}/purchase").status_code == 409


def test_the_form_holds_a_seat_and_says_so(site: Client, queue: RedisServer, url: str) -> None:
    page = site.post(f"{url}hold/", {"seat": "B4", "holder": "Ada & Ben"}, follow=True).content.decode()
    assert "Seat B4 is held for Ada &amp; Ben." in page


def test_the_form_says_what_is_wrong(site: Client, queue: RedisServer, url: str) -> None:
    hold(site, url)
    for fields, says in (
        ({"seat": "B4", "holder": "Ben"}, "seat B4 is taken"),
        ({"seat": "B5"}, "holder must be given"),
    ):
        page = site.post(f"{url}hold/", fields, follow=True).content.decode()
        assert says in page


def test_the_form_needs_its_token_and_the_json_address_none(queue: RedisServer, url: str) -> None:
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(f"{url}hold/", {"seat": "B4", "holder": "Ada"}).status_code == 403
    assert hold(strict, url)["seat"] == "B4"


def test_an_event_without_a_map_says_that_it_is_being_drawn(site: Client, url: str, event: Event) -> None:
    event.seat_map.delete()
    assert "The seat map is being drawn." in site.get(url).content.decode()
    assert site.get(f"{url}seat-map.svg").status_code == 404


def test_titles_are_escaped_on_the_page(site: Client, url: str) -> None:
    Event.objects.update(title="<b>Brahms</b>")
    assert "<b>Brahms" not in site.get(url).content.decode()


def test_seats_keep_the_order_of_the_hall(event: Event) -> None:
    labels = [str(seat) for seat in Seat.objects.filter(event=event)]
    assert labels[:2] + labels[9:11] == ["A1", "A2", "A10", "B1"]
