"""What this process alone can count; moves are counted in Redis by the scripts that make them, but a lease that was lost, or
a renewal that found no Redis, no script sees.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

LEASE_LOST: Final = "lease_lost"
RENEWALS_FAILED: Final = "lease_renewals_failed"
DEAD_LETTERS_UNWRITTEN: Final = "dead_letter_write_failures"

#: What is counted, then queue and job name.
Key = tuple[str, str, str]


class Counts:
    """Counters by queue and job name; any thread may add and read."""

    def __init__(self) -> None:
        self._counter: Counter[Key] = Counter()
        self._lock = threading.Lock()

    def add(self, what: str, queue: str, name: str, number: int = 1) -> None:
        """Count something."""
        with self._lock:
            self._counter[what, queue, name] += number

    def read(self) -> Mapping[Key, int]:
        """All that has been counted so far."""
        with self._lock:
            return dict(self._counter)
