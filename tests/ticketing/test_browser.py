"""The seat map in a real browser: a seat is held and comes free before one's eyes, two want the same, nothing but keys is used,
and what does not answer is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now

from queue_kit import control
from tests.support.browser import PHONE, barriers, browser, fits, keep_picture, open_page
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.ticketing.conftest import StartSiteWorker
from ticketing.box_office import place_hold
from ticketing.models import Event, Hold, Seat, SeatMap
from ticketing.seat_map import draw

__all__ = ["browser", "open_page"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., Any]
DESK = {"width": 1280, "height": 900}


@pytest.fixture
def opened(queue: RedisServer, event: Event, open_page: OpenPage) -> OpenPage:
    """Open the event's page as a visitor of one's own, with one's name filled in."""

    def start(name: str = "", **options: Any) -> Any:
        page = open_page(**options)
        page.goto(f"/ticketing/events/{event.pk}/")
        page.get_by_label("Your name").fill(name)
        # Gone after a reload, which no page here may need.
        page.evaluate("document.body.dataset.same = 'page'")
        return page

    return start


def seat(page: Any, label: str, state: str) -> Any:
    return page.locator(f'#map [aria-label="Seat {label}, {state}"]')


def message(page: Any, words: str) -> None:
    page.locator("#messages, #mine", has_text=words).first.wait_for()


def same(page: Any) -> bool:
    return page.evaluate("document.body.dataset.same") == "page"


def test_a_hold_is_seen_to_run_out_and_its_seat_to_come_free(
    opened: OpenPage, start_site_worker: StartSiteWorker, queue: RedisServer
) -> None:
    """Held by one, seen by another, released by its job, drawn by the next: nobody reloads. The ten minutes are over at once."""
    start_site_worker()
    ada, ben = opened("Ada"), opened("Ben")
    seat(ada, "B4", "free").click()
    message(ada, "Seat B4 is held for Ada.")
    left = ada.locator(".left").inner_text()
    assert re.fullmatch(r"(10:00|9:\d\d) left", left)
    seat(ben, "B4", "held").wait_for()
    wait_until(lambda: ada.locator(".left").inner_text() != left, says="the clock goes")
    Hold.objects.update(expires_at=Now())
    [job] = queue.client().zrange("qwk:q:holds:delayed", 0, -1)
    control.promote(job)
    message(ada, "Your hold on seat B4 has run out.")
    seat(ben, "B4", "free").wait_for()
    seat(ada, "B4", "free").wait_for()
    assert (same(ada), same(ben)) == (True, True)
    assert Hold.objects.get().status == "released"


def test_what_is_said_of_a_hold_goes_with_it(opened: OpenPage, event: Event) -> None:
    """Given back in another window of the same visitor's; the others' messages stay."""
    page = opened("Ada <i>")
    seat(page, "B4", "free").click()
    message(page, "Seat B4 is held for Ada <i>.")
    other = page.context.new_page()
    other.goto(page.url)
    other.get_by_role("button", name="Give back seat B4").click()
    message(other, "Given back: B4.")
    page.locator("#messages:not(:has(.message))").wait_for(state="attached")
    assert same(page)
    seat(other, "B5", "free").click()
    message(other, "Seat B5 is held for Ada <i>.")
    page.get_by_role("button", name="Buy seat B5").click()
    message(page, "Sold to you: B5.")
    other.locator("#messages:not(:has(.message))").wait_for(state="attached")
    assert page.locator("#messages .message").count() == 1


def test_of_two_buyers_one_gets_the_seat_and_the_other_is_told(opened: OpenPage) -> None:
    ada, ben = opened("Ada"), opened("Ben", viewport=PHONE)
    seat(ada, "C5", "free").click()
    message(ada, "Seat C5 is held for Ada.")
    with ben.expect_response("**/hold/") as answer:
        seat(ben, "C5", "free").click()
    assert answer.value.status == 409
    message(ben, "Sorry: seat C5 is taken.")
    ada.get_by_role("button", name="Buy seat C5").click()
    message(ada, "Sold to you: C5.")
    assert Hold.objects.values_list("holder", "status").get() == ("Ada", "sold")


def test_seats_are_found_held_and_bought_by_keys_alone(opened: OpenPage) -> None:
    page = opened()
    page.get_by_label("Your name").focus()
    page.keyboard.type("Ada")
    focus_by_tab(page, "document.activeElement.dataset.seat")
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    chosen = page.evaluate("document.activeElement.dataset.seat")
    assert chosen != "A1"
    page.keyboard.press("Enter")
    message(page, f"Seat {chosen} is held for Ada.")
    focus_by_tab(page, "document.activeElement.id === 'purchase'")
    page.keyboard.press("Enter")
    message(page, f"Sold to you: {chosen}.")
    assert Hold.objects.get().status == "sold"


