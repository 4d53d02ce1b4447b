"""Jobs that make a living worker look dead, or a dead one seem to live; loaded beside those of the crash app.

Without them only what Redis and the network do could be tried, and not what a task does to its own process.
"""

from __future__ import annotations

import ctypes
import time

from queue_kit import job
from tests.apps.crash_app import await_gate, begin, note

_PR_SET_PDEATHSIG = 1
_AHEAD_S = 86_400.0


@job("crash.clutch", attempts=5)
def clutch(seconds: float) -> None:
    """Hold the interpreter's lock in a C call, so that no other thread of the process runs."""
    run = begin()
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    note("end", id=run.id)


@job("crash.linger", attempts=5)
def linger(gate: str) -> None:
    """Take back from the kernel what Celery asks of it: that a child dies with its parent."""
    run = begin()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
    note("lingers", id=run.id)
    await_gate(gate)
    note("end", id=run.id)


@job("crash.warp", attempts=5)
def warp(gate: str) -> None:
    """Set the clock of this process to tomorrow, as far as Python asks for it, and go on."""
    run, clock = begin(), time.time
    time.time = lambda: clock() + _AHEAD_S
    note("warped", id=run.id)
    await_gate(gate)
    time.time = clock
    note("end", id=run.id)
