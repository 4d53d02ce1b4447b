"""Waiting for something to be seen; fixed sleeps would make the demo slow on a fast machine and false on a slow one."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.02


def wait_until(look: Callable[[], T], says: str, within_s: float = 20.0) -> T:
    """Return the first true thing that `look` gives; raises TimeoutError, with what was awaited, after `within_s`."""
    end = time.monotonic() + within_s
    while not (seen := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"{says}: not within {within_s:g} s")
        time.sleep(POLL_S)
    return seen


def stays(look: Callable[[], T], for_s: float) -> T:
    """Return the first value that differs from the one at the beginning, or that one if it lasts."""
    first, end = look(), time.monotonic() + for_s
    while time.monotonic() < end:
        if (now := look()) != first:
            return now
        time.sleep(POLL_S)
    return first
