"""How a run learns that it should stop, in whatever process the pool runs it; without it only Redis could tell a child, and
a cancel, a lost lease or a shutdown would cost every running job a poll.

The worker's main process writes one word for each job that it holds into memory that its children share. A deadline needs
nobody to write: the run knows when it began.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from typing import Final

from queue_kit.states import StopReason

_WORD: Final = 8  # bytes; written at once, so that no reader sees half of it
_SLOTS: Final = 65_536  # 512 KiB, of which the kernel gives only what is written to
_REASONS: Final = (None, *StopReason)
_TURN: Final = 8  # bits for the reason, below the turn

#: A place in the shared memory, and whose turn it is there.
Slot = tuple[int, int]


class Stops:
    """One slot for each job held. Made before the pool forks; the main process writes, the children read."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, _SLOTS * _WORD)).cast("Q")
        self._free = deque(range(_SLOTS))

    def assign(self) -> Slot | None:
        """Take a slot for a job; ``None`` when there are none left, and the job can only be told of its deadline."""
        try:
            index = self._free.popleft()
        except IndexError:
            return None
        return index, self._next_turn(index)

    def release(self, slot: Slot | None) -> None:
        """Give a slot back. A run that still looks at it is told that its lease is lost, which is so."""
        if slot is not None and self._words[slot[0]] >> _TURN == slot[1]:
            self._next_turn(slot[0])
            self._free.append(slot[0])

    def fire(self, slot: Slot | None, reason: StopReason) -> None:
        """Ask the run of this slot to stop. A stronger reason takes the place of a weaker one."""
        if slot is None:
            return
        index, turn = slot
        word, code = self._words[index], _REASONS.index(reason)
        if word >> _TURN == turn and code > word & 0xFF:
            self._words[index] = turn << _TURN | code

    def read(self, slot: Slot) -> StopReason | None:
        """Why the run of this slot should stop; ``None`` while it should not."""
        word = self._words[slot[0]]
        return _REASONS[word & 0xFF] if word >> _TURN == slot[1] else StopReason.LEASE_LOST

    def _next_turn(self, index: int) -> int:
        turn = ((self._words[index] >> _TURN) + 1) % 2**32
        self._words[index] = turn << _TURN
        return turn


class Stop:
    """What one run is told: whether it should stop, and why. Safe in any thread of its process.

    ``timeout_ms`` counts from when this is made; ``None``: no deadline.
    """

    def __init__(self, stops: Stops | None, slot: Slot | None, timeout_ms: int | None = None) -> None:
        self._stops, self._slot = stops, slot
        self.timeout_ms = timeout_ms
        self.deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    @property
    def reason(self) -> StopReason | None:
        """Why the run should stop; ``None`` while it should not."""
        told = self._stops.read(self._slot) if self._stops is not None and self._slot is not None else None
        if told is None and self.time_left_s == 0:
            return StopReason.TIMEOUT
        return told

    @property
    def time_left_s(self) -> float | None:
        """Seconds until the deadline, 0 after it; ``None``: there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
