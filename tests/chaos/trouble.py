"""What happens to the processes of a chaos run: a seeded choice of kills, freezes and faults of the network.

Without it each run would fail in the one way its author had thought of that day.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from tests.chaos.failover import FailOvers
from tests.chaos.fleet import Fleet
from tests.chaos.operator import Operator
from tests.chaos.places import WorkerPlace
from tests.support.processes import send
from tests.support.proxy import TcpProxy

Acts = Mapping[str, tuple[int, Callable[["Trouble"], None]]]


@dataclass
class Trouble:
    """`act` does something bad; `undoing` has what it has to put right later, and when; `done` counts what was done. With
    `failovers` Redis is lost by them, and the network is left alone: there is no proxy between Sentinels and their clients."""

    fleet: Fleet
    operator: Operator
    dice: random.Random
    lease_s: float
    failovers: FailOvers | None = None
    undoing: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)

    def act(self) -> str:
        """Do one thing, and return its name."""
        acts = {**PROCESSES, **(ONE_REDIS if self.failovers is None else SENTINELS)}
        name = self.dice.choices(list(acts), [weight for weight, _ in acts.values()])[0]
        acts[name][1](self)
        self.done[name] = self.done.get(name, 0) + 1
        return name

    def undo(self, *, all_of_it: bool = False) -> None:
        """Put right what has lasted long enough, or everything."""
        now = time.monotonic()
        due = [entry for entry in self.undoing if all_of_it or entry[0] <= now]
        self.undoing = [entry for entry in self.undoing if entry not in due]
        for _, repair in due:
            repair()

    def later(self, repair: Callable[[], None], least_s: float, most_s: float) -> None:
        """Put something right after a while."""
        self.undoing.append((time.monotonic() + self.dice.uniform(least_s, most_s), repair))

    # -- processes ------------------------------------------------------------------------------------------------------

    def _any_worker(self, *pools: str) -> WorkerPlace:
        """One that is ready, rather than one that boots."""
        places = [place for place in self.fleet.workers if not pools or place.pool in pools]
        return self.dice.choice([place for place in places if place.ready] or places)

    def kill_worker(self) -> None:
        self.fleet.kill_worker(self._any_worker())

    def kill_main(self) -> None:
        self.fleet.kill_main(self._any_worker())

    def kill_child(self) -> None:
        self.fleet.kill_child(self._any_worker("prefork"))

    def kill_producer(self) -> None:
        self.fleet.kill_sender("producer")

    def kill_relay(self) -> None:
        self.fleet.kill_sender("relay")

    def kill_beat(self) -> None:
        self.fleet.kill_sender("beat")

    def end_worker(self) -> None:
        """SIGTERM, as each deployment does."""
        place = self._any_worker()
        if place.running is not None:
            place.leaving = True
            place.running.sigterm()

    def lose_machine(self) -> None:
        """A worker is killed with its warden, which would have seen it."""
        place = self._any_worker()
        if place.running is not None:
            for warden in wardens_of(place.running.pid):
                send(warden, signal.SIGKILL)
            self.fleet.kill_worker(place)

    def freeze_worker(self) -> None:
        """SIGSTOP a worker and its children, for less than a lease or for more."""
        worker = self._any_worker().running
        if worker is not None:
            pid = worker.pid
            _signal_group(pid, signal.SIGSTOP)
            self.later(lambda: _signal_group(pid, signal.SIGCONT), 0.1, 2 * self.lease_s)

    # -- Redis ----------------------------------------------------------------------------------------------------------

    def kill_redis(self) -> None:
        self.fleet.server.kill()
        self.later(self._revive_redis, 0.0, self.lease_s)

    def _revive_redis(self) -> None:
        if not self.fleet.server.running:
            self.fleet.server.start()

    def freeze_redis(self) -> None:
        server = self.fleet.server
        if server.running:
            server.freeze()
            self.later(lambda: server.thaw() if server.running else None, 0.1, self.lease_s)

    def fail_over(self, *lag_s: float) -> None:
        """Lose the primary, and a worker before there is the next."""
        assert self.failovers is not None
        self.failovers.lose(*lag_s)
        self.kill_worker()
        self.failovers.finish()

    # -- the network ----------------------------------------------------------------------------------------------------

    def reset_all(self) -> None:
        for proxy in self._networks():
            proxy.reset()

    def pull_cable(self) -> None:
        """A partition: a worker's packets vanish. Without namespaces there is no cable, and a proxy has to do."""
        cable = self._any_worker().cable
        if cable is None:
            self.stall_network()
        else:
            cable.pull()
            self.later(cable.plug, 0.1, 2 * self.lease_s)

    def stall_network(self) -> None:
        """As seen from the kernels all is well: nothing gets through, nothing is told."""
        proxy = self._any_network()
        proxy.stall()
        self.later(proxy.restore, 0.1, 2 * self.lease_s)

    def cut_network(self) -> None:
        """A dead host: every connection is reset, new ones are refused."""
        proxy = self._any_network()
        proxy.cut()
        self.later(proxy.restore, 0.1, self.lease_s)

    def lose_answers(self) -> None:
        self._any_network().lose_answers(self.dice.randint(1, 3))

    def slow_network(self) -> None:
        proxy = self._any_network()
        proxy.slow(self.dice.uniform(0.005, 0.1))
        self.later(proxy.restore, 1, 2 * self.lease_s)

    def _any_network(self) -> TcpProxy:
        return self.dice.choice(self._networks())

    def _networks(self) -> list[TcpProxy]:
        return [*(place.proxy for place in self.fleet.workers), *(place.proxy for place in self.fleet.senders)]


def wardens_of(pid: int) -> list[int]:
    """The processes that wait for a worker's end: each was started with the path of a file that the worker has open."""
    try:
        files = {file.path for file in psutil.Process(pid).open_files()}
    except psutil.Error:
        return []
    found = psutil.process_iter(["cmdline"])
    return [one.pid for one in found if (words := one.info["cmdline"]) and "warden.py" in " ".join(words) and words[-1] in files]


def _signal_group(pid: int, signal_: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal_)


#: What happens, and how often in proportion.
PROCESSES: Acts = {
    "worker killed": (6, Trouble.kill_worker),
    "worker killed with its warden": (2, Trouble.lose_machine),
    "main process killed": (4, Trouble.kill_main),
    "pool child killed": (8, Trouble.kill_child),
    "producer killed": (4, Trouble.kill_producer),
    "relay killed": (4, Trouble.kill_relay),
    "beat killed": (4, Trouble.kill_beat),
    "worker asked to end": (2, Trouble.end_worker),
    "worker frozen": (4, Trouble.freeze_worker),
    "jobs cancelled": (3, lambda trouble: trouble.operator.cancel()),
    "dead letters replayed": (4, lambda trouble: trouble.operator.replay()),
}
ONE_REDIS: Acts = {
    "Redis killed": (2, Trouble.kill_redis),
    "Redis frozen": (2, Trouble.freeze_redis),
    "connections reset": (3, Trouble.reset_all),
    "cable pulled": (4, Trouble.pull_cable),
    "network stalled": (3, Trouble.stall_network),
    "network cut": (2, Trouble.cut_network),
    "answers lost": (3, Trouble.lose_answers),
    "network slow": (2, Trouble.slow_network),
}
SENTINELS: Acts = {
    "primary lost": (5, Trouble.fail_over),
    "primary lost without replicas": (5, lambda trouble: trouble.fail_over(trouble.dice.uniform(0.2, 1.5))),
}
#: Of those, what takes Redis away.
OF_REDIS = ("Redis killed", *SENTINELS)
