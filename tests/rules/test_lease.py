"""When a lease is renewed, as tables."""

from __future__ import annotations

import pytest

from queue_kit.rules.lease import may_renew, renewal_interval_ms


@pytest.mark.parametrize(("lease", "interval"), [(30_000, 7_500), (1_000, 250), (400, 100), (3, 1), (0, 1)])
def test_a_lease_is_renewed_each_quarter_of_it(lease: int, interval: int) -> None:
    """SPEC 4: three renewals may fail before it runs out."""
    assert renewal_interval_ms(lease) == interval


@pytest.mark.parametrize(
    ("beat_age", "renews"), [(0, True), (29_999.9, True), (30_000, True), (30_000.1, False), (10**9, False)]
)
def test_a_main_loop_that_hung_for_longer_than_a_lease_is_not_renewed_for(beat_age: float, renews: bool) -> None:
    """SPEC 4: a dead loop does not hold jobs for ever."""
    assert may_renew(beat_age, 30_000) is renews
