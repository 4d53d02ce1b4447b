"""Finds what can tell of a worker's death: its warden, and the file that the kernel unlocks.

Without it a test could not take them away, and would only ever see the quickest of several ways.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil

from tests.support.processes import is_alive, send
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WARDEN = "warden.py"


def lock_files(pid: int) -> list[Path]:
    """The files that a process may hold a worker's lock by."""
    targets = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return [target for target in targets if target.name.startswith("queue_kit-")]


def lock_file(pid: int) -> Path:
    """The file that a worker's main process holds a lock on."""
    (file,) = lock_files(pid)
    return file


def wardens(file: Path) -> list[psutil.Process]:
    """The living processes that watch this file: one, or none."""
    found = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]
    return [each for each in found if each.info["cmdline"][-1] == str(file) and WARDEN in each.info["cmdline"][-2]]


def kill_group(worker: WorkerProcess, *, unseen: bool = False) -> float:
    """SIGKILL a worker with its warden and all its processes, as the end of a container or a control group would; return the
    instant, in milliseconds. `unseen`: nobody else can look at its lock, as on another machine."""
    file = lock_file(worker.pid)
    found = wardens(file)
    if unseen:
        file.unlink()
    at_ms = time.time() * 1000
    for warden in found:
        send(warden.pid, signal.SIGKILL)
        wait_until(lambda w=warden: not is_alive(w.pid), says="the warden is gone")
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait_exit()
    return at_ms
