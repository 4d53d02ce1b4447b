"""One chaos run: start everything, break it for a while, let it come to rest, balance the books.

Without the rest at the end a job that is merely late could not be told from one that is lost.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from queue_kit import schedules
from tests.apps import chaos_app
from tests.apps.chaos_app import QUEUES, SCHEDULES
from tests.chaos.books import faults
from tests.chaos.database import committed, database, effects, rows_left, rows_not_seen
from tests.chaos.evidence import Evidence, Undone, read_looks, read_sends, read_starts
from tests.chaos.failover import FailOvers
from tests.chaos.fleet import Fleet
from tests.chaos.follower import Follower
from tests.chaos.leftovers import busy, leftovers
from tests.chaos.operator import Operator
from tests.chaos.planting import leaks_not_seen, not_refused
from tests.chaos.report import picture, table
from tests.chaos.trouble import OF_REDIS, Trouble
from tests.support.cable import permitted
from tests.support.redis_server import RedisServer
from tests.support.replicated import AnyRedis, Replicated
from tests.support.sentinel import NAME
from tests.support.waiting import let_pass, wait_until

#: More than this many jobs that have not ended, and the producers wait: the run is to show crashes, not a full queue.
MOST_OPEN = 1500
#: All is well again, and every job ends within this: a few leases and retries, on a machine that is busy.
REST_S = 120.0


@dataclass(frozen=True)
class Plan:
    """What is asked of a run."""

    seconds: float
    jobs: int
    kills: int
    rate_per_s: float
    every_s: float
    lease_ms: int
    seed: int
    sentinels: bool
    waits: bool


@dataclass
class Run:
    """One run, in one folder."""

    plan: Plan
    folder: Path
    redis_kills: list[float] = field(default_factory=list)

    def go(self) -> list[str]:
        """Run, write the picture, print the table; return what does not balance."""
        with ExitStack() as stack:
            url = stack.enter_context(database(self.folder))
            server = self._redis(stack)
            dice = random.Random(self.plan.seed)
            cables = not self.plan.sentinels and permitted()
            fleet = Fleet(server, self.folder, self._environment(url, server), dice, self.plan.rate_per_s, cables)
            stack.callback(fleet.close)
            follower = Follower(server, QUEUES).start()
            failovers = FailOvers(server, follower) if isinstance(server, Replicated) else None
            for name, every_ms in SCHEDULES.items():
                schedules(chaos_app.make(server.url())).upsert(name, "chaos.pause", {"seconds": 0.01}, every_ms=every_ms)
            operator = Operator(server, follower, dice)
            trouble = Trouble(fleet.start(), operator, dice, self.plan.lease_ms / 1000, failovers)
            began = time.monotonic()
            self._break_things(trouble, follower)
            self._come_to_rest(trouble, follower)
            return self._judge(trouble, follower, time.monotonic() - began)

    def _redis(self, stack: ExitStack) -> AnyRedis:
        if not self.plan.sentinels:
            return stack.enter_context(RedisServer(appendonly=True))
        server = Replicated()
        stack.callback(server.close)
        os.environ["CHAOS_PRIMARY"] = NAME
        return server

    def _environment(self, url: str, server: AnyRedis) -> dict[str, str]:
        env = {
            "CHAOS_FOLDER": str(self.folder), "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.apps.chaos_settings",
            "WORKER_LOCK_DURATION_MS": str(self.plan.lease_ms), "WORKER_STALLED_INTERVAL_MS": str(self.plan.lease_ms // 10),
            "REDIS_RETRY_MAX_MS": "500", "JANITOR_INTERVAL_MS": "2000", "ENQUEUE_WAIT_REPLICAS": str(int(self.plan.waits)),
        }  # fmt: skip
        if self.plan.sentinels:
            env |= {"CHAOS_PRIMARY": NAME, "CELERY_BROKER_URL": server.url(), "CELERY_RESULT_BACKEND": server.url()}
        return env

    def _break_things(self, trouble: Trouble, follower: Follower) -> None:
        fleet, until = trouble.fleet, time.monotonic() + self.plan.seconds
        wait_until(lambda: all(place.ready for place in fleet.workers), says="all workers are ready", within_s=60)
        next_at = time.monotonic()
        while time.monotonic() < until or follower.added < self.plan.jobs or len(fleet.kills) < self.plan.kills:
            fleet.tend()
            trouble.undo()
            self._hold_back(follower)
            if time.monotonic() >= next_at:
                next_at = time.monotonic() + trouble.dice.expovariate(1 / self.plan.every_s)
                if trouble.act() in OF_REDIS:
                    self.redis_kills.append(time.time())
            let_pass(0.02, because="what was broken has to be felt")

    def _hold_back(self, follower: Follower) -> None:
        hold = self.folder / "hold"
        if follower.open > MOST_OPEN:
            hold.touch()
        else:
            hold.unlink(missing_ok=True)

    def _come_to_rest(self, trouble: Trouble, follower: Follower) -> None:
        """The producers end, then what sends for them, then the workers: each when it has had the time to do the rest."""
        trouble.undo(all_of_it=True)
        fleet, began_ms = trouble.fleet, int(time.time() * 1000)
        fleet.end_sending("producer")

        def all_is_sent() -> bool:
            fleet.tend()
            looked = {look.name for look in read_looks(self.folder) if look.begin_ms > began_ms}
            return not rows_left() and all(sender.name in looked for sender in fleet.senders if sender.kind == "beat")

        def at_rest() -> bool:
            fleet.tend_workers()
            with fleet.server.client() as client:
                return not any(busy(client))

        with _told_in(fleet.deaths):
            wait_until(all_is_sent, says="the outbox is empty and each beat looks again", within_s=REST_S, every_s=0.2)
        fleet.end_sending("relay", "beat")
        with _told_in(fleet.deaths):
            wait_until(at_rest, says="all jobs have ended", within_s=REST_S, every_s=0.2, ignoring=redis.RedisError)
        fleet.end_working()
        follower.stop()

    def _judge(self, trouble: Trouble, follower: Follower, seconds: float) -> list[str]:
        fleet = trouble.fleet
        with fleet.server.client() as client:
            evidence = Evidence(
                sends=read_sends(self.folder), traces=follower.traces, starts=read_starts(self.folder), effects=effects(),
                returned=frozenset(start.id for start in read_starts(self.folder, "returned")), committed=committed(),
                looks=read_looks(self.folder), undone=trouble.failovers.undone if trouble.failovers else Undone(),
                waited=self.plan.waits, kills=fleet.kills, leftovers=[*leftovers(client), *rows_left()],
                gaps=follower.gaps(), deaths=fleet.deaths,
            )  # fmt: skip
            missed = [*not_refused(evidence), *leaks_not_seen(client), *rows_not_seen()]
        title = f"{follower.added} jobs, {len(fleet.kills)} kills, seed {self.plan.seed}"
        (self.folder / "chaos.svg").write_text(picture(evidence, self.redis_kills, title))
        print(table(evidence, trouble.done, seconds))
        return [*faults(evidence), *(f"the books do not see: {name}" for name in missed)]


@contextmanager
def _told_in(deaths: list[str]) -> Iterator[None]:
    """Note what has not come to pass, and go on: the books say what is missing by that."""
    try:
        yield
    except AssertionError as error:
        deaths.append(str(error))