def focus_by_tab(page: Any, wanted: str, most: int = 12) -> None:
    """Press Tab until the focus is where it is wanted; a map of a hundred stops would never let one through."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(wanted):
            return
    raise AssertionError(f"{wanted} is not within {most} stops")


def test_focus_stays_on_the_map_when_its_seat_is_taken(opened: OpenPage, event: Event) -> None:
    page = opened("Ada")
    seat(page, "B4", "free").focus()
    place_hold(Seat.objects.select_related("event").get(event=event, row="B", number=4), "Ben")
    plan = event.plan()
    SeatMap.store(event, draw(plan), plan.version)
    seat(page, "B4", "held").wait_for()
    assert page.evaluate("document.activeElement.dataset.seat") in {"B3", "B5"}


def test_with_redis_away_the_page_says_so_and_recovers(opened: OpenPage, queue: RedisServer) -> None:
    """H4: a hold is refused with 503, nothing is kept of it, and the same page holds the seat once Redis is back."""
    page = opened("Ada")
    queue.kill()
    page.locator("#notices", has_text="Seats cannot be held just now").wait_for()
    with page.expect_response("**/hold/") as answer:
        seat(page, "B4", "free").click()
    assert (answer.value.status, answer.value.headers["retry-after"]) == (503, "2")
    message(page, "Nothing was changed")
    assert not Hold.objects.filter(status="held").exists()
    queue.start()
    page.locator("#notices:not(:has(p))").wait_for(state="attached")
    seat(page, "B4", "free").click()
    message(page, "Seat B4 is held for Ada.")
    assert same(page)


def test_with_the_site_away_the_page_says_so_and_recovers(opened: OpenPage) -> None:
    page = opened("Ada")
    page.route("**/live/", lambda route: route.abort())
    page.route("**/hold/", lambda route: route.abort())
    page.locator("#live-status", has_text="The site does not answer; trying again.").wait_for()
    seat(page, "B4", "free").click()
    message(page, "look at the map before you ask again")
    page.unroute("**/live/")
    page.unroute("**/hold/")
    page.locator("#live-status:empty").wait_for(state="attached")
    seat(page, "B4", "free").click()
    message(page, "Seat B4 is held for Ada.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_and_a_phone_has_room(opened: OpenPage, event: Event, scheme: str) -> None:
    page = opened("Ada", viewport=PHONE, color_scheme=scheme)
    for label, words in (("B4", "held"), ("B5", "held")):
        seat(page, label, "free").click()
        message(page, f"Seat {label} is {words}")
    page.get_by_role("button", name="Give back seat B4").click()
    message(page, "Given back: B4.")
    page.get_by_role("button", name="Buy seat B5").click()
    message(page, "Sold to you: B5.")
    seat(page, "C7", "free").click()
    message(page, "Seat C7 is held")
    plan = event.plan()
    SeatMap.store(event, draw(plan), plan.version)
    seat(page, "C7", "held").wait_for()
    assert (fits(page), barriers(page)) == (True, [])
    keep_picture(page, f"seats-phone-{scheme}")
    page.set_viewport_size(DESK)
    assert (fits(page), barriers(page)) == (True, [])
    keep_picture(page, f"seats-{scheme}")


def test_without_scripts_plain_forms_do_it_all(queue: RedisServer, event: Event, browser: Any, live_server: Any) -> None:
    page = browser.new_context(base_url=live_server.url, java_script_enabled=False).new_page()
    page.goto(f"/ticketing/events/{event.pk}/")
    seat(page, "B4", "free").click()
    page.get_by_label("Your name").fill("<b>Ada</b>")
    page.get_by_role("button", name="Hold the seat").click()
    message(page, "Seat B4 is held for <b>Ada</b>.")
    page.get_by_role("button", name="Buy seat B4").click()
    message(page, "Sold to you: B4.")


def test_a_page_whose_token_is_gone_says_what_to_do(opened: OpenPage) -> None:
    page = opened("Ada")
    page.context.clear_cookies()
    seat(page, "B4", "free").click()
    message(page, "reload the page and send it again")


def test_seats_clicked_in_haste_are_all_held_and_a_double_click_is_one_hold(opened: OpenPage) -> None:
    page = opened("Ada")
    page.evaluate("for (const seat of ['B4', 'B5', 'B5', 'B6']) document.getElementById(`seat-${seat}`).dispatchEvent("
                  "new MouseEvent('click', { bubbles: true, cancelable: true }))")
    page.get_by_role("button", name="Buy these 3 seats").dblclick()
    message(page, "Sold to you: B4, B5, B6.")
    assert list(Hold.objects.values_list("status", flat=True)) == ["sold"] * 3


def test_a_name_is_asked_for_before_a_seat_is_held(opened: OpenPage) -> None:
    page = opened()
    seat(page, "B4", "free").click()
    assert page.evaluate("document.activeElement.name") == "holder"
    page.keyboard.type("Ada")
    page.keyboard.press("Enter")
    message(page, "Seat B4 is held for Ada.")
