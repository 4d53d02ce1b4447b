"""When silence means death: after connections that closed in good health, under unbroken observation, and for long enough."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queue_kit.rules.silence import Silent, Watch, looked

PATIENCE_MS = 1_250


def watched(*looks: tuple[int, Sequence[Silent]], before: Watch | None = None) -> list[dict[str, int]]:
    """Who is dead after each of these looks."""
    found = []
    for at_ms, silent in looks:
        before = looked(before, at_ms, silent, PATIENCE_MS)
        found.append(dict(before.dead))
    return found


def gone(heard_at_ms: int, nonce: str = "w1") -> Silent:
    return Silent(nonce, heard_at_ms, listens=False)


def test_who_closed_in_good_health_is_dead_after_its_silence_and_one_more_look() -> None:
    assert watched((0, []), (500, []), (1_000, [gone(200)]), (1_400, [gone(200)]), (1_900, [gone(200)])) == [
        {}, {}, {}, {}, {"w1": 200},
    ]  # fmt: skip


def test_one_look_is_never_enough() -> None:
    assert watched((0, []), (900, []), (1_500, [gone(100)]), (1_600, [gone(100)]))[2:] == [{}, {"w1": 100}]


def test_who_still_listens_is_alive_however_long_it_is_silent() -> None:
    frozen = Silent("w1", 100, listens=True)
    assert watched((0, []), *[(at_ms, [frozen]) for at_ms in range(500, 9_000, 500)]) == [{}] * 18


def test_whose_connections_close_after_a_longer_silence_is_left_to_its_lease() -> None:
    """As those of a machine without power, or that nothing gets through to, do once Redis asks whether they live."""
    frozen = [(at_ms, [Silent("w1", 100, listens=True)]) for at_ms in (900, 1_400, 1_900)]
    assert watched((0, []), *frozen, *[(at_ms, [gone(100)]) for at_ms in range(2_400, 9_000, 500)])[-1] == {}


def test_who_is_heard_again_begins_anew() -> None:
    assert watched((0, []), (500, []), (1_000, [gone(200)]), (1_500, []), (2_000, [gone(1_200)]), (2_400, [gone(1_200)])) == [
        {}
    ] * 6


@pytest.mark.parametrize("later_ms", [1_001, 30_000, -1])
def test_a_break_between_two_looks_voids_what_was_seen_before(later_ms: int) -> None:
    """Redis was away, or who looks, or the clock of Redis was set."""
    again_ms = 1_000 + later_ms
    looks = [(again_ms + passed_ms, [gone(200)]) for passed_ms in range(0, 5_000, 500)]
    assert watched((0, []), (500, []), (1_000, [gone(200)]), *looks) == [{}] * 13


def test_what_was_last_heard_before_the_first_look_says_nothing() -> None:
    """The looker has just started, or its own subscription was cut, as all others' may have been."""
    assert watched(*[(at_ms, [gone(9_999)]) for at_ms in range(10_000, 15_000, 500)]) == [{}] * 10


def test_others_are_judged_each_by_itself() -> None:
    seen = [gone(300), Silent("w2", 200, listens=True), gone(400, "w3")]
    assert watched((0, []), (500, []), (1_100, seen), (1_600, seen), (2_100, seen))[-2:] == [{"w1": 300}, {"w1": 300, "w3": 400}]
