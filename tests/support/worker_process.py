"""A real Celery worker in a process of its own: started, watched, signalled, killed.

Without it the crash tests would kill threads that pretend to be workers, and prove nothing about real ones.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import ROOT, child_pids, environment_with_project, is_alive, kill_session, send, spawn
from tests.support.waiting import wait_for_exit, wait_until

# Importing Celery, Django and an app takes about a second on a free core; two cores may be shared by six processes.
READY_WITHIN_S = 40.0

_numbers = itertools.count(1)


@dataclass
class WorkerProcess:
    """One worker, `python -m celery -A <app> worker`, in a session of its own.

    app: the module that holds the Celery app. broker_url, backend_url: handed over as CELERY_BROKER_URL and
    CELERY_RESULT_BACKEND, which Celery takes over the URLs in the app's code. folder: where its log goes.
    env: added to this process's environment. options: further words of the command line.
    name: the part of the node's name before the @; made up when empty. inside: words before the command, which put it somewhere.
    """

    app: str
    broker_url: str
    folder: Path
    backend_url: str = ""
    queues: Sequence[str] = ("celery",)
    pool: str = "prefork"
    concurrency: int = 2
    env: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ("--without-gossip", "--without-mingle")
    loglevel: str = "INFO"
    name: str = ""
    inside: Sequence[str] = ()
    cwd: Path = ROOT
    process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = self.name or f"w{next(_numbers)}-{os.getpid()}"

    def start(self, *, wait: bool = True, within_s: float = READY_WITHIN_S) -> WorkerProcess:
        """Start the worker and, unless told otherwise, return once it says that it is ready to take jobs."""
        assert not self.running, f"{self.hostname} runs already"
        self.log_file.unlink(missing_ok=True)
        self.process = spawn(self.command(), log=self.log_file, cwd=self.cwd, env=self.environment())
        if wait:
            self.wait_ready(within_s=within_s)
        return self

    def command(self) -> list[str]:
        """Return the command line."""
        node = ["--hostname", self.hostname, "--pool", self.pool, "--concurrency", str(self.concurrency)]
        what = ["--queues", ",".join(self.queues), "--loglevel", self.loglevel]
        return [*self.inside, sys.executable, "-m", "celery", "-A", self.app, "worker", *node, *what, *self.options]

    def environment(self) -> dict[str, str]:
        """Return the environment: this process's own, the URLs, then what the test asked for."""
        urls = {"CELERY_BROKER_URL": self.broker_url, "CELERY_RESULT_BACKEND": self.backend_url}
        return environment_with_project({name: url for name, url in urls.items() if url} | dict(self.env))

    @property
    def hostname(self) -> str:
        """The node's name, as events and remote control know it."""
        return f"{self.name}@localhost"

    @property
    def log_file(self) -> Path:
        """Where the worker's output goes."""
        return self.folder / f"{self.name}.log"

    @property
    def running(self) -> bool:
        """Whether the main process lives (also while stopped by SIGSTOP)."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the worker's main process."""
        assert self.process is not None, f"{self.hostname} was never started"
        return self.process.pid

    def child_pids(self) -> list[int]:
        """Pids of the living descendants, the pool's children among them, oldest first."""
        return child_pids(self.pid)

    def wait_ready(self, *, within_s: float = READY_WITHIN_S) -> None:
        """Return once the worker has logged that it is ready; fail at once if it ends before."""
        wait_until(self._is_ready, says=f"{self.hostname} is ready", within_s=within_s)

    def _is_ready(self) -> bool:
        assert self.running, f"{self.hostname} ended while starting (exit code {self._code()}):\n{self.log_tail()}"
        return f"{self.hostname} ready." in self.logs()

    def _code(self) -> int | None:
        return self.process.returncode if self.process else None

    def wait_for_log(self, text: str, *, within_s: float = 10.0) -> None:
        """Return once this text stands in the worker's log."""
        wait_until(lambda: text in self.logs(), says=f"{self.hostname} logs {text!r}", within_s=within_s)

    def logs(self) -> str:
        """All that the worker and its children have written."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_tail(self, lines: int = 60) -> str:
        """The last lines of the log."""
        return "\n".join(self.logs().splitlines()[-lines:])

    def sigterm(self) -> None:
        """Ask for an orderly shutdown; does not wait."""
        send(self.pid, signal.SIGTERM)

    def sigint(self) -> None:
        """Send SIGINT to the main process; does not wait."""
        send(self.pid, signal.SIGINT)

    def sigstop(self) -> None:
        """Freeze the main process alone: its threads too, its pool children not."""
        send(self.pid, signal.SIGSTOP)

    def sigcont(self) -> None:
        """Let a frozen main process go on."""
        send(self.pid, signal.SIGCONT)

    def sigkill(self) -> None:
        """SIGKILL the main process alone and wait until it is gone; what becomes of its children is the kernel's and
        the pool's business (Celery's prefork children ask the kernel to die with their parent)."""
        send(self.pid, signal.SIGKILL)
        self.wait_exit()

    def kill_all(self) -> None:
        """SIGKILL the main process and all its descendants, as the loss of the machine would."""
        if self.process is not None:
            kill_session(self.process)

    def kill_child(self, pid: int, signal_: signal.Signals = signal.SIGKILL) -> None:
        """Kill one pool child and wait until it is gone."""
        assert pid in self.child_pids(), f"{pid} is no child of {self.hostname}"
        send(pid, signal_)
        wait_until(lambda: not is_alive(pid), says=f"child {pid} of {self.hostname} is gone")

    def wait_exit(self, *, within_s: float = 15.0) -> int:
        """Return the exit code of a worker that is about to end (negative: the signal that ended it)."""
        assert self.process is not None, f"{self.hostname} was never started"
        return wait_for_exit(self.process, within_s=within_s)

    def stop(self, *, within_s: float = 15.0) -> int:
        """SIGTERM the worker and return its exit code."""
        self.sigterm()
        return self.wait_exit(within_s=within_s)
