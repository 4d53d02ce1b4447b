"""The canvases that both stacks run, each with what it has to give.

Without expected values a fault that both stacks share would pass for agreement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery import chain, chord, group


@dataclass(frozen=True)
class Scenario:
    """One canvas. `gives`: its value; `raises`: the class of its error instead. `kills`: it needs a pool of processes."""

    name: str
    build: Callable[[Any], Any]
    gives: Any = None
    raises: str = ""
    notes: tuple[str, ...] = ()
    kills: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def noted(t: Any, label: str) -> Any:
    return t.noted.s(label=label)


CHAINS = [
    Scenario("a task", lambda t: t.add.s(1, 2), 3),
    Scenario("a task with a callback", lambda t: t.add.s(1, 2).set(link=noted(t, "a")), 3, notes=("a=3",)),
    Scenario(
        "two callbacks", lambda t: t.add.s(1, 2).set(link=[noted(t, "a"), noted(t, "b")]), 3, notes=("a=3", "b=3")
    ),
    Scenario(
        "a callback of a callback",
        lambda t: t.add.s(1, 2).set(link=t.add.s(4).set(link=noted(t, "inner"))),
        3,
        notes=("inner=7",),
    ),
    Scenario(
        "a chain as callback", lambda t: t.add.s(1, 2).set(link=chain(t.mul.s(2), noted(t, "end"))), 3, notes=("end=6",)
    ),
    Scenario(
        "a group as callback",
        lambda t: t.add.s(1, 2).set(link=group(noted(t, "a"), noted(t, "b"))),
        3,
        notes=("a=3", "b=3"),
    ),
    Scenario(
        "a chord as callback",
        lambda t: t.add.s(1, 2).set(link=chord([t.add.s(1), t.mul.s(2)], chain(t.total.s(), noted(t, "end")))),
        3,
        notes=("end=10",),
    ),
    Scenario(
        "an immutable callback", lambda t: t.add.s(1, 2).set(link=t.noted.si("fixed", label="a")), 3, notes=("a=fixed",)
    ),
    Scenario("an errback that is not called", lambda t: t.add.s(1, 2).set(link_error=t.noted_failure.s()), 3),
    Scenario("a failing task", lambda t: t.fail.s(text="alone"), raises="ValueError: alone"),
    Scenario(
        "a failing task with an errback",
        lambda t: t.fail.s(text="alone").set(link_error=t.noted_failure.s()),
        raises="ValueError: alone",
        notes=("failed=ValueError",),
    ),
    Scenario(
        "a failing task with an errback that takes its id",
        lambda t: t.fail.s(text="alone").set(link_error=t.echo.s()),
        raises="ValueError: alone",
    ),
    Scenario("a chain", lambda t: chain(t.add.s(1, 2), t.mul.s(10), t.add.s(5)), 35),
    Scenario("a chain of immutables", lambda t: chain(t.add.si(1, 2), t.mul.si(4, 5), t.echo.si("end")), "end"),
    Scenario("a chain in a chain", lambda t: chain(t.add.s(1, 1), chain(t.mul.s(3), t.mul.s(2)), t.add.s(1)), 13),
    Scenario(
        "a chain with a callback",
        lambda t: _linked(chain(t.add.s(1, 1), t.mul.s(3)), noted(t, "end")),
        6,
        notes=("end=6",),
    ),
    Scenario("a long chain", lambda t: chain(t.add.s(0, 1), *[t.add.s(1) for _ in range(30)]), 31),
    Scenario(
        "a chain that fails in the middle",
        lambda t: chain(t.add.s(1, 1), t.fail.s(text="mid"), t.add.s(1)),
        raises="ValueError: mid",
    ),
    Scenario(
        "a failing chain with an errback",
        lambda t: _guarded(chain(t.add.s(1, 1), t.fail.s(text="mid"), t.add.s(1)), t),
        raises="ValueError: mid",
        notes=("failed=ValueError",),
    ),
    Scenario(
        "a chain with a task that keeps no result",
        lambda t: chain(t.add.s(1, 1), t.forget.s(), t.echo.s()),
        "nobody asks",
    ),
    Scenario("options of a canvas go to its tasks", lambda t: chain(t.add.s(1, 1), t.mul.s(3)).set(priority=3), 6),
    Scenario("a countdown in a chain", lambda t: chain(t.add.s(1, 1), t.mul.s(3).set(countdown=0.1)), 6),
    Scenario(
        "keyword arguments",
        lambda t: t.keep.s(1, b=2).clone(args=(0,), kwargs={"a": "ä"}),
        [[0, 1], {"a": "ä", "b": 2}],
    ),
]

GROUPS = [
    Scenario("a group", lambda t: group(t.add.s(i, i) for i in range(4)), [0, 2, 4, 6]),
    Scenario("a group in a group", lambda t: group(t.add.s(1, 1), group(t.add.s(2, 2), t.add.s(3, 3))), [2, 4, 6]),
    Scenario(
        "chains in a group",
        lambda t: group(chain(t.add.s(1, 1), t.mul.s(3)), chain(t.add.s(2, 2), t.mul.s(4))),
        [6, 16],
    ),
    Scenario(
        "a group that fails in part", lambda t: group(t.add.s(1, 1), t.fail.s(text="part")), raises="ValueError: part"
    ),
    Scenario("a group after a task", lambda t: chain(t.add.s(1, 1), group(t.add.s(1), t.mul.s(5))), [3, 10]),
    Scenario("a group in the middle", lambda t: chain(t.add.s(1, 1), group(t.add.s(1), t.mul.s(5)), t.total.s()), 13),
    Scenario(
        "groups one after the other",
        lambda t: chain(group(t.add.s(1, 1), t.add.s(2, 2)), t.total.s(), group(t.add.s(1), t.mul.s(5))),
        [7, 30],
    ),
    Scenario(
        "two groups meet",
        lambda t: chain(group(t.add.s(1, 1), t.add.s(2, 2)), group(t.total.s(), t.count_up.s())),
        [6, [3, 5]],
    ),
    Scenario(
        "a group with a callback",
        lambda t: _linked(group(t.add.s(1, 1), t.add.s(2, 2)), t.noted.si("sent", label="a")),
        [2, 4],
        notes=("a=sent",),
    ),
    Scenario(
        "chunks", lambda t: t.add.chunks(zip(range(6), range(6), strict=True), 2).group(), [[0, 2], [4, 6], [8, 10]]
    ),
    Scenario("a map", lambda t: t.total.map([[1, 2], [3, 4]]), [3, 7]),
    Scenario("a starmap", lambda t: t.add.starmap([(1, 2), (3, 4)]), [3, 7]),
    Scenario("a map in a chain", lambda t: chain(t.total.map([[1, 2], [3, 4]]), t.total.s()), 10),
    Scenario("a group of one in a chain", lambda t: chain(t.add.s(1, 1), group([t.add.s(1)]), t.echo.s()), 3),
    Scenario("a group of one", lambda t: group([t.add.s(1, 1)]), [2]),
]

CHORDS = [
    Scenario("a chord", lambda t: chord([t.add.s(i, i) for i in range(5)], t.total.s()), 20),
    Scenario("a chord of one", lambda t: chord([t.add.s(1, 1)], t.total.s()), 2),
    Scenario("a chord of nothing", lambda t: chord([], t.total.s()), 0),
    Scenario(
        "a chord with a chain as body",
        lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], chain(t.total.s(), t.mul.s(2))),
        12,
    ),
    Scenario(
        "a chord with a group as body",
        lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], group(t.total.s(), t.count_up.s())),
        [6, [3, 5]],
    ),
    Scenario(
        "a chord with chains as header",
        lambda t: chord([chain(t.add.s(1, 1), t.mul.s(3)), t.add.s(2, 2)], t.total.s()),
        10,
    ),
    Scenario(
        "a chord with a group in its header",
        lambda t: chord([group(t.add.s(1, 1), t.add.s(2, 2)), t.add.s(3, 3)], t.total.s()),
        12,
    ),
    Scenario(
        "a chord in a chain",
        lambda t: chain(t.add.s(1, 1), chord([t.add.s(1), t.mul.s(5)], t.total.s()), t.mul.s(2)),
        26,
    ),
    Scenario(
        "a chord in a chord's header",
        lambda t: chord([chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()), t.add.s(3, 3)], t.total.s()),
        12,
    ),
    Scenario(
        "a chord as a chord's body",
        lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], chord([t.total.s(), t.total.s()], t.total.s())),
        12,
    ),
    Scenario(
        "chords in a group", lambda t: group(chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()), t.add.s(3, 3)), [6, 6]
    ),
    Scenario(
        "chords one after the other",
        lambda t: chain(
            chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()), chord([t.add.s(1), t.add.s(2)], t.total.s())
        ),
        15,
    ),
    Scenario(
        "a chord with a callback",
        lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s().set(link=noted(t, "body"))),
        6,
        notes=("body=6",),
    ),
    Scenario("an immutable body", lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], t.echo.si("done")), "done"),
    Scenario(
        "a chord whose header fails",
        lambda t: chord([t.add.s(1, 1), t.fail.s(text="head")], t.total.s()),
        raises="ValueError: head",
    ),
    Scenario(
        "a chord whose header fails, with an errback",
        lambda t: chord([t.fail.s(text="head"), t.add.s(1, 1)], t.total.s().on_error(t.noted_failure.s())),
        raises="ValueError: head",
        notes=("failed=ChordError",),
    ),
    Scenario(
        "a chord whose body fails",
        lambda t: chord([t.add.s(1, 1), t.add.s(1, 1)], t.fail.s(text="body")),
        raises="ValueError: body",
    ),
    Scenario(
        "a chord whose body fails, with an errback",
        lambda t: chord([t.add.s(1, 1), t.add.s(1, 1)], t.fail.s(text="body").on_error(t.noted_failure.s())),
        raises="ValueError: body",
        notes=("failed=ValueError",),
    ),
    Scenario(
        "a failing chord in a chain",
        lambda t: chain(t.add.s(1, 1), chord([t.add.s(1), t.fail.s(text="head")], t.total.s()), t.echo.s()),
        raises="ValueError: head",
    ),
    Scenario("a member joins its chord", lambda t: chord([t.joins_chord.s(1), t.add.s(1, 1)], t.total.s()), 103),
]


def _linked(canvas: Any, callback: Any) -> Any:
    canvas.link(callback)
    return canvas


def _guarded(canvas: Any, t: Any) -> Any:
    canvas.link_error(t.noted_failure.s())
    return canvas
