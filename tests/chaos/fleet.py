"""The processes of a chaos run: workers of every pool and producers, each behind a network of its own, started again when killed.

Without it every kind of trouble would need to know how to put right what it has broken.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.apps.chaos_app import QUEUES
from tests.chaos.evidence import Kill
from tests.support.processes import ROOT, environment_with_project, kill_session, spawn
from tests.support.proxy import TcpProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for_exit
from tests.support.worker_process import WorkerProcess

POOLS = {"prefork": 2, "threads": 4, "solo": 1, "gevent": 10}
#: A worker that was asked to end takes so long at most, or has hung.
SHUTDOWN_S = 40.0


@dataclass
class WorkerPlace:
    """One worker after the other, of one pool, behind one proxy. leaving: it was asked to end."""

    pool: str
    proxy: TcpProxy
    env: Mapping[str, str]
    folder: Path
    worker: WorkerProcess | None = None
    leaving: bool = False
    boots: int = 0

    def boot(self) -> None:
        """Start the next worker; it is not waited for."""
        self.boots += 1
        self.leaving = False
        self.worker = WorkerProcess(
            "tests.apps.chaos_app", self.proxy.url(), self.folder, backend_url=self.proxy.url(), queues=QUEUES,
            pool=self.pool, concurrency=POOLS[self.pool], env=self.env, loglevel="WARNING", name=f"{self.pool}{self.boots}",
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
class ProducerPlace:
    """One producer after the other."""

    name: str
    proxy: TcpProxy
    env: Mapping[str, str]
    folder: Path
    rate_per_s: float
    process: subprocess.Popen[bytes] | None = None
    boots: int = 0

    def boot(self, seed: int) -> None:
        """Start the next producer."""
        self.boots += 1
        name = f"{self.name}{self.boots}"
        words = [sys.executable, "-m", "tests.apps.chaos_producer", name, str(seed), str(self.folder), str(self.rate_per_s)]
        env = environment_with_project({**self.env, "CELERY_BROKER_URL": self.proxy.url(),
                                        "CELERY_RESULT_BACKEND": self.proxy.url()})  # fmt: skip
        self.process = spawn(words, log=self.folder / f"{name}.log", cwd=ROOT, env=env)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def has_sent(self) -> bool:
        """Whether the producer is past its start, and knows of signals."""
        return (self.folder / f"sent-{self.name}{self.boots}").exists()


@dataclass
class Fleet:
    """All of them. kills: who was killed when. deaths: who has ended without."""

    server: RedisServer
    folder: Path
    env: Mapping[str, str]
    dice: random.Random
    producers: int
    rate_per_s: float
    workers: list[WorkerPlace] = field(default_factory=list)
    senders: list[ProducerPlace] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)

    def start(self) -> Fleet:
        """Start everything."""
        for pool in POOLS:
            self.workers.append(WorkerPlace(pool, TcpProxy(self.server.port).start(), self.env, self.folder))
        for number in range(self.producers):
            proxy = TcpProxy(self.server.port).start()
            rate = self.rate_per_s / self.producers
            self.senders.append(ProducerPlace("abcdefgh"[number], proxy, self.env, self.folder, rate))
        self.tend()
        return self

    def tend(self) -> None:
        """Start again what has ended, and note what has ended by itself."""
        self.tend_workers()
        for sender in self.senders:
            if not sender.running:
                if sender.process is not None:
                    self.deaths.append(f"producer {sender.name}{sender.boots} has ended by itself")
                sender.boot(self.dice.getrandbits(32))

    def tend_workers(self) -> None:
        """The same for workers alone."""
        for place in self.workers:
            if place.running is None:
                if place.worker is not None and not place.leaving:
                    self.deaths.append(f"{place.worker.hostname} has ended by itself: see {place.worker.log_file}")
                place.boot()

    def kill_worker(self, place: WorkerPlace) -> None:
        """SIGKILL a worker with all its children, as the loss of its container would."""
        worker = place.running
        if worker is not None:
            self._note(place.pool, "worker", worker.pid, *worker.child_pids())
            worker.kill_all()
            place.leaving = True

    def kill_main(self, place: WorkerPlace) -> None:
        """SIGKILL a worker's main process alone."""
        worker = place.running
        if worker is not None:
            self._note(place.pool, "main", worker.pid, *worker.child_pids())
            place.leaving = True
            worker.sigkill()

    def kill_child(self, place: WorkerPlace) -> None:
        """SIGKILL one process of a pool."""
        worker = place.running if place.ready else None
        children = worker.child_pids() if worker is not None else []
        if worker is not None and children:
            pid = self.dice.choice(children)
            self._note(place.pool, "child", pid)
            worker.kill_child(pid)

    def kill_producer(self, sender: ProducerPlace) -> None:
        """SIGKILL a producer, wherever it is, and start the next."""
        if sender.process is not None and sender.running:
            self._note("producer", "producer", sender.process.pid)
            kill_session(sender.process)
            sender.boot(self.dice.getrandbits(32))

    def _note(self, pool: str, what: str, *pids: int) -> None:
        self.kills.append(Kill(pool, what, time.time(), frozenset(pids)))

    def end_sending(self) -> None:
        """Ask the producers to end, and wait for them."""
        for sender in self.senders:
            if sender.process is not None and sender.running:
                sender.process.terminate()
        for sender in self.senders:
            ended = wait_for_exit(sender.process, within_s=SHUTDOWN_S) if sender.process is not None else 0
            if ended != 0 and sender.has_sent:
                self.deaths.append(f"producer {sender.name}{sender.boots} did not end in order")

    def end_working(self) -> None:
        """Ask the workers to end; each has nothing left to do, and must say so with exit code 0."""
        running = [place.running for place in self.workers]
        for worker in filter(None, running):
            worker.sigterm()
        for worker in filter(None, running):
            code = worker.wait_exit(within_s=SHUTDOWN_S)
            if code != 0:
                self.deaths.append(f"{worker.hostname} ended with {code} when asked to: see {worker.log_file}")

    def close(self) -> None:
        """Kill what still runs."""
        for place in self.workers:
            if place.worker is not None:
                place.worker.kill_all()
        for sender in self.senders:
            if sender.process is not None:
                kill_session(sender.process)
        for proxy in (*(place.proxy for place in self.workers), *(sender.proxy for sender in self.senders)):
            proxy.close()

