"""Wait for something to be seen; the one file of the tests that may sleep.

Without it tests would sleep for as long as the slowest machine needs, and still fail on a slower one.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Short against every duration that the tests assert (250 ms of slack), long enough to leave two cores to the workers.
POLL_S = 0.01


def wait_until(
    predicate: Callable[[], T],
    *,
    says: str,
    within_s: float = 10.0,
    every_s: float = POLL_S,
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Call the predicate until it is true and return what it gave.

    `says` is the fact waited for, in words; it opens the AssertionError that is raised after `within_s` seconds,
    with the last value seen. Exceptions named in `ignoring` count as "not yet" (a server that is restarting).
    """
    end = time.monotonic() + within_s
    while True:
        seen: object
        try:
            value = predicate()
            if value:
                return value
            seen = value
        except ignoring as error:
            seen = error
        if time.monotonic() >= end:
            raise AssertionError(f"{says}: not within {within_s:g} s; last seen: {seen!r}")
        time.sleep(every_s)


def stays_true(predicate: Callable[[], object], *, says: str, for_s: float, every_s: float = POLL_S) -> None:
    """Assert that the predicate is true, and remains so for a while: the way to show that something does not happen.

    `says` is the fact that has to last; it opens the AssertionError, with the time and the value at which it broke.
    """
    began = time.monotonic()
    while (passed := time.monotonic() - began) < for_s:
        value = predicate()
        if not value:
            raise AssertionError(f"{says}: no longer after {passed:.2f} of {for_s:g} s; seen: {value!r}")
        time.sleep(every_s)


def let_pass(seconds: float, *, because: str) -> None:
    """Let time pass, where time itself is the matter (a lease that has to run out); `because` says which."""
    assert because, "say what this time is for"
    time.sleep(seconds)


def wait_for_exit(process: subprocess.Popen[bytes], *, within_s: float = 10.0) -> int:
    """Return the exit code of a process that is about to end (negative: the signal), or raise AssertionError."""
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"process {process.pid} has not ended within {within_s:g} s") from None


class Stopwatch:
    """Measure how long something took: started when made, read by `elapsed_s` and `elapsed_ms`."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since it was made."""
        return self.elapsed_s * 1000
