"""Draws how long answers took, as an SVG that stands alone and reads in light and dark; pure, and so tested without a site.

A table of percentiles says that one way is slower; the two curves show for how many, and by how much.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 56, 56
SHARES = (0, 50, 95, 100)

STYLE = """
  svg { --paper: #ffffff; --ink: #1f2430; --soft: #535c6c; --line: #d9dde5; --c0: #a34a00; --c1: #1a5799; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #14171c; --ink: #e8ebf1; --soft: #a9b2c1; --line: #363d49; --c0: #f0a35e; --c1: #8ab8f0; }
  }
  text { font: 13px system-ui, sans-serif; fill: var(--soft); }
  .title { font-size: 16px; font-weight: 600; fill: var(--ink); }
  .paper { fill: var(--paper); }
  .grid { stroke: var(--line); }
  polyline { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
  .s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); stroke-dasharray: 7 3; }
  .t0 { fill: var(--c0); font-weight: 600; } .t1 { fill: var(--c1); font-weight: 600; }
"""


def latency_chart(title: str, series: Mapping[str, Sequence[float]]) -> str:
    """Return the drawing: for each named series (two at the most) the share answered within a time, times on a log scale.

    :param series: milliseconds, in any order.
    """
    scale = Scale([value for values in series.values() for value in values])
    parts = [f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>', *grid(scale)]
    for number, (name, values) in enumerate(series.items()):
        parts += curve(scale, number, name, sorted(values))
    said = escape(title, {'"': "&quot;"})
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">'
    paper = f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *parts, "</svg>", ""])


class Scale:
    """Where a time and a share lie: whole decades of milliseconds from left to right, 0 to 100 % from below."""

    def __init__(self, values: Sequence[float]) -> None:
        known = [max(value, 1.0) for value in values] or [1.0]
        self.first = math.floor(math.log10(min(known)))
        self.last = max(self.first + 1, math.ceil(math.log10(max(known))))

    def x(self, value_ms: float) -> float:
        share = (math.log10(max(value_ms, 10.0**self.first)) - self.first) / (self.last - self.first)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, percent: float) -> float:
        return round(HEIGHT - BOTTOM - percent / 100 * (HEIGHT - TOP - BOTTOM), 1)


def grid(scale: Scale) -> Iterator[str]:
    for decade in range(scale.first, scale.last + 1):
        x = scale.x(10.0**decade)
        yield f'<line class="grid" x1="{x}" y1="{scale.y(100)}" x2="{x}" y2="{scale.y(0)}"/>'
        yield f'<text x="{x}" y="{HEIGHT - 34}" text-anchor="middle">{readable(10.0**decade)}</text>'
    for percent in SHARES:
        y = scale.y(percent)
        yield f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{percent} %</text>'
    yield f'<text x="{LEFT}" y="{HEIGHT - 12}">answered within, after pressing "Hand in"</text>'


def curve(scale: Scale, number: int, name: str, ranked: Sequence[float]) -> Iterator[str]:
    """Yield one series: a line that climbs by one candidate at each answer, and its name where it arrives."""
    if not ranked:
        return
    points = [(scale.x(ranked[0]), scale.y(0))]
    points += [(scale.x(value), scale.y(100 * (place + 1) / len(ranked))) for place, value in enumerate(ranked)]
    yield f'<polyline class="s{number}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'
    x, y = WIDTH - RIGHT + 12, TOP + 4 + 40 * number
    yield f'<text class="t{number}" x="{x}" y="{y}">{escape(name)}</text>'
    yield f'<text x="{x}" y="{y + 16}">slowest {readable(ranked[-1])}</text>'


def readable(value_ms: float) -> str:
    """Return a time in the unit that reads best."""
    return f"{value_ms / 1000:.3g} s" if value_ms >= 1000 else f"{value_ms:.3g} ms"
