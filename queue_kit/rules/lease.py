"""When a lease is renewed and how long it may be trusted; without one rule for it keeper and reaper would disagree."""

from __future__ import annotations


def renewal_interval_ms(lease_ms: int) -> int:
    """How often a lease is renewed: each quarter of it, so that three renewals may fail before it runs out."""
    return max(1, lease_ms // 4)


def may_renew(beat_age_ms: float, lease_ms: int) -> bool:
    """Whether the keeper still renews: not once the main loop has been silent for longer than a lease.

    Otherwise a loop that has hung for good would hold its jobs for ever.
    """
    return beat_age_ms <= lease_ms
