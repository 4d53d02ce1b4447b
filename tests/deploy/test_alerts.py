"""The alerts, on what real web and worker processes tell when that has come about which each of them is for: it fires then,
and not before. `tests/support/recording.py` says how time is stretched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from queue_kit import control
from tests.deploy.test_rules import RULES
from tests.deploy.test_web_process import Web
from tests.support.ports import LOOPBACK, free_port
from tests.support.probes import ask, series
from tests.support.processes import kill_session
from tests.support.recording import Recording
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import Stage

pytestmark = pytest.mark.crash

CALM = 12

QUEUES = ("failing", "new", "unwritten", "slow", "outage")


@dataclass
class Site:
    """Redis, the web, and a worker of all queues; each test has a queue of its own."""

    redis: RedisServer
    web: Web
    folder: Path
    ports: dict[int, str]

    def __post_init__(self) -> None:
        self.stage = Stage(self.redis.url(), "calm", self.folder, self.start_worker)

    def start_worker(self, app: str = "", **options: Any) -> WorkerProcess:
        """A worker with a port, which is scraped from now on."""
        port = free_port()
        env = {
            "ENABLE_WORKER_METRICS_SERVER": "true", "WORKER_METRICS_PORT": str(port), "DEAD_LETTER_MAX_ENTRIES": "5",
            "WORKER_METRICS_HOST": LOOPBACK, **options.pop("env"),
        }  # fmt: skip
        self.ports[port] = "workers"
        return WorkerProcess(app=app, folder=self.folder, env=env, **options).start()

    def record(self, queue: str = "") -> Recording:
        """Begin, with minutes in which nothing goes wrong, more of them than a rule looks back; in this queue a job has run."""
        if queue:
            self.stage.await_end(self.stage.send("quick", queue))
        recording = Recording(self.ports)
        recording.minute(CALM)
        recording.expect()
        return recording

    def fail(self, queue: str) -> None:
        """Let a job fail for good."""
        self.stage.await_end(self.stage.send("flaky", queue, failures=9))

    def told_by(self, port: int) -> dict[tuple[str, ...], float]:
        return series(ask(port, "/metrics").text)

    def waits(self, queue: str) -> float:
        """For how many seconds the queue's oldest job has waited."""
        return self.told_by(self.web.port)["qwk_queue_oldest_waiting_seconds", queue]


@pytest.fixture(scope="module")
def site(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("alerts")
    with RedisServer() as server:
        web = Web(server.port, folder)
        made = Site(server, web, folder, {web.port: "web"})
        made.stage.worker("threads", 4, queues=QUEUES)
        yield made
        server.thaw()
        for process in (web.process, *(worker.process for worker in made.stage.started)):
            kill_session(process)


def test_jobs_that_fail_warn_as_dead_letters_at_once_and_as_a_ratio_once_that_lasts(site: Site, tmp_path: Path) -> None:
    recording = site.record("failing")
    alerts = [("DeadLetters", "failing"), ("DeadLettersEvicted", "failing"), ("JobsFail", "failing")]
    expected = {1: alerts[:1], 5: alerts[:1], 6: alerts[:2], 10: alerts[:2], 11: alerts}
    for minute in range(1, 12):
        site.fail("failing")
        recording.minute()
        if minute in expected:
            recording.expect(*expected[minute])
    recording.check(RULES, tmp_path)


def test_the_very_first_job_of_a_queue_that_fails_warns_too(site: Site, tmp_path: Path) -> None:
    """Its failure comes with the series that tells of it, and so is no increase."""
    recording = site.record()
    site.fail("new")
    recording.minute()
    recording.expect(("DeadLetters", "new"))
    recording.check(RULES, tmp_path)


def test_a_dead_letter_that_cannot_be_written_pages_at_once(site: Site, tmp_path: Path) -> None:
    """I5: somebody has put another type under the key."""
    recording = site.record("unwritten")
    site.redis.client().set("qwk:q:unwritten:dead", "no list")
    site.fail("unwritten")
    recording.minute()
    recording.expect(("DeadLetterWriteFailures", "unwritten"))
    recording.check(RULES, tmp_path)


def test_a_killed_worker_warns_as_stalls_at_once_and_as_not_ready_once_it_stays_away(site: Site, tmp_path: Path) -> None:
    worker = site.stage.worker("threads", 4, queues=["stalls"])
    instance, recording = f"{LOOPBACK}:{list(site.ports)[-1]}", site.record("stalls")
    jobs = [site.stage.send("hold", "stalls", gate="never") for _ in range(4)]
    for job in jobs:
        site.stage.await_starts(job)
    worker.kill_all()
    wait_until(lambda: all(site.stage.job(job).stalled_count for job in jobs), says="all have stalled")
    recording.minute(2)
    recording.expect(("JobsStall", "stalls"))
    recording.minute()
    recording.expect(("JobsStall", "stalls"), ("NotReady", instance))
    recording.check(RULES, tmp_path)
    site.ports.popitem()
    control.drain("stalls", app=site.stage.app)


def test_a_worker_that_was_frozen_past_its_lease_warns(site: Site, tmp_path: Path) -> None:
    worker = site.stage.worker("threads", queues=["lost"])
    recording = site.record("lost")
    job = site.stage.send("hold", "lost", gate="lost")
    site.stage.await_starts(job)
    site.stage.freeze(worker)
    wait_until(lambda: site.stage.job(job).stalled_count, says="another has taken its lease away")
    site.stage.thaw(worker)
    worker.wait_for_log("has lost its lease")
    recording.minute()
    recording.expect(("LeasesLost", "lost"))
    recording.check(RULES, tmp_path)
    site.stage.open("lost")
    site.stage.await_end(job)


def test_a_queue_that_stands_warns_and_so_do_the_waits_that_come_of_it_once_they_last(site: Site, tmp_path: Path) -> None:
    recording, app = site.record("slow"), site.stage.app

    def stand(seconds: float) -> list[str]:
        control.pause("slow", app)
        jobs = [site.stage.send("quick", "slow") for _ in range(4)]
        wait_until(lambda: site.waits("slow") > seconds, says=f"they have waited for {seconds} s", within_s=20)
        return jobs

    jobs = stand(5.1)
    recording.minute(5)
    recording.expect()
    recording.minute()
    recording.expect(("QueueBacklog", "slow"))
    for more in (5, 5):
        control.resume("slow", app)
        site.stage.await_ends(jobs)
        recording.minute(more)
        recording.expect()
        jobs = stand(1.1)
    control.resume("slow", app)
    recording.minute()
    recording.expect(("JobsWaitLong", "slow"))
    recording.check(RULES, tmp_path)


def test_an_outage_of_redis_pages_and_so_warns_whoever_cannot_renew(site: Site, tmp_path: Path) -> None:
    recording, (_, port, *_) = site.record("outage"), site.ports
    job = site.stage.send("hold", "outage", gate="outage")
    site.stage.await_starts(job)
    site.redis.freeze()
    wait_until(lambda: any("renewals_failed" in name for name, *_ in site.told_by(port)), says="a renewal has failed")
    recording.minute()
    recording.expect()
    recording.minute()
    recording.expect(("QueueRedisDown", ""))
    recording.minute()
    recording.expect(("QueueRedisDown", ""), ("LeaseRenewalsFail", "outage"))
    recording.check(RULES, tmp_path)
    site.redis.thaw()
    site.stage.open("outage")
    site.stage.await_end(job)
