"""Whether a job whose task no worker knows yet is worth waiting for; without a rule a deploy that begins with the producers would
turn each such job into a dead letter.
"""

from __future__ import annotations

from typing import Final

#: Looks at a job in all that time: fewer than the runs that its history keeps, by which the time is counted.
_LOOKS: Final = 20


def wait_ms(held_since_ms: int | None, now_ms: int, hold_ms: int) -> int | None:
    """How long to hold the job off before a worker looks again; ``None``: its time is over, or there is none.

    :param held_since_ms: when a worker first found its task unknown; ``None``: only now.
    """
    left_ms = hold_ms - (0 if held_since_ms is None else now_ms - held_since_ms)
    return max(1, min(left_ms, hold_ms // _LOOKS)) if left_ms > 0 else None
