"""Where one process of a chaos run follows the other, each behind a network of its own: workers, producers, relays, beats.

Without it a process that was killed would take its address with it, and the faults of its network.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.apps.chaos_app import QUEUES
from tests.support.cable import Cable
from tests.support.processes import ROOT, environment_with_project, spawn
from tests.support.proxy import TcpProxy
from tests.support.worker_process import WorkerProcess

POOLS = {"prefork": 2, "threads": 4, "solo": 1, "gevent": 10}


@dataclass
class WorkerPlace:
    """One worker after the other, of one pool, behind one proxy, and a cable if there is one. leaving: it was asked to end."""

    pool: str
    proxy: TcpProxy
    env: Mapping[str, str]
    folder: Path
    cable: Cable | None = None
    worker: WorkerProcess | None = None
    leaving: bool = False
    boots: int = 0

    def boot(self) -> None:
        """Start the next worker; it is not waited for."""
        self.boots += 1
        self.leaving = False
        url = self.env.get("CELERY_BROKER_URL", self.proxy.url())
        self.worker = WorkerProcess(
            "tests.apps.chaos_app", url, self.folder, backend_url=url, queues=QUEUES, pool=self.pool, env=self.env,
            concurrency=POOLS[self.pool], loglevel="WARNING", name=f"{self.pool}{self.boots}",
            inside=self.cable.inside if self.cable else (),
        ).start(wait=False)  # fmt: skip

    @property
    def running(self) -> WorkerProcess | None:
        """The worker, if it lives."""
        return self.worker if self.worker is not None and self.worker.running else None

    @property
    def ready(self) -> bool:
        """Whether the worker lives, and has said a second ago that it takes jobs: Celery gives up a worker of which a child
        dies while it starts."""
        worker = self.running
        said = self.folder / f"ready-{worker.hostname}" if worker is not None else None
        return said is not None and said.exists() and said.stat().st_mtime < time.time() - 1


@dataclass
class SenderPlace:
    """One producer, relay or beat after the other. words: its command line, of its name and a seed."""

    kind: str
    letter: str
    proxy: TcpProxy
    env: Mapping[str, str]
    folder: Path
    words: Callable[[str, int], Sequence[str]]
    process: subprocess.Popen[bytes] | None = None
    leaving: bool = False
    boots: int = 0

    def boot(self, seed: int) -> None:
        """Start the next one."""
        self.boots += 1
        urls = {"CELERY_BROKER_URL": self.proxy.url(), "CELERY_RESULT_BACKEND": self.proxy.url(), **self.env}
        env = environment_with_project({**urls, "CHAOS_NAME": self.name})
        words = [sys.executable, "-m", *self.words(self.name, seed)]
        self.process = spawn(words, log=self.folder / f"{self.name}.log", cwd=ROOT, env=env)

    @property
    def name(self) -> str:
        """Of the one that is there now."""
        return f"{self.letter}{self.boots}"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None
