"""A project moves to queue_kit and back on one Redis: what waits goes over whole, whoever is killed, and both kinds of worker and
producer may run at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from queue_kit import ConfigurationError, open_census
from queue_kit.states import State
from queue_kit.worker.operating.migration import Migration, Moved
from tests.apps import moving_app
from tests.support.fixtures import StartWorker
from tests.support.processes import ROOT, environment_with_project, kill_session, spawn
from tests.support.redis_server import RedisServer
from tests.support.waiting import let_pass, wait_until
from tests.support.worker_process import WorkerProcess

TAKING = {"MOVING_OURS": "1", "TAKE_STOCK_MESSAGES": "1"}


@dataclass
class Move:
    """Both halves of the project on one Redis: the app before, and the app with the line."""

    server: RedisServer
    queue: str
    folder: Path
    start_worker: StartWorker
    client: redis.Redis
    made: list[Celery] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before, self.after = self.app(ours=False), self.app(ours=True)
        self.migration = Migration(self.after, self.server.client())
        self.census = open_census(self.after)

    def app(self, **options: Any) -> Celery:
        self.made.append(moving_app.make(self.server.url(), **options))
        return self.made[-1]

    def worker(self, ours: bool, **env: str) -> WorkerProcess:
        env = {"MOVING_FOLDER": str(self.folder), **(TAKING if ours else {}), **env}
        return self.start_worker("tests.apps.moving_app", backend_url="", env=env, pool="threads", concurrency=2)

    def send(self, app: Celery, name: str, *args: Any, **options: Any) -> str:
        return str(app.send_task(f"moving.{name}", args, queue=self.queue, **options).id)

    def left(self) -> int:
        """Messages in the stock lists."""
        return self.migration.waiting([self.queue], back=False)

    def book(self) -> list[str]:
        path = self.folder / "book"
        return path.read_text().splitlines() if path.exists() else []

    def await_lines(self, *lines: str) -> None:
        for line in lines:
            wait_until(lambda: line in self.book(), says=f"the book says {line!r}", within_s=20)  # noqa: B023


@pytest.fixture
def move(
    redis_server: RedisServer, queue_name: str, tmp_path: Path, start_worker: StartWorker, client: redis.Redis
) -> Iterator[Move]:
    made = Move(redis_server, queue_name, tmp_path, start_worker, client)
    yield made
    for app in made.made:
        app.close()
    client.delete("unacked", "unacked_index", *client.keys(f"{queue_name}*"), "-")


def outcomes(moved: Iterator[Moved]) -> Counter[str]:
    return Counter(one.outcome for one in moved)


# -- there ----------------------------------------------------------------------------------------------------------------


def test_what_waits_goes_over_in_its_order_with_its_priority_eta_and_expiry(move: Move) -> None:
    sent = [move.send(move.before, "work", number) for number in range(3)]
    urgent, late = move.send(move.before, "work", 3), move.send(move.before, "work", 4, priority=9)
    later = move.send(move.before, "work", 5, countdown=3600)
    expiring = move.send(move.before, "work", 6, expires=3600)
    assert outcomes(move.migration.take([move.queue], dry_run=True)) == {"would move": 7}
    assert move.left() == 7
    assert outcomes(move.migration.take([move.queue])) == {"waiting": 6, "delayed": 1}
    assert move.left() == 0
    assert [job.id for job in move.census.jobs(move.queue, State.WAITING)] == [*sent, urgent, expiring, late]
    assert [job.id for job in move.census.jobs(move.queue, State.DELAYED)] == [later]
    assert move.client.hget(f"qwk:job:{expiring}", "expires_at") is not None
    assert outcomes(move.migration.take([move.queue])) == {}


def test_what_is_no_task_stays_and_holds_nobody_up(move: Move) -> None:
    move.client.lpush(move.queue, json.dumps({"body": "a letter", "headers": {}, "properties": {}}), "no json", "[]")
    move.send(move.before, "work", 1)
    move.client.execute_command("LPUSH", move.queue, b"\xff\xfe no text")
    migration = Migration(move.after, redis.Redis.from_url(move.server.url()))
    assert outcomes(migration.take([move.queue])) == {"waiting": 1, "no task": 4}
    assert move.left() == 4


@pytest.mark.crash
def test_what_stock_workers_hold_is_taken_past_their_visibility_timeout_alone(move: Move) -> None:
    """The worker is killed with a job in hand, and one of its own that it has taken ahead."""
    worker = move.worker(ours=False)
    for number in range(4):
        move.send(move.before, "hold", number)
    move.await_lines("0 begun", "1 begun")
    wait_until(lambda: move.client.zcard("unacked_index") == 4, says="it has taken two more ahead")
    worker.kill_all()
    assert outcomes(move.migration.take_held([move.queue], 60)) == {}
    assert outcomes(move.migration.take_held([f"{move.queue}-other"], 0)) == {}
    assert outcomes(move.migration.take_held([move.queue], 0, dry_run=True)) == {"would move": 4}
    assert outcomes(move.migration.take_held([move.queue], 0)) == {"waiting": 4}
    assert move.client.exists("unacked", "unacked_index") == 0


@pytest.mark.crash
def test_workers_take_it_over_by_themselves_where_a_setting_says_so(move: Move) -> None:
    """K22: waiting, and what a killed stock worker has held past its own visibility timeout."""
    stock = move.worker(ours=False)
    move.send(move.before, "hold", 0)
    move.await_lines("0 begun")
    stock.kill_all()
    (move.folder / "gate").touch()
    ours = move.worker(ours=True, MOVING_VISIBILITY_S="3")
    for number in range(1, 20):
        move.send(move.before, "work", number)
    move.await_lines(*[f"{number} ours" for number in range(1, 20)], "0 ended")
    assert Counter(move.book())["0 begun"] == 2
    assert max(Counter(move.book()).values()) == 2
    assert "messages taken over from stock Celery" in ours.logs()
    assert "plain Redis list" not in ours.logs()


def test_two_that_move_at_once_move_each_message_once(move: Move) -> None:
    """What the other has taken is not said to stay."""
    for number in range(200):
        move.send(move.before, "work", number)
    other = Migration(move.after, move.server.client())
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(lambda m: outcomes(m.take([move.queue])), one) for one in (move.migration, other)]
        found = [future.result() for future in both]
    assert found[0] + found[1] == {"waiting": 200}
    assert len(move.census.jobs(move.queue, State.WAITING, 500)) == 200


# -- both at once ---------------------------------------------------------------------------------------------------------


def test_in_a_rolling_deploy_old_and_new_producers_and_workers_run_side_by_side(move: Move) -> None:
    """Every job runs once; what an old producer sends runs on either kind of worker, also when it is retried."""
    move.worker(ours=False)
    move.worker(ours=True)
    for number in range(0, 120, 3):
        move.send(move.before, "work", number)
        move.send(move.after, "work", number + 1)
        move.send(move.before if number % 2 else move.after, "again", number + 2)
    wait_until(lambda: len(move.book()) >= 160, says="all have run", within_s=30)
    lines = Counter(move.book())
    expected = [f"{number + 2} try {attempt}" for number in range(0, 120, 3) for attempt in (0, 1)]
    assert [line for line in expected if lines[line] != 1] == []
    worked = [int(line.split()[0]) for line in move.book() if "try" not in line]
    assert sorted(worked) == sorted([*range(0, 120, 3), *range(1, 120, 3)])
    assert {line for line in move.book() if line.endswith("stock") and int(line.split()[0]) % 3 == 1} == set()


def test_a_web_that_is_deployed_before_its_workers_may_have_its_jobs_held_off(move: Move) -> None:
    """Without the setting a job of an unknown task is a dead letter at once."""
    old = move.worker(ours=True, UNKNOWN_TASK_HOLD_MS="20000")
    job = move.send(move.after, "new", 1)
    wait_until(lambda: len(move.census.runs(job)) == 1, says="it was held off")
    view = move.census.job(job)
    assert view is not None
    assert (view.state, view.attempts_made) == (State.DELAYED, 0)
    new = move.worker(ours=True, MOVING_NEW="1")
    old.stop()
    move.await_lines("1 new")
    assert new.running
    assert move.census.dead_letter_count(move.queue) == 0


def test_a_job_that_was_held_off_for_long_enough_is_a_dead_letter(move: Move) -> None:
    move.worker(ours=True, UNKNOWN_TASK_HOLD_MS="600")
    job = move.send(move.after, "new", 1)
    wait_until(lambda: move.census.dead_letter_count(move.queue) == 1, says="its time is over")
    view = move.census.job(job)
    assert view is not None
    assert (view.cause, view.attempts_made) == ("unknown_task", 1)
    held_for_ms = (view.finished_at_ms or 0) - (view.added_at_ms or 0)
    assert held_for_ms >= 600


# -- and back -------------------------------------------------------------------------------------------------------------


def test_what_waits_here_goes_back_and_runs_on_a_stock_worker(move: Move) -> None:
    for number in range(3):
        move.send(move.after, "work", number)
    move.send(move.after, "work", 3, countdown=1)
    assert outcomes(move.migration.give_back([move.queue])) == {"ok": 4}
    assert [key for key in move.client.keys("qwk:job:*")] == []  # noqa: C416 - shown when it is not empty
    assert move.left() == 4
    move.worker(ours=False)
    move.await_lines("0 stock", "1 stock", "2 stock", "3 stock")
    assert [line for line in move.book() if line != "3 stock"] == ["0 stock", "1 stock", "2 stock"]


def test_there_and_back_again_loses_nothing_of_a_job(move: Move) -> None:
    sent = move.send(move.after, "work", 1, priority=6, expires=3600, headers={"x-own": "kept"})
    before = move.census.job(sent)
    assert outcomes(move.migration.give_back([move.queue])) == {"ok": 1}
    assert outcomes(move.migration.take([move.queue])) == {"waiting": 1}
    after = move.census.job(sent)
    assert before is not None
    assert after is not None
    assert json.loads(after.message) == json.loads(before.message)
    assert replace(after, added_at_ms=None, message="") == replace(before, added_at_ms=None, message="")


def test_nothing_is_given_back_while_workers_would_take_it_again(move: Move) -> None:
    taking = Migration(move.app(ours=True, options={"TAKE_STOCK_MESSAGES": True}), move.server.client())
    with pytest.raises(ConfigurationError, match="TAKE_STOCK_MESSAGES: turn it off"):
        list(taking.give_back([move.queue]))


# -- killed in the middle -------------------------------------------------------------------------------------------------

MANY = 4000


@pytest.mark.crash
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_a_kill_in_the_middle_leaves_every_message_on_one_side(move: Move, back: bool) -> None:
    """Given 4,000 that wait, the command killed some way through, twice; then what is left is moved by a third."""
    sent = move.send(move.before, "work", 1)
    [message] = move.client.lrange(move.queue, 0, -1)
    move.client.lpush(move.queue, *[message.replace(sent, f"{number:036}") for number in range(MANY - 1)])
    if back:
        list(move.migration.take([move.queue]))
    for part in (3, 2):
        kill_once(move, back, lambda: move.migration.waiting([move.queue], back) < MANY * (part - 1) // 3)  # noqa: B023
        assert move.left() + move.migration.waiting([move.queue], back=True) == MANY
    assert 0 < move.left() < MANY
    done = command(move, back)
    assert done.returncode == 0, done.stderr
    assert move.migration.waiting([move.queue], back) == 0
    ids = {json.loads(raw)["headers"]["id"] for raw in move.client.lrange(move.queue, 0, -1)} if back else set()
    assert len(ids | {key.removeprefix("qwk:job:") for key in move.client.keys("qwk:job:*")}) == MANY


def words(back: bool, queue: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), "queue_migrate", "--queue", queue, *(["--back"] if back else [])]


def environment(move: Move) -> dict[str, str]:
    return environment_with_project({"REDIS_URL": move.server.url(), "DJANGO_SETTINGS_MODULE": "deploy.settings"})


def kill_once(move: Move, back: bool, when: Callable[[], bool]) -> None:
    process = spawn(words(back, move.queue), log=move.folder / "migrate.log", cwd=ROOT, env=environment(move))
    wait_until(when, says="it is some way through", within_s=20, every_s=0.001)
    kill_session(process)


def command(move: Move, back: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(back, move.queue), cwd=ROOT, env=environment(move), capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_says_what_it_has_moved_and_what_stays(move: Move) -> None:
    move.send(move.before, "work", 1)
    move.client.lpush(move.queue, "no json")
    done = command(move, back=False)
    assert done.stdout.splitlines() == [
        f"{move.queue}: 1 moved, now waiting", f"{move.queue}: 1 stay: no task", "2 looked at",
    ]  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "CommandError: some stay where they are\n")
    let_pass(0.01, because="the instant of a second sending has to differ")
    done = command(move, back=True)
    assert done.stdout.splitlines() == [f"{move.queue}: 1 moved", "1 looked at"]
    assert done.returncode == 0
