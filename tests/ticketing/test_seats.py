"""The rules of holds, by the clock that is handed in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ticketing.seats import HoldStatus, Seat, SeatState, left_ms, split_label, state_of

NOW = datetime(2026, 5, 4, 20, 0, tzinfo=UTC)
MS = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("status", "expires_at", "state"),
    [
        (None, None, SeatState.FREE),
        (HoldStatus.HELD, NOW + MS, SeatState.HELD),
        (HoldStatus.HELD, NOW, SeatState.FREE),
        (HoldStatus.HELD, NOW - MS, SeatState.FREE),
        (HoldStatus.RELEASED, NOW + MS, SeatState.FREE),
        (HoldStatus.SOLD, NOW - MS, SeatState.SOLD),
    ],
)
def test_a_hold_counts_until_it_has_run_out_and_a_sale_for_ever(status, expires_at, state: SeatState) -> None:
    assert state_of(status, expires_at, NOW) is state


@pytest.mark.parametrize(
    ("until", "left"), [(MS, 1), (1500 * MS, 1500), (timedelta(microseconds=1), 1), (timedelta(), 0), (-MS, 0)]
)
def test_what_is_left_of_a_hold_is_rounded_up_and_never_negative(until: timedelta, left: int) -> None:
    assert left_ms(NOW + until, NOW) == left


@pytest.mark.parametrize(("label", "place"), [("B4", ("B", 4)), ("c12", ("C", 12))])
def test_a_label_is_a_row_and_a_number(label: str, place: tuple[str, int]) -> None:
    assert split_label(label) == place
    assert Seat(*place).label == label.upper()


@pytest.mark.parametrize("label", ["", "B", "4", "44", "B-1", "B1234", "Ä4", "BB4", "B²", "ß4", "B٣"])
def test_any_other_label_is_refused_with_an_example(label: str) -> None:
    with pytest.raises(ValueError, match="such as B12"):
        split_label(label)
