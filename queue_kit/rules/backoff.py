"""How long to wait before the next attempt; without one rule for it, parent and child would retry at different times."""

from __future__ import annotations

from typing import Final

from queue_kit.policy import Backoff

#: A year. Doubling forty times gives more years than a date can hold, and the retry itself would fail.
LONGEST_MS: Final = 365 * 24 * 3_600_000


def delay_ms(backoff: Backoff, attempts_made: int, dice: float = 0.0) -> int:
    """The wait in milliseconds after ``attempts_made`` attempts (1 or more).

    ``dice`` is a number in [0, 1); it matters only with jitter. The formula is BullMQ's: ``2 ** (n - 1) * delay``, of which
    jitter takes off at most its fraction. No wait is longer than a year.
    """
    steps = max(0, attempts_made - 1) if backoff.kind == "exponential" else 0
    whole: int = backoff.delay_ms * 2 ** min(steps, 62)
    whole = min(whole, LONGEST_MS if backoff.cap_ms is None else min(backoff.cap_ms, LONGEST_MS))
    return round(whole * (1 - backoff.jitter * dice))
