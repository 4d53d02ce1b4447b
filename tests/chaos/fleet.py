"""The processes of a chaos run: workers of every pool, producers, relays and beats, started again when killed.

Without it every kind of trouble would need to know how to put right what it has broken.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.evidence import Kill
from tests.chaos.places import POOLS, SenderPlace, WorkerPlace
from tests.support.cable import Cable
from tests.support.processes import kill_session
from tests.support.proxy import TcpProxy
from tests.support.replicated import AnyRedis
from tests.support.waiting import wait_for_exit

#: How many of each there are, behind the workers.
SENDERS = {"producer": 3, "relay": 2, "beat": 2}
#: Whatever was asked to end takes so long at most, or has hung.
SHUTDOWN_S = 40.0


@dataclass
class Fleet:
    """All of them. kills: who was killed when. deaths: who has ended without. cables: whether workers can be cut off by one."""

    server: AnyRedis
    folder: Path
    env: Mapping[str, str]
    dice: random.Random
    rate_per_s: float
    cables: bool
    workers: list[WorkerPlace] = field(default_factory=list)
    senders: list[SenderPlace] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    closing: list[Callable[[], None]] = field(default_factory=list)

    def start(self) -> Fleet:
        """Start everything."""
        for pool in POOLS:
            self.workers.append(self._behind_a_cable(pool) if self.cables else self._worker_place(pool))
        letters = iter("abcdefghij")
        for kind, number in SENDERS.items():
            for _ in range(number):
                proxy = self._proxy(self.server.port)
                words = self._words_of(kind)
                self.senders.append(SenderPlace(kind, next(letters), proxy, self.env, self.folder, words))
        self.tend()
        return self

    def _worker_place(self, pool: str) -> WorkerPlace:
        return WorkerPlace(pool, self._proxy(self.server.port), self.env, self.folder)

    def _behind_a_cable(self, pool: str) -> WorkerPlace:
        """A worker that reaches Redis, and the database, by its cable alone."""
        cable = Cable().start()
        self.closing.append(cable.close)
        env = dict(self.env)
        where, at, port = env["DATABASE_URL"].rpartition("@")[2].partition("/")[0].rpartition(":")
        if at and port.isdecimal():
            ours = self._proxy(int(port), cable.host)
            env["DATABASE_URL"] = env["DATABASE_URL"].replace(f"{where}:{port}", f"{cable.host}:{ours.port}")
        return WorkerPlace(pool, self._proxy(self.server.port, cable.host), env, self.folder, cable)

    def _proxy(self, port: int, *host: str) -> TcpProxy:
        proxy = TcpProxy(port, *host).start()
        self.closing.append(proxy.close)
        return proxy

    def _words_of(self, kind: str) -> Callable[[str, int], Sequence[str]]:
        rate = str(self.rate_per_s / SENDERS["producer"])
        beat = ("celery", "-A", "tests.apps.chaos_app", "beat", "-S", "tests.apps.chaos_beat:Told", "--loglevel", "WARNING")
        words: dict[str, Callable[[str, int], Sequence[str]]] = {
            "producer": lambda name, seed: ("tests.apps.chaos_producer", name, str(seed), str(self.folder), rate),
            "relay": lambda name, seed: ("tests.apps.relay_process",),
            "beat": lambda name, seed: (*beat, "--pidfile", str(self.folder / f"{name}.pid")),
        }
        return words[kind]

    def tend(self) -> None:
        """Start again what has ended, and note what has ended by itself."""
        self.tend_workers()
        for sender in self.senders:
            if not sender.running and not sender.leaving:
                if sender.process is not None:
                    self.deaths.append(f"{sender.kind} {sender.name} has ended by itself: see its log")
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

    def kill_sender(self, kind: str) -> None:
        """SIGKILL a producer, relay or beat, wherever it is, and start the next."""
        sender = self.dice.choice([sender for sender in self.senders if sender.kind == kind])
        if sender.process is not None and sender.running:
            self._note(kind, kind, sender.process.pid)
            kill_session(sender.process)
            sender.boot(self.dice.getrandbits(32))

    def _note(self, pool: str, what: str, *pids: int) -> None:
        self.kills.append(Kill(pool, what, time.time(), frozenset(pids)))

    def end_sending(self, *kinds: str) -> None:
        """Ask those that send to end, and wait for them. One that is killed by the signal was not past its start."""
        ending = [sender for sender in self.senders if sender.kind in kinds]
        for sender in ending:
            sender.leaving = True
            if sender.process is not None and sender.running:
                sender.process.terminate()
        for sender in ending:
            code = wait_for_exit(sender.process, within_s=SHUTDOWN_S) if sender.process is not None else 0
            if code not in (0, -signal.SIGTERM):
                self.deaths.append(f"{sender.kind} {sender.name} ended with {code} when asked to: see its log")

    def end_working(self) -> None:
        """Ask the workers to end; each that is past its start has nothing left to do, and must say so with exit code 0."""
        running = [place.running for place in self.workers]
        for worker in filter(None, running):
            worker.sigterm()
        for worker in filter(None, running):
            code = worker.wait_exit(within_s=SHUTDOWN_S)
            if code not in (0, -signal.SIGTERM):
                self.deaths.append(f"{worker.hostname} ended with {code} when asked to: see {worker.log_file}")

    def close(self) -> None:
        """Kill what still runs."""
        for place in self.workers:
            if place.worker is not None:
                place.worker.kill_all()
        for sender in self.senders:
            if sender.process is not None:
                kill_session(sender.process)
        for close in self.closing:
            close()
