"""One chaos run: start everything, break it for a while, let it come to rest, balance the books.

Without the rest at the end a job that is merely late could not be told from one that is lost.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import django
import redis

from tests.apps.chaos_app import QUEUES
from tests.chaos.books import faults
from tests.chaos.evidence import Evidence, read_sends, read_starts
from tests.chaos.fleet import Fleet
from tests.chaos.follower import Follower
from tests.chaos.leftovers import busy, leftovers
from tests.chaos.operator import Operator
from tests.chaos.planting import leaks_not_seen, not_refused
from tests.chaos.report import picture, table
from tests.chaos.trouble import Trouble
from tests.support.postgres import PostgresMissing, PostgresServer
from tests.support.redis_server import RedisServer
from tests.support.waiting import let_pass, wait_until

PRODUCERS = 3
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


@dataclass
class Run:
    """One run, in one folder."""

    plan: Plan
    folder: Path
    redis_kills: list[float] = field(default_factory=list)

    def go(self) -> list[str]:
        """Run, write the picture, print the table; return what does not balance."""
        with ExitStack() as stack:
            database = stack.enter_context(_database(self.folder))
            server = stack.enter_context(RedisServer(appendonly=True))
            dice = random.Random(self.plan.seed)
            fleet = Fleet(server, self.folder, self._environment(database), dice, PRODUCERS, self.plan.rate_per_s)
            stack.callback(fleet.close)
            follower = Follower(server, QUEUES).start()
            trouble = Trouble(fleet.start(), Operator(server, follower, dice), dice, self.plan.lease_ms / 1000)
            began = time.monotonic()
            self._break_things(trouble, follower)
            self._come_to_rest(trouble, follower)
            return self._judge(trouble, follower, time.monotonic() - began)

    def _environment(self, database: str) -> dict[str, str]:
        return {
            "CHAOS_FOLDER": str(self.folder), "DATABASE_URL": database, "DJANGO_SETTINGS_MODULE": "tests.apps.chaos_settings",
            "WORKER_LOCK_DURATION_MS": str(self.plan.lease_ms), "WORKER_STALLED_INTERVAL_MS": str(self.plan.lease_ms // 10),
            "REDIS_RETRY_MAX_MS": "500", "JANITOR_INTERVAL_MS": "2000",
        }  # fmt: skip

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
                if trouble.act() == "Redis killed":
                    self.redis_kills.append(time.time())
            let_pass(0.02, because="what was broken has to be felt")

    def _hold_back(self, follower: Follower) -> None:
        hold = self.folder / "hold"
        if follower.open > MOST_OPEN:
            hold.touch()
        else:
            hold.unlink(missing_ok=True)

    def _come_to_rest(self, trouble: Trouble, follower: Follower) -> None:
        trouble.undo(all_of_it=True)
        fleet = trouble.fleet
        fleet.end_sending()

        def at_rest() -> bool:
            fleet.tend_workers()
            with fleet.server.client() as client:
                return not any(busy(client))

        with suppress(AssertionError):  # the books say what is missing
            wait_until(at_rest, says="all jobs have ended", within_s=REST_S, every_s=0.2, ignoring=redis.RedisError)
        fleet.end_working()
        follower.stop()

    def _judge(self, trouble: Trouble, follower: Follower, seconds: float) -> list[str]:
        fleet = trouble.fleet
        with fleet.server.client() as client:
            evidence = Evidence(
                sends=read_sends(self.folder), traces=follower.traces, starts=read_starts(self.folder), effects=_effects(),
                returned=frozenset(start.id for start in read_starts(self.folder, "returned")), kills=fleet.kills,
                leftovers=leftovers(client), gaps=follower.gaps(), deaths=fleet.deaths,
            )  # fmt: skip
            missed = [*not_refused(evidence), *leaks_not_seen(client)]
        title = f"{follower.added} jobs, {len(fleet.kills)} kills, seed {self.plan.seed}"
        (self.folder / "chaos.svg").write_text(picture(evidence, self.redis_kills, title))
        print(table(evidence, trouble.done, seconds))
        return [*faults(evidence), *(f"the books do not see: {name}" for name in missed)]


@contextmanager
def _database(folder: Path) -> Iterator[str]:
    """A database for effects: PostgreSQL, or SQLite where there is none. This process reads it too."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(PostgresServer()).create("chaos")
        except PostgresMissing:
            url = f"sqlite:///{folder / 'chaos.sqlite3'}"
        os.environ.update(DATABASE_URL=url, DJANGO_SETTINGS_MODULE="tests.apps.chaos_settings")
        django.setup()
        from django.core.management import call_command  # noqa: PLC0415 - settings first
        from django.db import connection  # noqa: PLC0415

        call_command("migrate", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE effects (key varchar(300))")
        connection.close()
        yield url


def _effects() -> Counter[str]:
    from django.db import connection  # noqa: PLC0415 - settings first

    with connection.cursor() as cursor:
        cursor.execute("SELECT key FROM effects")
        found = Counter(key for (key,) in cursor.fetchall())
    connection.close()
    return found
