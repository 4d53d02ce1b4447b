"""A network namespace for a process, with one cable to this machine that can be pulled: packets vanish, and nobody is told.

Without it a partition could only be played by a proxy, whose connections the kernel on both sides holds for sound.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.processes import kill_session, spawn
from tests.support.waiting import wait_until

#: For measurements within a network, and so in use by nobody: 198.18.0.0/15, in blocks of four addresses.
NETWORK, BLOCKS = (198 << 24) + (18 << 16), 1 << 15


class Cable:
    """One namespace and its cable; `start` it. It goes with the process that holds it."""

    def __init__(self) -> None:
        self._holder: subprocess.Popen[bytes] | None = None
        self._name = self.host = ""
        self.inside: tuple[str, ...] = ()

    def start(self) -> Cable:
        """Lay the cable. Raises OSError or CalledProcessError where the machine does not permit it."""
        self._holder = spawn(["unshare", "--net", "sleep", "infinity"], log=Path("/dev/null"), cwd=Path("/"))
        pid = self._holder.pid
        ours, its = Path("/proc/self/ns/net"), Path(f"/proc/{pid}/ns/net")
        with suppress(AssertionError):  # what follows says what is wrong
            wait_until(lambda: its.readlink() != ours.readlink(), says="the namespace is there", within_s=5, ignoring=OSError)
        self._name, (self.host, its_address) = f"cable{pid}", _two_addresses(pid)
        self.inside = ("nsenter", f"--net={its}", "--")
        _ip("link", "add", self._name, "type", "veth", "peer", "name", "cable", "netns", str(pid))
        _ip("address", "add", f"{self.host}/30", "dev", self._name)
        self.plug()
        _ip("address", "add", f"{its_address}/30", "dev", "cable", inside=self.inside)
        for device in ("cable", "lo"):
            _ip("link", "set", device, "up", inside=self.inside)
        return self

    def pull(self) -> None:
        """Let nothing through any more, and tell nobody, until `plug`."""
        _ip("link", "set", self._name, "down")

    def plug(self) -> None:
        """Undo `pull`; what was sent meanwhile is sent again by the kernel, in its own time."""
        _ip("link", "set", self._name, "up")

    def close(self) -> None:
        """Take the cable and the namespace away."""
        if self._holder is not None and self._holder.poll() is None:
            kill_session(self._holder)


def permitted() -> bool:
    """Whether this machine lets us do that."""
    if not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        return False
    cable = Cable()
    try:
        cable.start()
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        cable.close()
    return True


def _ip(*words: str, inside: tuple[str, ...] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True, capture_output=True)


def _two_addresses(number: int) -> tuple[str, str]:
    first = NETWORK + 4 * (number % BLOCKS)
    ours, its = (".".join(str(byte) for byte in (first + place).to_bytes(4, "big")) for place in (1, 2))
    return ours, its
