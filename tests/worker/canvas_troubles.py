"""Canvases in which something goes wrong or gives way: retries, replacements, stamps, kills."""

from __future__ import annotations

from typing import Any

from celery import chain, chord, group

from tests.worker.canvas_scenarios import Scenario, noted

RETRIES = [
    Scenario("a retried task", lambda t: t.retried.s(1, 2), 3),
    Scenario("a retry with other arguments", lambda t: t.retried_with.s(2, 1), 3),
    Scenario("an automatic retry", lambda t: t.retried_by_itself.s(1, 2), 3),
    Scenario("retries in vain", lambda t: t.retried_in_vain.s(), raises="KeyError: 'never'"),
    Scenario(
        "retries in vain, with an errback",
        lambda t: t.retried_in_vain.s().on_error(t.noted_failure.s()),
        raises="KeyError: 'never'",
        notes=("failed=KeyError",),
    ),
    Scenario("a retried task with a callback", lambda t: t.retried.s(1, 2).set(link=noted(t, "a")), 3, notes=("a=3",)),
    Scenario("retries in a chain", lambda t: chain(t.retried.s(1, 2), t.retried_by_itself.s(1), t.retried.s(1)), 5),
    Scenario(
        "retries in a chord",
        lambda t: chord([t.retried.s(1, 2), t.retried_by_itself.s(1, 1)], chain(t.total.s(), t.retried.s(1))),
        6,
    ),
    Scenario(
        "retries in vain in a chain",
        lambda t: chain(t.add.s(1, 1), t.retried_in_vain.s(), t.echo.s()),
        raises="KeyError: 'never'",
    ),
    Scenario(
        "retries in vain in a chord",
        lambda t: chord([t.add.s(1, 1), t.retried_in_vain.s()], t.total.s()),
        raises="KeyError: 'never'",
    ),
    Scenario("retries in a group", lambda t: group(t.retried.s(i, i) for i in range(3)), [0, 2, 4]),
]

REPLACEMENTS = [
    Scenario("a task replaced by a task", lambda t: t.by_task.s(1, 2), 3),
    Scenario("a task replaced by a chain", lambda t: t.by_chain.s(1, 2), 7),
    Scenario("a task replaced by a group", lambda t: t.by_group.s(2, 3), [5, 6, 7]),
    Scenario("a task replaced by a chord", lambda t: t.by_chord.s(2, 3), 11),
    Scenario("a task replaced by a chain that ends in a group", lambda t: t.by_chain_with_group.s(1, 1), [3, 6]),
    Scenario("a task replaced by a nest", lambda t: t.by_nest.s(1, 2), 24),
    Scenario("a task replaced by itself", lambda t: t.by_itself.s(0), 2),
    Scenario("a task replaced by replaced ones", lambda t: t.by_replaced_chain.s(1, 2), 8),
    Scenario("a task replaced by a group of replaced ones", lambda t: t.by_replaced_group.s(2, 3), [11, 11, 7]),
    Scenario("a task replaced by a failing chain", lambda t: t.by_failing_chain.s(), raises="ValueError: within"),
    Scenario(
        "a task replaced by a failing chain, with an errback",
        lambda t: t.by_failing_chain.s().on_error(t.noted_failure.s()),
        raises="ValueError: within",
        notes=("failed=ValueError",),
    ),
    Scenario(
        "a task replaced by a failing group",
        lambda t: t.by_failing_group.s(),
        raises="ChordError: Dependency <id> raised ValueError('within')",
    ),
    Scenario("a task replaced by a retried chain", lambda t: t.by_retried_chain.s(1, 2), 4),
    Scenario("a retried task replaced by a chain", lambda t: t.retried_then_by_chain.s(1, 2), 30),
    Scenario(
        "a replaced task with a callback", lambda t: t.by_chain.s(1, 2).set(link=noted(t, "a")), 7, notes=("a=7",)
    ),
    Scenario(
        "a task replaced by a group, with a callback",
        lambda t: t.by_group.s(2, 3).set(link=noted(t, "a")),
        [5, 6, 7],
        notes=("a=[5, 6, 7]",),
    ),
    Scenario(
        "a task replaced by a chord, with a callback",
        lambda t: t.by_chord.s(2, 3).set(link=noted(t, "a")),
        11,
        notes=("a=11",),
    ),
    Scenario(
        "replacements in a chain", lambda t: chain(t.by_task.s(1, 2), t.by_chain.s(1), t.by_chord.s(2), t.add.s(1)), 30
    ),
    Scenario("a replacement by a group in a chain", lambda t: chain(t.by_group.s(2, 3), t.total.s()), 18),
    Scenario("replacements in a group", lambda t: group(t.by_chain.s(1, 2), t.by_task.s(1, 2)), [7, 3]),
    Scenario(
        "replacements in a chord",
        lambda t: chord([t.by_chain.s(1, 2), t.by_task.s(1, 2), t.by_chord.s(2, 3)], t.by_chain_total.s()),
        43,
    ),
    Scenario(
        "a replaced body", lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], chain(t.total.s(), t.by_chain.s(1))), 15
    ),
    Scenario(
        "a failing replacement in a chord",
        lambda t: chord([t.add.s(1, 1), t.by_failing_chain.s()], t.total.s()),
        raises="ValueError: within",
    ),
    Scenario(
        "a failing replacement in a chain",
        lambda t: chain(t.add.s(1, 1), t.by_failing_chain.s(), t.echo.s()),
        raises="ValueError: within",
    ),
]

