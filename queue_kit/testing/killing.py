"""Kills a worker at a named moment of a run; without it a project would learn what a rerun does to its data from a real crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final

#: Where a worker can be made to die, in the order in which a run comes by.
KILL_POINTS: Final = (
    "claim sent", "claim answered", "job taken", "accepted", "function entering", "function left", "settle sent",
    "settle answered",
)  # fmt: skip


def kill_at(
    point: str, app: str, queues: Sequence[str] = ("celery",), *, env: Mapping[str, str] | None = None, within_s: float = 30.0
) -> None:
    """Start a worker in a process of its own that is killed by SIGKILL when it first reaches this point; return when it is dead.

    What it held runs again, in this test by :func:`drain`, say.

    :param point: one of :data:`KILL_POINTS`; ``function left``: the task has done its work, and nobody has heard of it.
    :param app: as for ``celery -A``.
    :param env: variables for its environment, over those of this process.
    :param within_s: how long to wait for it to get there.
    :raises ValueError: no such point.
    :raises AssertionError: it did not get there in time, or ended in another way; with the end of its log.
    """
    if point not in KILL_POINTS:
        raise ValueError(f"point: one of {', '.join(KILL_POINTS)}")
    words = ["-A", app, "worker", "-P", "solo", "-Q", ",".join(queues), "--without-mingle", "--without-gossip", "-l", "INFO"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "queue_kit.testing.doomed", point, *words], env=_environment() | dict(env or {}), stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            ended = process.wait(within_s)
        except subprocess.TimeoutExpired:
            ended = 0
        finally:
            _end(process)
        if ended != -signal.SIGKILL:
            raise AssertionError(f"the worker was not killed at {point!r}:\n{_tail(log)}")


def _environment() -> dict[str, str]:
    """What the test can import the worker can too, whoever put it on the path, and wherever the test has gone since."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()


def _tail(log: IO[bytes]) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - 4000))
    return log.read().decode(errors="replace")
