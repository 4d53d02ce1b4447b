"""When a hold is over: once, by the database's clock alone, and never together with a sale; on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tests.support.redis_server import RedisServer
from ticketing.box_office import HoldOver, buy, place_hold, release_if_due, tidy
from ticketing.models import Event, Hold, Seat
from ticketing.tasks import release_hold


def changes(event: Event) -> int:
    """How many changes there must have been: each hold was made once, and ended at most once."""
    ended = Hold.objects.filter(seat__event=event).exclude(status="held").count()
    return Hold.objects.filter(seat__event=event).count() + ended


def counted_since(event: Event) -> int:
    return Event.objects.get(pk=event.pk).seats_version - event.seats_version


def all_at_once(acts: Iterable[Callable[[], Any]]) -> list[Any]:
    acts = list(acts)
    gate = Barrier(len(acts))

    def run(act: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return act()
        except HoldOver:
            return "over"
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_a_purchase_at_the_moment_of_expiry_is_sold_or_freed_and_never_both(
    queue: RedisServer, event_on_either: Event, settings: Any
) -> None:
    """Twenty times, four seats each: two buy it while two give it back, as it runs out."""
    settings.TICKETING_HOLD_MS = 40
    seats = list(Seat.objects.select_related("event").filter(event=event_on_either)[:20])
    for number, seat in enumerate(seats):
        hold, _ = place_hold(seat, f"buyer {number}")
        until = hold.expires_at - timedelta(milliseconds=2 * number)
        answers = all_at_once([at(until, buy, hold), at(until, release, hold), at(until, release, hold), at(until, buy, hold)])
        settle(hold)
        assert (hold.status, answers.count("over")) in {("sold", 0), ("released", 2)}, number
    assert counted_since(event_on_either) == changes(event_on_either)


def at(instant: Any, act: Callable[[Hold], Any], hold: Hold) -> Callable[[], Any]:
    """Do something to a hold as the instant comes; the last milliseconds are waited for by looking at the clock."""

    def later() -> Any:
        while timezone.now() < instant:
            pass
        return act(hold)

    return later


def release(hold: Hold) -> Any:
    return release_hold.apply(kwargs={"hold_id": str(hold.pk)}, throw=True).get()


def settle(hold: Hold) -> None:
    """What the job that is due next does."""
    while release_if_due(hold):
        pass
    hold.refresh_from_db()


def test_of_many_runs_that_end_a_hold_one_frees_the_seat(queue: RedisServer, event_on_either: Event) -> None:
    """A rerun, a second worker and the tidying meet: the change is counted once."""
    seat = Seat.objects.select_related("event").filter(event=event_on_either).first()
    hold, _ = place_hold(seat, "Ada")
    Hold.objects.update(expires_at=timezone.now())
    tidied = [lambda: tidy(event_on_either)] * 2
    all_at_once([*[lambda: release_if_due(hold)] * 6, *tidied])
    assert (Hold.objects.get().status, counted_since(event_on_either)) == ("released", 2)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_process_whose_clock_is_wrong_decides_as_the_others_do(
    queue: RedisServer, event_on_either: Event, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Web and worker may disagree by an hour: a hold in force is kept and can be bought, one that is over can not."""
    first, second = Seat.objects.select_related("event").filter(event=event_on_either)[:2]
    kept, over = place_hold(first, "Ada")[0], place_hold(second, "Ben")[0]
    Hold.objects.filter(pk=over.pk).update(expires_at=timezone.now() - timedelta(milliseconds=1))
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(hours=hours))
    assert 590_000 < release_if_due(kept) <= 600_000
    assert {seat.label: seat.state.value for seat in event_on_either.plan().rows[0]}["A1"] == "held"
    buy(kept)
    with pytest.raises(HoldOver):
        buy(over)
    assert (release_if_due(over), statuses()) == (0, ["released", "sold"])
    late, _ = place_hold(second, "Cem")
    assert abs((late.expires_at - right()).total_seconds() - 600) < 30


def statuses() -> list[str]:
    return sorted(Hold.objects.values_list("status", flat=True))


def test_what_a_process_left_undone_that_died_after_its_commit_is_done_by_the_next_look(
    queue: RedisServer, event_on_either: Event
) -> None:
    """Killed between the commit and the send: a hold that no job will end, and a sale that no job will draw."""
    first, second = Seat.objects.filter(event=event_on_either)[:2]
    past = timezone.now() - timedelta(seconds=1)
    Hold.objects.create(seat=first, holder="Ada", expires_at=past)
    Hold.objects.create(seat=second, holder="Ben", expires_at=past, status="sold")
    event_on_either.touch_seats()
    tidy(event_on_either)
    assert statuses() == ["released", "sold"]
    assert queue.client().zcard("qwk:q:seat-maps:wait") == 1
