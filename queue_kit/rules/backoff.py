"""How long to wait before the next attempt; without one rule for it, parent and child would retry at different times."""

from __future__ import annotations

from queue_kit.policy import Backoff


def delay_ms(backoff: Backoff, attempts_made: int, dice: float = 0.0) -> int:
    """The wait in milliseconds after ``attempts_made`` attempts (1 or more).

    ``dice`` is a number in [0, 1); it matters only with jitter. The formula is BullMQ's: ``2 ** (n - 1) * delay``, of which
    jitter takes off at most its fraction.
    """
    steps = max(0, attempts_made - 1) if backoff.kind == "exponential" else 0
    whole: int = backoff.delay_ms * 2 ** min(steps, 62)
    if backoff.cap_ms is not None:
        whole = min(whole, backoff.cap_ms)
    return round(whole * (1 - backoff.jitter * dice))
