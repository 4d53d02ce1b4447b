"""The test stand: one private Redis, and the workers and producers that are started against it.

A Redis that others use would add their traffic to what is counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from redis import Redis

from benchmarks.systems import System
from deploy.demo.process import ROOT, Process, free_port
from deploy.demo.waiting import wait_until
from deploy.engine import find_engine


@dataclass(frozen=True)
class Pool:
    """How a worker runs its jobs."""

    name: str
    slots: int


class Stand:
    """Starts the server on entering; stops everything on leaving."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="queue-bench-"))
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client: Redis = Redis.from_url(self.url, decode_responses=True)
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": "", "appendonly": "no"}
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self._redis = Process("redis", [str(find_engine()), *words], {}, self.folder)

    def __enter__(self) -> Stand:
        self._redis.start()
        wait_until(lambda: self._redis.says("eady to accept connections"), "Redis answers")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._redis.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """What workers and producers are told.

        Django's settings, which this process has since it took a part of `deploy`, are blanked: where Celery sees any, it looks
        after Django before and after each job.
        """
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return {"CELERY_BROKER_URL": self.url, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": ""}

    def produce(self, system: System, what: str, jobs: int, **more: str) -> Any:
        """Run a producer to its end and return what it measured."""
        return self.answer([sys.executable, "-m", "benchmarks.producer", system.app, what, str(jobs)], **more)

    def answer(self, command: Sequence[str], **more: str) -> Any:
        """Run a command to its end and return the JSON that it prints. ``more``: further variables of its environment."""
        env = {**os.environ, **self.environment, **more}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        return json.loads(done.stdout)

    @contextmanager
    def worker(self, system: System, pool: Pool, *further: str, **more: str) -> Iterator[psutil.Process]:
        """A worker of the system, from its start to its end; it takes jobs as soon as it is up."""
        with self.running([sys.executable, "-m", *worker_words(system, pool), *further], **more) as process:
            yield process

    @contextmanager
    def running(self, command: Sequence[str], **more: str) -> Iterator[psutil.Process]:
        """A process from its start to its end, with all that it starts."""
        process = Process("worker", command, {**self.environment, **more}, self.folder)
        process.log.unlink(missing_ok=True)
        process.start()
        try:
            yield psutil.Process(process.pid)
        except Exception as error:
            raise RuntimeError(f"{' '.join(command)}: {error}\n{process.tail()}") from error
        finally:
            process.stop()


def worker_words(system: System, pool: Pool) -> list[str]:
    """The worker's command line behind ``python -m``, the same for each system; it logs no job and talks to no other worker."""
    how = ["--pool", pool.name, "--concurrency", str(pool.slots), "--loglevel", "WARNING"]
    return ["celery", "-A", system.app, "worker", *how, "--without-gossip", "--without-mingle"]
