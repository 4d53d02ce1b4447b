"""The rules of seats and holds, with the time as an argument.

Kept free of the database and the queue: if a hold ended only when its job comes, a late job would keep a seat from everyone.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class HoldStatus(StrEnum):
    HELD = "held"
    SOLD = "sold"
    RELEASED = "released"


class SeatState(StrEnum):
    FREE = "free"
    HELD = "held"
    SOLD = "sold"


@dataclass(frozen=True)
class Seat:
    """A seat as the map shows it: its row's letter, its number in the row, and its state."""

    row: str
    number: int
    state: SeatState = SeatState.FREE

    @property
    def label(self) -> str:
        return f"{self.row}{self.number}"


def state_of(hold: HoldStatus | None, expires_at: datetime | None, now: datetime) -> SeatState:
    """Return what a seat is to the next customer, by its latest hold; one that has run out counts no more."""
    if hold == HoldStatus.SOLD:
        return SeatState.SOLD
    if hold == HoldStatus.HELD and expires_at is not None and left_ms(expires_at, now) > 0:
        return SeatState.HELD
    return SeatState.FREE


def left_ms(expires_at: datetime, now: datetime) -> int:
    """Return how long a hold still lasts, in milliseconds, rounded up; 0 once it has run out."""
    return max(0, -((now - expires_at) // timedelta(milliseconds=1)))


def split_label(label: str) -> tuple[str, int]:
    """Return row and number of a label such as B12; raises ValueError when it is none."""
    found = re.fullmatch("([A-Z])([0-9]{1,3})", label.upper())
    if found is None:
        raise ValueError("seat must be a row letter and a number, such as B12")
    return found[1], int(found[2])