STAMPS = [
    Scenario("a stamped task", lambda t: _stamped(t.stamps.s(), colour="red"), {"colour": "red"}),
    Scenario(
        "a stamped chain", lambda t: _stamped(chain(t.add.s(1, 1), t.stamps.s()), colour="red"), {"colour": "red"}
    ),
    Scenario(
        "a stamped group", lambda t: _stamped(group(t.stamps.s(), t.stamps.s()), colour="red"), [{"colour": "red"}] * 2
    ),
    Scenario(
        "a stamped chord", lambda t: _stamped(chord([t.add.s(1, 1), t.add.s(1, 1)], t.stamps.s()), colour="red"), {}
    ),
]

KILLS = [
    Scenario("a killed task", lambda t: t.killed.s(1, 2), 3, kills=True),
    Scenario(
        "a killed task with a callback",
        lambda t: t.killed.s(1, 2).set(link=noted(t, "a")),
        3,
        notes=("a=3",),
        kills=True,
    ),
    Scenario(
        "a kill in each step of a chain", lambda t: chain(t.killed.s(1, 2), t.killed.s(1), t.killed.s(1)), 5, kills=True
    ),
    Scenario(
        "kills in a group", lambda t: group(t.killed.s(1, 1), t.add.s(1, 1), t.killed.s(2, 2)), [2, 2, 4], kills=True
    ),
    Scenario(
        "kills in a chord's header",
        lambda t: chord([t.killed.s(1, 1), t.add.s(1, 1), t.killed.s(2, 2)], t.total.s()),
        8,
        kills=True,
    ),
    Scenario(
        "a kill in a chord's body",
        lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], chain(t.total.s(), t.killed.s(1))),
        7,
        kills=True,
    ),
    Scenario(
        "kills in a chord in a chain",
        lambda t: chain(t.killed.s(1, 1), chord([t.killed.s(1), t.add.s(2)], t.total.s()), t.killed.s(1)),
        8,
        kills=True,
    ),
    Scenario("kills in a chain that replaces", lambda t: t.by_killed_chain.s(1, 2), 4, kills=True),
    Scenario("kills in a group that replaces", lambda t: t.by_killed_group.s(1, 2), [3, 2], kills=True),
    Scenario("a kill after retries", lambda t: chain(t.retried.s(1, 2), t.killed.s(1), t.retried.s(1)), 5, kills=True),
    Scenario(
        "kills around a replacement", lambda t: chain(t.killed.s(1, 2), t.by_chain.s(1), t.killed.s(1)), 10, kills=True
    ),
]


def _stamped(canvas: Any, **stamps: Any) -> Any:
    canvas.stamp(**stamps)
    return canvas
