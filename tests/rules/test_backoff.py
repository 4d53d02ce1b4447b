"""The wait before the next attempt, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from queue_kit.policy import Backoff, RetryPolicy, check_timeout, exponential, fixed
from queue_kit.rules.backoff import LONGEST_MS, delay_ms


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (exponential(100), [100, 200, 400, 800]),
        (exponential(2_000), [2_000, 4_000, 8_000, 16_000]),
        (exponential(1_000, cap_ms=3_000), [1_000, 2_000, 3_000, 3_000]),
        (exponential(1_000, cap_ms=500), [500, 500, 500, 500]),
        (exponential(0), [0, 0, 0, 0]),
        (exponential(1), [1, 2, 4, 8]),
        (fixed(1_000), [1_000] * 4),
        (fixed(0), [0] * 4),
    ],
    ids=["S3", "default", "cap", "cap below the first", "none", "one", "fixed", "fixed none"],
)
def test_waits_after_the_first_attempts(backoff: Backoff, waits: list[int]) -> None:
    """S3, A4: 100, 200, 400 ms before attempts 2, 3, 4."""
    assert [delay_ms(backoff, made) for made in (1, 2, 3, 4)] == waits


@pytest.mark.parametrize("made", [0, -3])
def test_before_any_attempt_the_first_wait_counts(made: int) -> None:
    assert delay_ms(exponential(100), made) == 100


@pytest.mark.parametrize("made", [40, 63, 64, 1_000, 10**9])
@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_no_wait_is_longer_than_a_year(made: int, jitter: float) -> None:
    """Doubled forty times it would be past the last date there is; doubled a thousand million times, past any number."""
    assert 0.5 * LONGEST_MS <= delay_ms(exponential(2_000, jitter=jitter), made, dice=0.9) <= LONGEST_MS


@pytest.mark.parametrize(
    ("jitter", "dice", "wait"),
    [
        (0.0, 0.99, 1_000),
        (0.5, 0.0, 1_000),
        (0.5, 0.5, 750),
        (0.5, 0.999, 500),
        (1.0, 0.0, 1_000),
        (1.0, 0.25, 750),
        (1.0, 0.9999, 0),
    ],
)
def test_jitter_takes_off_at_most_its_fraction(jitter: float, dice: float, wait: int) -> None:
    assert delay_ms(fixed(1_000, jitter=jitter), 1, dice) == pytest.approx(wait, abs=1)


def test_jitter_stays_below_the_cap() -> None:
    assert delay_ms(exponential(1_000, jitter=0.1, cap_ms=2_000), 9, dice=0.0) == 2_000
    assert delay_ms(exponential(1_000, jitter=0.1, cap_ms=2_000), 9, dice=0.5) == 1_900


def test_waits_are_whole_milliseconds() -> None:
    assert isinstance(delay_ms(fixed(333, jitter=0.3), 1, dice=0.123), int)


# -- the policies themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan"), float("inf"), "0.5", None, True])
def test_jitter_outside_its_range_is_refused_by_name(jitter: Any) -> None:
    """A5: when the policy is built."""
    for build in (fixed, exponential):
        with pytest.raises(ValueError, match="backoff jitter: a fraction from 0 to 1"):
            build(1_000, jitter=jitter)


@pytest.mark.parametrize("delay", [-1, 1.5, "1", None, True])
def test_a_delay_that_is_no_whole_number_is_refused_by_name(delay: Any) -> None:
    with pytest.raises(ValueError, match="backoff delay_ms"):
        fixed(delay)
    with pytest.raises(ValueError, match="backoff cap_ms" if delay is not None else "backoff delay_ms"):
        exponential(1_000 if delay is not None else delay, cap_ms=delay)


def test_a_kind_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="backoff kind"):
        Backoff("linear", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("attempts", [0, -1, 1.0, "3", None, True])
def test_attempts_that_are_no_whole_number_from_1_are_refused_by_name(attempts: Any) -> None:
    with pytest.raises(ValueError, match="attempts: a whole number of at least 1"):
        RetryPolicy(attempts, fixed(0))


@pytest.mark.parametrize("backoff", [None, 1_000, {"kind": "fixed"}])
def test_a_policy_needs_a_backoff(backoff: Any) -> None:
    with pytest.raises(ValueError, match=r"backoff: use fixed\(delay_ms\) or exponential"):
        RetryPolicy(3, backoff)


def test_a_backoff_may_be_a_function() -> None:
    """A6."""
    assert RetryPolicy(3, lambda error, attempts_made: 100 * attempts_made).attempts == 3


@pytest.mark.parametrize("timeout_ms", [0, -1, 1.5, "1000", True])
def test_a_deadline_is_a_whole_number_of_milliseconds(timeout_ms: Any) -> None:
    with pytest.raises(ValueError, match="timeout_ms: a whole number of milliseconds, 1 or more"):
        check_timeout(timeout_ms)
    assert (check_timeout(None), check_timeout(1)) == (None, 1)


def test_a_policy_travels_in_plain_form() -> None:
    """It goes with a job as JSON."""
    policy = exponential(100, jitter=0.2, cap_ms=1_000)
    assert Backoff(**policy.as_dict()) == policy
