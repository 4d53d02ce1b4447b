"""SIGKILL at every named point beside a run: in a sender, in the reaper, the janitor and the teller."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from queue_kit.errors import JobStalledError
from queue_kit.states import State
from queue_kit.store import Claimed, Ledger, Room, Traits
from queue_kit.transport import points
from tests.support.fixtures import StartWorker
from tests.support.leaks import leaked_keys
from tests.support.processes import ROOT, environment_with_project, spawn
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for_exit, wait_until
from tests.worker.stage import Stage

pytestmark = pytest.mark.crash

AT_ONCE = 4
MANY = 2500

# -- senders --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Death:
    """Where a sender dies, the nth time that it comes by, and how many of its jobs Redis may have by then."""

    way: str
    point: str
    nth: int
    there: tuple[int, ...]

    @property
    def id(self) -> str:
        return f"{self.way}-{self.point}-{self.nth}".replace(" ", "-")


ONE_JOB = {"send entering": (0,), "send writing": (0,), "send written": (0, 1), "send answered": (1,)}
#: Fifty of many are one script.
SOME_OF_MANY = tuple(range(0, MANY + 1, 50))
#: A thousand are one trip.
DEATHS = [
    *(Death(way, point, 1, there) for way in ("enqueue", "delay") for point, there in ONE_JOB.items()),
    *(Death("many", "send writing", nth, SOME_OF_MANY[:-1]) for nth in (1, 2, 3)),
    Death("many", "send written", 3, SOME_OF_MANY),
    Death("many", "send answered", 2, (2000,)),
    Death("many", "send answered", 3, (MANY,)),
]


def test_every_point_of_a_sender_has_its_case() -> None:
    """B13: a point that is added gets its line here."""
    assert {death.point for death in DEATHS} == set(points.SENDER)
    assert ONE_JOB.keys() == set(points.SENDER)


def test_a_sender_killed_at_any_point_has_sent_a_job_or_has_not(
    redis_server: RedisServer, tmp_path: Path, start_worker: StartWorker
) -> None:
    """B13: killed: a process that sends one job, or 2,500, between any two steps. Then each job is whole or not there, the same
    id may be sent again, and each job that is there runs once."""
    stages = {death: _stage(redis_server, db, tmp_path / death.id, start_worker) for db, death in enumerate(DEATHS)}
    for batch in _batches(list(stages.items())):
        senders = [_sender(stage, death) for death, stage in batch]
        ended = {death.id: wait_for_exit(sender, within_s=60) for (death, _), sender in zip(batch, senders, strict=True)}
        assert ended == dict.fromkeys(ended, -signal.SIGKILL)
    for death, stage in stages.items():
        waiting = {job_id.decode() for job_id in stage.client.zrange("qwk:q:celery:wait", 0, -1)}
        assert len(waiting) in death.there, death
        assert len(stage.client.keys("qwk:job:*")) == len(waiting)
        if death.way != "many":
            stage.app.send_task("crash.quick", task_id=death.id, queue="celery")
            waiting = {death.id}
        done = [job.id for claimed in iter(lambda stage=stage: _claimed(stage, 500), []) for job in claimed]
        assert sorted(done) == sorted(waiting)
        added = [event.job_id for event in stage.census.events("celery") if event.kind == "added"]
        assert sorted(added) == sorted(waiting)


def _sender(stage: Stage, death: Death) -> subprocess.Popen[bytes]:
    env = environment_with_project(
        {"CELERY_BROKER_URL": stage.url, "CRASH_FOLDER": str(stage.folder), "CRASH_AT": f"kill:{death.point}:{death.nth}"}
    )
    words = [sys.executable, "-m", "tests.apps.sending_process", death.way, death.id]
    return spawn(words, log=stage.folder / "sender.log", cwd=ROOT, env=env)


# -- roles ----------------------------------------------------------------------------------------------------------------


def _abandon(stage: Stage) -> None:
    """A job whose worker is gone."""
    _claimed(stage, 1)


def _end(stage: Stage) -> None:
    """A job that has completed."""
    (job,) = _claimed(stage, 1)
    Ledger(stage.client).run(stage.app.queue_kit.moves.complete(job.id, job.token))


def _ran_again(stage: Stage, job_id: str) -> None:
    view = stage.await_end(job_id)
    # Its main loop may have claimed the job in the instant before the kill.
    assert (view.state, view.attempts_started - view.stalled_count) == (State.COMPLETED, 1)
    assert stage.starts(job_id) == 1


def _was_trimmed(stage: Stage, job_id: str) -> None:
    wait_until(lambda: stage.job(job_id).trimmed, says="its record is trimmed")
    assert (stage.job(job_id).state, stage.census.counts("celery")[State.COMPLETED]) == (State.COMPLETED, 0)


def _was_told(stage: Stage, job_id: str) -> None:
    stage.client.zadd("qwk:notes", {job_id: 0}, xx=True)  # the minute is over that its first teller had
    with pytest.raises(JobStalledError):
        stage.app.AsyncResult(job_id).get(timeout=15)
    wait_until(lambda: not stage.client.exists("qwk:notes"), says="the note is struck")
    assert stage.trace(job_id, "celery").count("failed") == 1
    assert stage.client.zcard("qwk:q:celery:dead") == 1


@dataclass(frozen=True)
class Part:
    """What a role has to do, with which settings, and how it must have been done in the end."""

    points: tuple[str, ...]
    prepare: Callable[[Stage], None]
    env: dict[str, str]
    done: Callable[[Stage, str], None]


PARTS = [
    Part(("reap sending", "reaped"), _abandon, {"WORKER_MAX_STALLED_COUNT": "3"}, _ran_again),
    Part(
        ("trim sending", "trimmed"), _end, {"JOB_REMOVE_ON_COMPLETE_COUNT": "0", "JANITOR_INTERVAL_MS": "200"}, _was_trimmed
    ),
    Part(("note read", "note told", "note struck"), _abandon, {"WORKER_MAX_STALLED_COUNT": "0"}, _was_told),
]


def test_every_point_of_a_role_has_its_case() -> None:
    """B13: a point that is added gets its line here."""
    assert sorted(point for part in PARTS for point in part.points) == sorted(points.ROLES)


def test_a_kill_at_any_point_of_a_role_leaves_its_work_to_the_next_worker(
    redis_server: RedisServer, tmp_path: Path, start_worker: StartWorker
) -> None:
    """B13: given a job for each point whose worker is gone, or which has ended. Killed: the worker whose reaper, janitor or
    teller is at work on it. Then the next worker brings it to its end, once, and nothing is left behind."""
    cases = [(part, point) for part in PARTS for point in part.points]
    stages = [_stage(redis_server, db, tmp_path / point, start_worker) for db, (_, point) in enumerate(cases)]
    jobs = [stage.app.send_task("crash.plain", queue="celery").id for stage in stages]
    for (part, _), stage in zip(cases, stages, strict=True):
        part.prepare(stage)
    for batch in _batches(list(zip(cases, stages, strict=True))):
        victims = [_worker(stage, part, at=f"kill:{point}") for (part, point), stage in batch]
        assert {victim.wait_exit(within_s=60) for victim in victims} == {-signal.SIGKILL}
    for batch in _batches(list(zip(cases, stages, jobs, strict=True))):
        heirs = [_worker(stage, part) for (part, _), stage, _ in batch]
        for (part, _), stage, job_id in batch:
            part.done(stage, job_id)
            assert leaked_keys(redis.Redis.from_url(stage.url, decode_responses=True)) == []
        for heir in heirs:
            heir.kill_all()


def _worker(stage: Stage, part: Part, **options: Any) -> Any:
    return stage.worker("solo", queues=["celery"], env=part.env, backend_url=stage.url, wait=False, **options)


# -- what both share ------------------------------------------------------------------------------------------------------


def _stage(server: RedisServer, db: int, folder: Path, start_worker: StartWorker) -> Stage:
    """A stage in a database of its own."""
    folder.mkdir()
    stage = Stage(server.url(db), "celery", folder, start_worker)
    stage.app.conf.result_backend = stage.url
    return stage


def _claimed(stage: Stage, limit: int) -> list[Claimed]:
    """Take jobs as a worker would that is never heard of again."""
    room, traits = Room(limit, limit, 10, frozenset()), Traits(frozenset(), frozenset())
    claim = stage.app.queue_kit.moves.claim("ghost", "ghost.1", room, traits, ["celery"])
    return Ledger(stage.client).run(claim).jobs


def _batches(items: list[Any]) -> Iterator[list[Any]]:
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))
