"""Draws the seats of an event as SVG: the stage, curved rows, a colour and a word for each state, a link on each free seat.

Built as a tree and never by joining strings: a title with an angle bracket in it would otherwise break the picture, or worse.
Colours are attributes, which a page that holds the drawing may overrule; it needs no style of its own, so no policy minds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from textwrap import shorten
from unicodedata import category
from xml.etree.ElementTree import Element, SubElement, tostring

from ticketing.seats import Seat, SeatState

WIDTH, STAGE_Y = 720, 70
# The rows are arcs around a point above the stage, so that all seats face it.
CENTRE_Y, FIRST_RADIUS, ROW_GAP = -420.0, 590.0, 44.0
SEAT_GAP, SEAT_RADIUS = 42.0, 15.0

FILLS = {SeatState.FREE: "#d7ecdf", SeatState.HELD: "#f6d493", SeatState.SOLD: "#c9ced8"}
STROKES = {SeatState.FREE: "#1b7a43", SeatState.HELD: "#8a5a00", SeatState.SOLD: "#5b6475"}
# What has room above the stage; the name of the drawing has all of it.
LONGEST_TITLE = 70
INK, SOFT = "#1f2430", "#5b6475"


@dataclass(frozen=True)
class Plan:
    """What a map shows: the event's title, its seats row by row, and which version of the seats this is."""

    title: str
    rows: Sequence[Sequence[Seat]]
    version: int


def draw(plan: Plan) -> str:
    """Return the map as an SVG document; the same plan always gives the same text."""
    height = row_bottom(len(plan.rows)) + 64
    svg = frame(plan, height)
    draw_stage(svg)
    for index, row in enumerate(plan.rows):
        draw_row(svg, row, FIRST_RADIUS + index * ROW_GAP)
    draw_legend(svg, [seat for row in plan.rows for seat in row], height - 26)
    return tostring(svg, encoding="unicode")


def frame(plan: Plan, height: float) -> Element:
    size = {"viewBox": f"0 0 {WIDTH} {height:.0f}", "width": str(WIDTH), "height": f"{height:.0f}"}
    # A group: within an "img" the seats would have no names.
    named = {"role": "group", "aria-label": legible(f"Seats for {plan.title}"), "data-version": str(plan.version)}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **named})
    svg.set("font-family", "system-ui, sans-serif")
    SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    text(svg, WIDTH / 2, 32, shorten(plan.title, LONGEST_TITLE, placeholder="…"), size=18, weight="600")
    return svg


def draw_stage(svg: Element) -> None:
    left, right = WIDTH / 2 - 190, WIDTH / 2 + 190
    front = STAGE_Y + 36
    back_edge = f"M {left:.0f} {STAGE_Y} L {right:.0f} {STAGE_Y}"
    front_edge = f"L {right - 24:.0f} {front} Q {WIDTH / 2:.0f} {front + 20} {left + 24:.0f} {front} Z"
    SubElement(svg, "path", {"d": f"{back_edge} {front_edge}", "fill": "#e9ecf1", "stroke": SOFT})
    text(svg, WIDTH / 2, STAGE_Y + 27, "Stage", colour=SOFT)


def draw_row(svg: Element, row: Sequence[Seat], radius: float) -> None:
    """Draw one row along its arc, its middle on the axis of the hall, and its letter at both ends."""
    if not row:
        return
    step = SEAT_GAP / radius
    first = pi / 2 + step * (len(row) - 1) / 2
    for place, seat in enumerate(row):
        draw_seat(svg, seat, *on_arc(radius, first - place * step))
    for end in (first + step, first - len(row) * step):
        x, y = on_arc(radius, end)
        text(svg, x, y + 5, row[0].row, colour=SOFT)


def draw_seat(svg: Element, seat: Seat, x: float, y: float) -> None:
    named = {"aria-label": f"Seat {seat.label}, {seat.state.value}", "data-seat": seat.label, "data-state": seat.state.value}
    if seat.state is SeatState.FREE:
        # Followed where no script runs: the page comes back with the seat filled in.
        group = SubElement(svg, "a", {"href": f"?seat={seat.label}#hold", "id": f"seat-{seat.label}", **named})
    else:
        group = SubElement(svg, "g", {"role": "img", **named})
    place = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{SEAT_RADIUS:.0f}"}
    SubElement(
        group, "circle", {**place, "fill": FILLS[seat.state], "stroke": STROKES[seat.state], "stroke-width": "1.5"}
    )
    text(group, x, y + 4, str(seat.number), size=12)
    if seat.state is SeatState.SOLD:
        cross_out(group, x, y)


def cross_out(group: Element, x: float, y: float) -> None:
    """Strike a sold seat through: colour alone would leave some readers without the difference."""
    reach = SEAT_RADIUS * 0.7
    ends = {"x1": f"{x - reach:.1f}", "y1": f"{y - reach:.1f}", "x2": f"{x + reach:.1f}", "y2": f"{y + reach:.1f}"}
    SubElement(group, "line", {**ends, "stroke": STROKES[SeatState.SOLD], "stroke-width": "1.5"})


def draw_legend(svg: Element, seats: Iterable[Seat], y: float) -> None:
    states = [seat.state for seat in seats]
    for place, state in enumerate(SeatState):
        x = WIDTH / 2 - 150 + place * 120
        mark = SubElement(svg, "g", {"data-state": state.value})
        colours = {"fill": FILLS[state], "stroke": STROKES[state]}
        SubElement(mark, "circle", {"cx": f"{x:.0f}", "cy": f"{y:.0f}", "r": "8", **colours})
        label = text(svg, x + 16, y + 5, f"{state.value} {states.count(state)}", anchor="start")
        label.set("data-count", state.value)


def text(
    parent: Element,
    x: float,
    y: float,
    words: str,
    *,
    size: int = 14,
    weight: str = "400",
    colour: str = INK,
    anchor: str = "middle",
) -> Element:
    look = {"font-size": str(size), "font-weight": weight, "fill": colour, "text-anchor": anchor}
    written = SubElement(parent, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **look})
    written.text = legible(words)
    return written


def legible(words: str) -> str:
    """Return words without what XML has no place for: a control character would make the whole drawing unreadable."""
    return "".join(character for character in words if category(character) not in {"Cc", "Cs", "Cn"})


def on_arc(radius: float, angle: float) -> tuple[float, float]:
    return WIDTH / 2 + radius * cos(angle), CENTRE_Y + radius * sin(angle)


def row_bottom(rows: int) -> float:
    """Return the lowest point of the last row, which is its middle."""
    return CENTRE_Y + FIRST_RADIUS + max(0, rows - 1) * ROW_GAP + SEAT_RADIUS
