"""The pages by plain forms, as where no script runs, with every refusal; and what a page that is open asks for again."""

from __future__ import annotations

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from tests.support.events import events
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch
from ticketing.box_office import MOST_HELD_BY_ONE, buy, place_hold
from ticketing.models import Event, Hold, Seat, SeatMap, Venue

pytestmark = pytest.mark.django_db(transaction=True)
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def url(event: Event) -> str:
    return f"/ticketing/events/{event.pk}/"


def held(visitor: Client, url: str, seat: str = "B4", holder: str = "Ada") -> str:
    """Hold a seat by the page's form; returns the id of the hold."""
    before = set(Hold.objects.values_list("pk", flat=True))
    assert visitor.post(f"{url}hold/", {"seat": seat, "holder": holder}).status_code == 302
    [made] = set(Hold.objects.values_list("pk", flat=True)) - before
    return str(made)


def text(answer) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", answer.content.decode()))


def test_the_page_holds_the_stored_drawing_with_a_link_on_each_free_seat(site: Client, queue: RedisServer, url: str) -> None:
    page = site.get(url).content.decode()
    assert 'href="?seat=B4#hold"' in page
    assert 'value="B4"' in site.get(f"{url}?seat=B4").content.decode()
    assert "://" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_the_map_is_served_once_and_then_known(site: Client, url: str) -> None:
    answer = site.get(f"{url}seat-map.svg")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/svg+xml")
    assert b'data-seat="B4"' in answer.content
    again = site.get(f"{url}seat-map.svg", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_seat_is_held_bought_and_shown_as_bought(site: Client, queue: RedisServer, url: str) -> None:
    hold = held(site, url)
    page = site.get(url)
    assert "Seat B4 is held for Ada." in text(page)
    assert "Buy seat B4" in text(page)
    assert "Sold to you: B4." in text(site.post(f"{url}purchase/", {"hold": hold}, follow=True))
    assert "bought for Ada" in text(site.get(url))
    assert Hold.objects.get().status == "sold"


def test_several_seats_are_bought_together_or_none(site: Client, queue: RedisServer, url: str) -> None:
    holds = [held(site, url, seat) for seat in ("B4", "B5")]
    Hold.objects.filter(pk=holds[1]).update(status="released")
    answer = site.post(f"{url}purchase/", {"hold": holds})
    assert (answer.status_code, "the hold on seat B5 is over" in text(answer)) == (409, True)
    assert Hold.objects.get(pk=holds[0]).status == "held"


def test_a_seat_that_is_given_back_is_free_and_no_longer_listed(site: Client, queue: RedisServer, url: str) -> None:
    hold = held(site, url)
    page = site.post(f"{url}release/", {"hold": hold}, follow=True)
    assert "Given back: B4." in text(page)
    assert "You hold no seat." in text(page)
    held(Client(), url, holder="Ben")


def test_a_hold_that_ran_out_is_told_of(site: Client, queue: RedisServer, url: str) -> None:
    held(site, url)
    tag = site.get(f"{url}live/").headers["ETag"]
    Hold.objects.update(expires_at="2026-01-01T00:00Z")
    assert "has run out" not in text(site.get(f"{url}live/"))  # long ago
    Hold.objects.update(expires_at=Event.objects.get().seat_map.drawn_at)
    page = site.get(f"{url}live/", headers={"If-None-Match": tag})
    assert "Your hold on seat B4 has run out." in text(page)


def test_of_two_visitors_one_gets_the_seat_and_the_other_a_clear_word(site: Client, queue: RedisServer, url: str) -> None:
    held(site, url)
    answer = Client().post(f"{url}hold/", {"seat": "b4", "holder": "Ben"})
    assert (answer.status_code, "Sorry: seat B4 is taken." in text(answer)) == (409, True)


def test_a_second_click_on_ones_own_seat_is_no_refusal(site: Client, queue: RedisServer, url: str) -> None:
    held(site, url)
    again = site.post(f"{url}hold/", {"seat": "B4", "holder": "Ada"}, follow=True)
    assert "You hold seat B4 already." in text(again)
    assert Hold.objects.count() == 1


def test_one_visitor_may_hold_so_many_seats_and_no_more(site: Client, queue: RedisServer, url: str) -> None:
    for number in range(1, MOST_HELD_BY_ONE + 1):
        held(site, url, f"F{number}")
    answer = site.post(f"{url}hold/", {"seat": "A1", "holder": "Ada"})
    assert (answer.status_code, "8 seats at a time" in text(answer)) == (409, True)


@pytest.mark.parametrize("act", ["purchase", "release"])
def test_a_hold_of_another_visitor_is_as_unknown_as_a_forged_one(
    site: Client, queue: RedisServer, url: str, act: str
) -> None:
    theirs, stranger = held(site, url), Client()
    held(stranger, url, "C1")
    for forged in (theirs, str(uuid.uuid4()), "x", "", SCRIPT):
        answer = stranger.post(f"{url}{act}/", {"hold": forged})
        assert (answer.status_code, "hold must name seats that you hold" in text(answer)) == (400, True)
    assert Hold.objects.get(pk=theirs).status == "held"


def test_what_the_form_lacks_is_said_beside_what_was_typed(site: Client, queue: RedisServer, url: str) -> None:
    for fields, says in (
        ({"seat": "B5"}, "holder must be given"),
        ({"seat": "4B", "holder": "Ada"}, "such as B12"),
        ({"seat": "Z99", "holder": "Ada"}, "there is no seat Z99"),
        ({"seat": "B5", "holder": "A" * 101}, "at most 100 characters"),
        ({"seat": "B5", "holder": "A\x07b"}, "without control characters"),
    ):
        answer = site.post(f"{url}hold/", fields)
        assert (answer.status_code, says in text(answer)) == (400, True), fields


def test_forms_need_their_token_and_their_address_leads_back_to_the_page(queue: RedisServer, url: str) -> None:
    strict = Client(enforce_csrf_checks=True)
    for act in ("hold", "purchase", "release"):
        assert strict.post(f"{url}{act}/", {"seat": "B4", "holder": "Ada"}).status_code == 403
        assert strict.get(f"{url}{act}/?seat=B4").headers["Location"] == f"{url}?seat=B4"
        assert strict.delete(f"{url}{act}/").status_code in {403, 405}
    assert not Hold.objects.exists()


def test_a_body_that_is_too_large_or_broken_is_400(site: Client, url: str) -> None:
    too_large = {"seat": "B4", "holder": "A" * 3_000_000}
    broken = {"content_type": "multipart/form-data; boundary=x", "data": b"--x\r\nbroken"}
    assert site.post(f"{url}hold/", too_large, content_type="application/x-www-form-urlencoded").status_code == 400
    assert site.generic("POST", f"{url}hold/", **broken).status_code == 400


@pytest.mark.parametrize("path", ["", "live/", "seat-map.svg"])
@pytest.mark.parametrize("event_id", ["999", "9" * 40])
def test_an_event_that_is_not_there_is_404(site: Client, queue: RedisServer, event: Event, path: str, event_id: str) -> None:
    assert site.get(f"/ticketing/events/{event_id}/{path}").status_code == 404


def test_with_the_queue_down_503_the_page_says_so_and_the_seat_is_free(site: Client, queue_down: None, url: str) -> None:
    """H4: an answer that may be tried again, and nothing half-done."""
    answer = site.post(f"{url}hold/", {"seat": "B4", "holder": "Ada"})
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    assert "Seats cannot be held just now" in text(answer)
    assert Seat.objects.with_current_hold().get(row="B", number=4, event__slug="chamber-evening").hold_status is None


def test_with_the_queue_frozen_the_page_comes_in_time_and_says_so(site: Client, queue: RedisServer, url: str) -> None:
    """H4: two looks at the queue, a second each at most; the hold is refused, and undone."""
    queue.freeze()
    began = Stopwatch()
    answer = site.post(f"{url}hold/", {"seat": "B4", "holder": "Ada"})
    assert (answer.status_code, began.elapsed_s < 10) == (503, True)
    assert "this page goes on trying" in text(answer)
    queue.thaw()
    cache.clear()
    assert "this page goes on trying" not in text(site.get(f"{url}live/"))
    held(site, url)


def test_a_seat_can_be_bought_while_the_queue_is_down_and_is_drawn_later(
    site: Client, queue: RedisServer, url: str
) -> None:
    """H4: what is committed is said, not 503; the draw that could not be asked for is asked for by the next look."""
    hold = held(site, url)
    SeatMap.objects.update(version=Event.objects.get().seats_version)
    queue.kill()
    answer = site.post(f"{url}purchase/", {"hold": hold}, follow=True)
    assert "Sold to you: B4." in text(answer)
    assert "The map is being drawn anew." in text(answer)
    queue.start()
    cache.clear()
    site.get(f"{url}live/")
    assert [event.kind for event in events(queue.client(), "seat-maps")] == ["added", "waiting"]


def test_an_open_page_costs_a_304_until_something_changes(site: Client, queue: RedisServer, url: str) -> None:
    answer = site.get(f"{url}live/")
    known = {"If-None-Match": answer.headers["ETag"]}
    again = site.get(f"{url}live/", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    held(site, url)
    assert site.get(f"{url}live/", headers=known).status_code == 200


def test_an_event_without_a_map_says_that_it_is_being_drawn(site: Client, queue: RedisServer, url: str, event: Event) -> None:
    event.seat_map.delete()
    assert "The seat map is being drawn." in text(site.get(url))
    assert site.get(f"{url}seat-map.svg").status_code == 404


def test_what_is_written_anywhere_stays_text(site: Client, queue: RedisServer, url: str, event: Event) -> None:
    Event.objects.update(title=SCRIPT)
    Venue.objects.update(name=SCRIPT)
    event.refresh_from_db()
    from ticketing.seat_map import draw  # noqa: PLC0415

    SeatMap.store(event, draw(event.plan()), 99)
    held(site, url, holder=SCRIPT)
    for path in ("/ticketing/", url, f"{url}?seat={SCRIPT}", f"{url}live/", f"{url}seat-map.svg"):
        assert SCRIPT not in site.get(path).content.decode(), path


def test_a_session_that_was_tampered_with_is_a_new_visitor(site: Client, queue: RedisServer, url: str) -> None:
    held(site, url)
    site.cookies["sessionid"] = SCRIPT
    assert "You hold no seat." in text(site.get(url))


def test_seats_keep_the_order_of_the_hall(event: Event) -> None:
    labels = [str(seat) for seat in Seat.objects.filter(event=event)]
    assert labels[:2] + labels[9:11] == ["A1", "A2", "A10", "B1"]


def test_the_box_office_frees_a_seat_in_the_admin_and_deletes_no_hold(queue: RedisServer, event: Event) -> None:
    seats = Seat.objects.select_related("event").filter(event=event)
    held, _ = place_hold(seats[0], "Ada")
    sold, _ = place_hold(seats[1], SCRIPT)
    buy(sold)
    admin = Client()
    admin.force_login(User.objects.create_superuser("ada"))
    chosen = {"action": "free_seats", "_selected_action": [str(held.pk), str(sold.pk)]}
    page = admin.post("/admin/ticketing/hold/", chosen, follow=True)
    assert "1 freed" in text(page)
    assert SCRIPT not in page.content.decode()
    assert sorted(Hold.objects.values_list("status", flat=True)) == ["released", "sold"]
    assert admin.post(f"/admin/ticketing/hold/{held.pk}/delete/", {"post": "yes"}).status_code == 403
