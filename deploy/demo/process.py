"""One process that the demo starts, in a session of its own, so that it can be ended whole: by its pid, never by its name."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Process:
    """A command with its environment and its log; `start` runs it, `kill` is SIGKILL for it and its children at once."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> "Process":
        with self.log.open("ab") as out:
            self.running = subprocess.Popen(
                [*dies_with_us(), *self.command],
                cwd=ROOT,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        assert self.running is not None, f"{self.name} was never started"
        return self.running.pid

    @property
    def alive(self) -> bool:
        return self.running is not None and self.running.poll() is None

    def says(self, words: str) -> bool:
        """Say whether the log has these words; raises RuntimeError if the process ended without them."""
        if words in self.log.read_text(errors="replace"):
            return True
        if not self.alive:
            raise RuntimeError(f"{self.name} ended too early:\n{self.tail()}")
        return False

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def finish(self, within_s: float = 60) -> None:
        """Wait for a command that ends by itself; raises RuntimeError with its last words if it failed."""
        assert self.running is not None
        if self.running.wait(within_s):
            raise RuntimeError(f"{self.name} failed:\n{self.tail()}")

    def kill(self) -> None:
        """SIGKILL the process and its children, as the loss of a container does."""
        if self.running is not None:
            self.send(signal.SIGKILL)
            self.running.wait()

    def ask_to_stop(self) -> None:
        if self.alive:
            assert self.running is not None
            self.running.terminate()

    def stop(self, within_s: float = 10) -> None:
        """SIGTERM, and SIGKILL for whatever is left after a while; the log stays."""
        self.ask_to_stop()
        if self.running is not None:
            with suppress(subprocess.TimeoutExpired):
                self.running.wait(within_s)
            self.kill()

    def send(self, which: signal.Signals) -> None:
        assert self.running is not None
        with suppress(ProcessLookupError):
            os.killpg(self.running.pid, which)


def dies_with_us() -> list[str]:
    """Return the words that tie a process to this one, where the system has them: a killed demo leaves nothing behind."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL", "--"] if found else []
