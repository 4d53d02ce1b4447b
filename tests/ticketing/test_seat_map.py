"""The drawing: every seat is in it, within the frame, and nothing that a title can contain breaks it."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticketing.seat_map import WIDTH, Plan, draw
from ticketing.seats import Seat, SeatState

SVG = "{http://www.w3.org/2000/svg}"


def drawn(rows: dict[str, int], title: str = "Chamber evening", **states: SeatState) -> Element:
    seats = [[seat_of(row, number, states) for number in range(1, size + 1)] for row, size in rows.items()]
    return fromstring(draw(Plan(title, seats, version=3)))


def seat_of(row: str, number: int, states: dict[str, SeatState]) -> Seat:
    return Seat(row, number, states.get(f"{row}{number}", SeatState.FREE))


def states_in(svg: Element) -> dict[str, str]:
    return {seat.attrib["data-seat"]: seat.attrib["data-state"] for seat in seats_in(svg)}


def seats_in(svg: Element) -> list[Element]:
    return [element for element in svg.iter() if "data-seat" in element.attrib]


def words_in(svg: Element) -> list[str | None]:
    return [element.text for element in svg.iter(f"{SVG}text")]


def test_each_seat_is_drawn_once_with_its_state() -> None:
    svg = drawn({"A": 2, "B": 1}, A2=SeatState.HELD, B1=SeatState.SOLD)
    assert states_in(svg) == {"A1": "free", "A2": "held", "B1": "sold"}


def test_the_legend_counts_the_states() -> None:
    words = words_in(drawn({"A": 5}, A1=SeatState.SOLD, A2=SeatState.HELD))
    assert {"free 3", "held 1", "sold 1"} <= set(words)


def test_a_sold_seat_is_struck_through_and_not_only_coloured() -> None:
    svg = drawn({"A": 2}, A1=SeatState.SOLD)
    assert len(list(svg.iter(f"{SVG}line"))) == 1


def test_every_seat_lies_within_the_frame_and_apart_from_the_others() -> None:
    svg = drawn({"A": 10, "B": 11, "C": 12, "D": 13, "E": 14, "F": 14})
    places = [
        (float(c.attrib["cx"]), float(c.attrib["cy"])) for seat in seats_in(svg) for c in seat.iter(f"{SVG}circle")
    ]
    assert all(20 < x < WIDTH - 20 and 100 < y < float(svg.attrib["height"]) - 50 for x, y in places)
    assert min(abs(x - u) + abs(y - v) for i, (x, y) in enumerate(places) for u, v in places[:i]) > 30


def test_the_picture_names_itself_its_version_and_each_seat() -> None:
    svg = drawn({"A": 2}, A2=SeatState.SOLD)
    assert (svg.attrib["aria-label"], svg.attrib["data-version"]) == ("Seats for Chamber evening", "3")
    assert [seat.attrib["aria-label"] for seat in seats_in(svg)] == ["Seat A1, free", "Seat A2, sold"]


def test_a_free_seat_is_a_link_and_no_other() -> None:
    links = list(drawn({"A": 3}, A2=SeatState.SOLD, A3=SeatState.HELD).iter(f"{SVG}a"))
    assert [(link.attrib["data-seat"], link.attrib["href"]) for link in links] == [("A1", "?seat=A1#hold")]


@pytest.mark.parametrize("title", ["<script>alert(1)</script>", "Brahms & Bach", '"quoted"', "]]>", "ა\u200cب"])
def test_a_title_stays_text_whatever_is_in_it(title: str) -> None:
    svg = drawn({"A": 1}, title=title)
    assert title in words_in(svg)
    assert not list(svg.iter(f"{SVG}script"))


@given(st.text())
def test_no_title_makes_the_drawing_unreadable(title: str) -> None:
    assert states_in(drawn({"A": 1}, title=title)) == {"A1": "free"}


@given(st.dictionaries(st.sampled_from("ABCDEFGH"), st.integers(0, 14)))
def test_any_hall_can_be_drawn_and_gives_the_same_picture_twice(rows: dict[str, int]) -> None:
    plan = Plan("Hall", [[Seat(row, n) for n in range(1, size + 1)] for row, size in rows.items()], version=1)
    assert draw(plan) == draw(plan)
    assert len(states_in(fromstring(draw(plan)))) == sum(rows.values())
