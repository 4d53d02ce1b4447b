"""once(): the effect and the mark of a job commit together, on SQLite and PostgreSQL, whatever dies and whoever is quicker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone

from queue_kit import NoCurrentJob, job
from queue_kit.django import forget_claims, once
from queue_kit.errors import NotInTransaction
from tests.support.processes import environment_with_project, kill_session, spawn
from tests.support.waiting import stays_true, wait_until


@job("once.try", attempts=1)
def attempt(act: Callable[[], Any]) -> Any:
    """Run something as this job."""
    return act()


@job("once.other", attempts=1)
def other(act: Callable[[], Any]) -> Any:
    """Run something as another job."""
    return act()


def run(act: Callable[[], Any], task: Any = attempt, **options: Any) -> Any:
    """Run something within a job of this process; errors come through."""
    return task.apply(kwargs={"act": act}, throw=True, **options).get()


def committed(alias: str, key: str | None = "k") -> bool:
    """What once() says in a transaction that commits."""
    with transaction.atomic(using=alias):
        return once(key, using=alias)


def effects(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM effects")
        return int(cursor.fetchone()[0])


def marks(alias: str) -> list[tuple[str, str]]:
    return list(apps.get_model("queue_kit", "Claim").objects.using(alias).values_list("job_name", "key"))


def test_the_first_run_does_it_and_the_second_skips(database: str) -> None:
    """SPEC 6."""
    assert [run(lambda: committed(database)) for _ in range(3)] == [True, False, False]
    assert marks(database) == [("once.try", "k")]


def test_what_is_rolled_back_is_done_again(database: str) -> None:
    """SPEC 6: effect and mark commit together, or neither does."""

    def undone() -> None:
        with transaction.atomic(using=database):
            assert once("k", using=database)
            raise LookupError("the effect failed")

    with pytest.raises(LookupError):
        run(undone)
    assert marks(database) == []
    assert run(lambda: committed(database)) is True


def test_outside_a_transaction_it_is_an_error_that_says_what_to_do(database: str) -> None:
    """SPEC 6: the mark would commit before the effect."""
    with pytest.raises(NotInTransaction, match=r"once\('k'\): open a transaction on database 'tried'"):
        run(lambda: once("k", using=database))
    with pytest.raises(NotInTransaction), transaction.atomic(using=database):
        run(lambda: once("k", using=DEFAULT_DB_ALIAS))
    assert marks(database) == []


def test_the_callers_transaction_goes_on_after_a_key_that_is_taken(database: str) -> None:
    """PostgreSQL ends a transaction at its first error; this one is kept in a savepoint."""
    run(lambda: committed(database))

    def twice() -> int:
        with transaction.atomic(using=database):
            assert not once("k", using=database)
            return effects(database)

    assert run(twice) == 0


def test_two_jobs_of_different_names_may_use_one_key(database: str) -> None:
    assert [run(lambda: committed(database), task) for task in (attempt, other)] == [True, True]


def test_without_a_key_it_is_once_a_job(database: str) -> None:
    done = [run(lambda: committed(database, None), task_id=job_id) for job_id in ("j1", "j1", "j2")]
    assert done == [True, False, True]
    assert marks(database) == [("once.try", "j1"), ("once.try", "j2")]


def test_outside_a_run_there_is_no_job_to_do_it_once_for(database: str) -> None:
    with pytest.raises(NoCurrentJob), transaction.atomic(using=database):
        once("k", using=database)


@pytest.mark.parametrize("key", ["", "k" * 301, 7])
def test_a_key_that_is_none_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="key: a text of 1 to 300 characters"):
        run(lambda: once(key))


def test_old_marks_are_forgotten(database: str) -> None:
    for key in "ab":
        run(lambda key=key: committed(database, key))
    claims = apps.get_model("queue_kit", "Claim").objects.using(database)
    claims.filter(key="a").update(claimed_at=timezone.now() - timedelta(days=40))
    month_ago = timezone.now() - timedelta(days=30)
    assert [forget_claims(month_ago, using=database) for _ in range(2)] == [1, 0]
    assert marks(database) == [("once.try", "b")]


def test_of_many_runs_at_one_instant_one_does_it(database: str) -> None:
    """SPEC 6: each on a connection of its own."""
    barrier = Barrier(8)

    def racer() -> bool:
        try:
            barrier.wait(10)
            return bool(run(lambda: committed(database)))
        finally:
            connections[database].close()

    with ThreadPoolExecutor(8) as pool:
        assert sorted(future.result() for future in [pool.submit(racer) for _ in range(8)]) == [False] * 7 + [True]


# -- two real processes ------------------------------------------------------------------------------------------------


class Runner:
    """Runs `tests.apps.once_process` and tells it what to do by files."""

    def __init__(self, name: str, folder: Path, database_url: str) -> None:
        self.name, self.folder = name, folder
        command = [sys.executable, "-m", "tests.apps.once_process", "k", str(folder), name]
        env = environment_with_project({"DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "deploy.settings"})
        self.process: subprocess.Popen[bytes] = spawn(command, log=folder / f"{name}.log", cwd=folder, env=env)

    def tell(self, what: str) -> None:
        (self.folder / f"{self.name}.{what}").touch()

    def says(self, *what: str) -> bool:
        assert self.process.poll() in (None, 0), (self.folder / f"{self.name}.log").read_text()
        return any((self.folder / f"{self.name}.{word}").exists() for word in what)

    def await_word(self, *what: str) -> None:
        wait_until(lambda: self.says(*what), says=f"{self.name} says {what}", within_s=30)


@pytest.fixture
def runner(database: str, database_url: str, tmp_path: Path) -> Iterator[Callable[[str], Runner]]:
    """Start a process that runs the job up to its transaction; all end with the test."""
    started: list[Runner] = []

    def start(name: str) -> Runner:
        started.append(Runner(name, tmp_path, database_url))
        return started[-1]

    connections[database].close()
    yield start
    for process in started:
        kill_session(process.process)


@pytest.mark.crash
def test_a_run_killed_before_its_commit_has_done_nothing_and_the_next_does_it(
    runner: Callable[[str], Runner], database: str
) -> None:
    """SPEC 6. Given an effect and its mark, killed before the commit; then neither is there, and the next run does both."""
    first = runner("a")
    first.tell("go")
    first.await_word("first")
    kill_session(first.process)
    assert (effects(database), marks(database)) == (0, [])
    second = runner("b")
    second.tell("go")
    second.tell("commit")
    second.await_word("committed")
    assert second.says("first")
    assert (effects(database), marks(database)) == (1, [("once.effect", "k")])


@pytest.mark.crash
@pytest.mark.parametrize(("end", "then", "done"), [("commit", "again", 1), ("rollback", "first", 1)])
def test_a_second_run_waits_for_the_first_and_skips_only_what_was_committed(
    runner: Callable[[str], Runner], database: str, end: str, then: str, done: int
) -> None:
    """SPEC 6: two runs at the same instant, in two processes."""
    first, second = runner("a"), runner("b")
    first.tell("go")
    first.await_word("first")
    second.await_word("ready")
    second.tell("go")
    stays_true(lambda: not second.says("first", "again"), says="the second waits", for_s=0.3)
    first.tell(end)
    second.tell("commit")
    second.await_word("committed")
    assert second.says(then)
    assert (effects(database), len(marks(database))) == (done, 1)
