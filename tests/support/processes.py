"""Start the processes of a test so that none of them outlives the test run, however that ends.

Without it a run that is itself killed would leave Redis servers and busy workers behind, and the next run would
measure them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


def environment_with_project(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with the project importable from any folder, and `extra` on top.

    Django's settings are left out unless `extra` names them: Celery sets Django up wherever it sees them, and whether this
    process has them depends on which tests were collected with it.
    """
    ours = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    path = os.pathsep.join(filter(None, [str(ROOT), ours.get("PYTHONPATH", "")]))
    return {**ours, "PYTHONPATH": path, **extra}


def spawn(
    command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, its output appended to a log file."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [*_dies_with_us(), *command],
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _dies_with_us() -> list[str]:
    # The kernel ties the signal to the thread that started the process: one started by a helper thread of a test would
    # die with that thread.
    found = shutil.which("setpriv")
    ours = threading.current_thread() is threading.main_thread()
    return [found, "--pdeathsig", "KILL", "--"] if found and ours else []


def child_pids(pid: int) -> list[int]:
    """Return the pids of all living descendants, oldest first; none if the process is gone."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [child.pid for child in sorted(children, key=psutil.Process.create_time) if is_alive(child.pid)]


def is_alive(pid: int) -> bool:
    """Say whether a process runs (a dead one that nobody has waited for does not)."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def send(pid: int, signal_: signal.Signals) -> None:
    """Send a signal to one process; one that is gone already is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal_)


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process of ours, its whole process group, and every descendant that left the group."""
    descendants = child_pids(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in descendants:
        send(pid, signal.SIGKILL)
    process.wait(10)
