"""What this process alone can count; moves are counted in Redis by the scripts that make them, but a lease that was lost, a
renewal that found no Redis, or how long a run took, no script sees.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from queue_kit.observe.metrics import BUCKETS
from queue_kit.worker.roles.role import new_lock

LEASE_LOST: Final = "lease_lost"
RENEWALS_FAILED: Final = "lease_renewals_failed"
DEAD_LETTERS_UNWRITTEN: Final = "dead_letter_write_failures"
DURATION: Final = "job_duration"
WAIT: Final = "job_wait"

#: What is counted, then queue and job name.
Key = tuple[str, str, str]


class Counts:
    """Counters and times by queue and job name; any thread may add and read."""

    def __init__(self) -> None:
        self._counter: Counter[Key] = Counter()
        self._times: dict[Key, tuple[list[int], float]] = {}
        self._lock = new_lock()  # held for a moment, and by real threads: a greenlet must not give way inside

    def add(self, what: str, queue: str, name: str, number: int = 1) -> None:
        """Count something."""
        with self._lock:
            self._counter[what, queue, name] += number

    def observe(self, what: str, queue: str, name: str, seconds: float) -> None:
        """Note how long something took."""
        with self._lock:
            numbers, total = self._times.get((what, queue, name)) or ([0] * (len(BUCKETS) + 1), 0.0)
            numbers[bisect_left(BUCKETS, seconds)] += 1
            self._times[what, queue, name] = numbers, total + seconds

    def read(self) -> Mapping[Key, int]:
        """All that has been counted so far."""
        with self._lock:
            return dict(self._counter)

    def times(self) -> Mapping[Key, tuple[Sequence[int], float]]:
        """Of all that was noted: how often, by bucket of :data:`queue_kit.observe.metrics.BUCKETS`, and the sum of seconds."""
        with self._lock:
            return {key: (list(numbers), total) for key, (numbers, total) in self._times.items()}
