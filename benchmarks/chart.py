"""Bars as an SVG; a table of fifteen rows does not show at a glance who is where."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from html import escape

WIDTH, ROW, NAMES, NUMBERS, HEAD = 1000, 20, 150, 60, 34
PLAIN, MARKED = "#aab7b8", "#1e8449"


def bars(panels: Mapping[str, Mapping[str, float]], marked: Collection[str] = ()) -> str:
    """Return panels side by side, each with a bar for each name, longest first; the marked ones in another colour."""
    across = WIDTH / len(panels)
    height = HEAD + ROW * max(map(len, panels.values())) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for place, (title, values) in enumerate(panels.items()):
        parts += _panel(place * across, across, title, values, marked)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left: float, across: float, title: str, values: Mapping[str, float], marked: Collection[str]) -> list[str]:
    parts = [f'<text x="{left + 10:.0f}" y="20" font-weight="bold">{escape(title)}</text>']
    most, room = max(values.values()), across - NAMES - NUMBERS
    begin = left + NAMES
    for row, (name, value) in enumerate(sorted(values.items(), key=lambda item: -item[1])):
        top, long = HEAD + ROW * row, room * value / most
        colour = MARKED if name in marked else PLAIN
        parts += [
            f'<text x="{begin - 6:.0f}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{begin:.0f}" y="{top + 2}" width="{long:.1f}" height="{ROW - 5}" fill="{colour}"/>',
            f'<text x="{begin + long + 5:.1f}" y="{top + 13}">{value:,.0f}</text>',
        ]
    return parts
