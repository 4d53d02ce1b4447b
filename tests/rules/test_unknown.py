"""For how long a job waits for a worker that knows its task."""

from __future__ import annotations

import pytest

from queue_kit.rules.unknown import wait_ms


@pytest.mark.parametrize(
    ("since", "now", "hold", "wait"),
    [
        (None, 50, 0, None),
        (None, 50, 20_000, 1_000),
        (0, 19_500, 20_000, 500),
        (0, 20_000, 20_000, None),
        (0, 90_000, 20_000, None),
        (None, 0, 5, 1),
        (100, 50, 20_000, 1_000),  # a clock that was set back
    ],
)
def test_a_job_is_looked_at_again_until_its_time_is_over(since: int | None, now: int, hold: int, wait: int | None) -> None:
    assert wait_ms(since, now, hold) == wait


def test_the_history_of_a_job_holds_every_look() -> None:
    now, looks = 0, 0
    while (wait := wait_ms(0, now, 600_000)) is not None:
        now, looks = now + wait, looks + 1
    assert (now, looks <= 25) == (600_000, True)
