"""Lets others on the same kernel see for certain whether this worker lives: a file that it holds a lock on.

The kernel takes the lock away when the last process that has the file open is gone: the worker and, since they are forked from
it, the processes of its pool. A process id would not do: it is used again, and is 1 in every container. Nor would silence: a
frozen worker is silent, and lives.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from celery.utils.log import get_logger

if sys.platform != "win32":
    import fcntl

logger = get_logger(__name__)

_WARDEN: Final = Path(__file__).with_name("warden.py")
_NAME: Final = "queue_kit-{}.lock"
_LEFT_S: Final = 3600.0  # a file that lives is touched every second
_READ: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Witness:
    """The file of one worker. ``place``: what others need to look at it; '' where nobody can."""

    def __init__(self, nonce: str) -> None:
        # In a folder that containers may share, and that outlives one which is restarted.
        self._path = Path(tempfile.gettempdir()) / _NAME.format(nonce.rpartition(":")[2])
        self._fd: int | None = None
        self.place = ""

    def begin(self) -> None:
        """Make the file and lock it; before the pool forks, so that its processes hold the lock too."""
        if sys.platform == "win32":  # leases are all there is
            return
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            place = f"{os.fstat(self._fd).st_ino} {self._path}"
        except OSError as error:
            logger.warning("%s cannot be locked, so if this worker dies its jobs wait for their leases: %s", self._path, error)
            return
        if is_dead(place):  # a network's file system, which knows of no lock but one between hosts
            logger.warning("locks on %s do not last, so if this worker dies its jobs wait for their leases", self._path)
            return
        self.place = place
        _tidy(self._path.parent)

    def post_warden(self, orders: Callable[[], Mapping[str, Any]]) -> None:
        """Start the process that outlives this one. It is nobody's child, and ends by itself."""
        if not self.place or not sys.executable or getattr(sys, "frozen", False):
            return
        try:
            words = json.dumps(orders())
            read_end, write_end = os.pipe()
            with os.fdopen(read_end), os.fdopen(write_end, "w", encoding="utf-8") as pipe:
                pid = os.posix_spawn(
                    sys.executable, [sys.executable, "-I", "-S", str(_WARDEN), str(self._path)], os.environ,
                    file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
                )  # fmt: skip
                pipe.write(words)
            _, status = os.waitpid(pid, 0)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being told how to reach Redis, the worker goes on
            logger.warning("no warden could be started: %s", error)
        else:
            if status:
                logger.warning("the warden could not begin, its exit status is %s", status)

    def keep(self) -> None:
        """Whoever tidies the folder up takes what nobody has touched for long."""
        if self._fd is not None:
            with suppress(OSError):
                os.utime(self._fd)

    def leave(self) -> None:
        """The worker ends in order: nobody has to do anything about it."""
        if self._fd is not None:
            with suppress(OSError):
                os.write(self._fd, b"left")
            remove(self.place)
            self.let_go()

    def let_go(self, **kwargs: Any) -> None:
        """This process does not count any more: a child that has no part in running jobs, such as an embedded beat."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def is_dead(place: str) -> bool:
    """Whether a worker is gone for certain, with its pool. False where it cannot be told from here."""
    inode, _, path = place.partition(" ")
    # What Redis names is opened, and removed afterwards: a file of ours, and no other.
    if sys.platform == "win32" or not Path(path).match(_NAME.format("*")):
        return False
    try:
        fd = os.open(path, _READ)
    except OSError:
        return False
    try:
        # A copy of the file, in a container made from another's image, is locked by nobody.
        if str(os.fstat(fd).st_ino) != inode:
            return False
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def remove(place: str) -> None:
    """Take the file of a worker away that has left or has been seen to."""
    with suppress(OSError):
        Path(place.partition(" ")[2]).unlink()


def _tidy(folder: Path) -> None:
    """Remove what workers have left here that nobody has seen to: those that nothing outlived."""
    for path in folder.glob(_NAME.format("*")):
        with suppress(OSError):
            found = path.lstat()
            if found.st_mtime < time.time() - _LEFT_S and is_dead(f"{found.st_ino} {path}"):
                path.unlink()


@cache
def kernel() -> str:
    """The identity of the running kernel, which all containers on it share; '' where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
