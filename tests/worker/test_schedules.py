"""Schedules: one job for each fire time, with any number of beats; none missed, none doubled, no flood after a pause."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery._state import _set_current_app
from celery.schedules import crontab, schedule

from queue_kit import InvalidPayload, QueueUnavailable, UnknownJob, open_census, schedules
from queue_kit.worker.sending.timing import Cron, Every, timing_of, timing_of_celery
from tests.apps import schedules_app
from tests.support.processes import ROOT, environment_with_project, kill_session, spawn
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

StartBeat = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def app(redis_server: RedisServer, queue_name: str) -> Iterator[Celery]:
    """An app that knows the job, made current: its declared jobs are looked up by name."""
    app = schedules_app.make(redis_server.url(), queue_name)
    app.set_current()
    yield app
    _set_current_app(None)


@pytest.fixture
def start_beat(redis_server: RedisServer, queue_name: str, tmp_path: Path) -> Iterator[StartBeat]:
    """Start a beat of a process of its own."""
    beats: list[subprocess.Popen[bytes]] = []

    def start(**env: str) -> subprocess.Popen[bytes]:
        urls = {"CELERY_BROKER_URL": redis_server.url(), "SCHEDULES_QUEUE": queue_name, **env}
        words = ["-A", "tests.apps.schedules_app", "beat", "-S", "queue_kit", "--loglevel", "INFO"]
        pidfile = ["--pidfile", str(tmp_path / f"beat{len(beats)}.pid")]
        beats.append(
            spawn(
                [sys.executable, "-m", "celery", *words, *pidfile], log=tmp_path / f"beat{len(beats)}.log", cwd=ROOT,
                env=environment_with_project(urls),
            )
        )  # fmt: skip
        return beats[-1]

    yield start
    for beat in beats:
        kill_session(beat)


def fires(app: Celery, schedule_id: str) -> list[int]:
    """Fire times of the jobs that a schedule has sent, in the order of sending; an id that was sent twice counts once."""
    events = open_census(app).events(app.conf.task_default_queue)
    prefix = f"schedule:{schedule_id}:"
    return [int(e.job_id.removeprefix(prefix)) for e in events if e.kind == "added" and e.job_id.startswith(prefix)]


def without_gaps(found: list[int], every_ms: int) -> bool:
    """Whether these are consecutive fire times."""
    return all(later - earlier == every_ms for earlier, later in pairwise(found))


# -- with beats -------------------------------------------------------------------------------------------------------


def test_three_beats_send_each_fire_time_once(app: Celery, start_beat: StartBeat) -> None:
    """Schedules: given three beats and a schedule of 500 ms, one beat killed on the way; then no fire time is missed, and none
    is two jobs."""
    schedules(app).upsert("sweep", "tests.sweep", {"room": "r1"}, every_ms=500)
    first, *_ = [start_beat() for _ in range(3)]
    wait_until(lambda: len(fires(app, "sweep")) >= 3, says="three have fired", within_s=40)
    kill_session(first)
    before = len(fires(app, "sweep"))
    wait_until(lambda: len(fires(app, "sweep")) >= before + 6, says="six more have fired", within_s=20)
    found = fires(app, "sweep")
    assert len(set(found)) == len(found)
    assert without_gaps(found[1:], 500), found
    view = open_census(app).job(f"schedule:sweep:{found[0]}")
    assert view is not None
    assert (view.name, view.queue) == ("tests.sweep", app.conf.task_default_queue)


def test_after_a_pause_only_the_latest_is_made_up_for(app: Celery, start_beat: StartBeat, client: Any) -> None:
    """Schedules: given no beat for an hour; then one job is sent for all that was missed."""
    schedules(app).upsert("sweep", "tests.sweep", {"room": "r1"}, every_ms=60_000)
    hour_ago = schedules(app).book.now_ms() - 3_600_000
    client.hset("qwk:schedules:last", "sweep", hour_ago)
    start_beat()
    wait_until(lambda: fires(app, "sweep"), says="it has fired", within_s=40)
    start_beat()
    wait_until(lambda: schedules(app).list()[0].last_at_ms == fires(app, "sweep")[-1], says="it is remembered")
    assert len(fires(app, "sweep")) <= 2
    assert fires(app, "sweep")[0] > hour_ago + 3_500_000


def test_a_schedule_is_followed_from_when_it_is_written_to_when_it_is_removed(app: Celery, start_beat: StartBeat) -> None:
    """Schedules: a beat that runs already learns of both within a second; also of the app's own ``beat_schedule``."""
    start_beat(SCHEDULES_EVERY_S="0.4")
    wait_until(lambda: len(fires(app, "own")) >= 3, says="the app's own has fired", within_s=40)
    assert without_gaps(fires(app, "own")[1:], 400)
    schedules(app).upsert("late", "tests.sweep", {"room": "r1"}, every_ms=300)
    wait_until(lambda: len(fires(app, "late")) >= 2, says="the late one has fired")
    assert schedules(app).remove("late") is True
    gone = len(fires(app, "late"))
    own = len(fires(app, "own"))
    wait_until(lambda: len(fires(app, "own")) >= own + 6, says="two seconds have passed", within_s=20)
    assert len(fires(app, "late")) <= gone + 1


# -- upserted, listed, removed ----------------------------------------------------------------------------------------


def test_an_upsert_takes_the_place_of_the_one_with_its_id(app: Celery) -> None:
    """Schedules: by id; the payload may change without a fire time being lost, other times count from now."""
    assert schedules(app).upsert("b", "tests.sweep", {"room": "r1"}, every_ms=60_000) is True
    assert schedules(app).upsert("a", "tests.sweep", {"room": "r2"}, crontab=crontab(minute="*/5", hour="3"), timezone="UTC")
    first = {one.id: one for one in schedules(app).list()}
    assert list(first) == ["a", "b"]
    assert (first["a"].timing, first["b"].timing) == ("cron */5 3 * * * UTC", "every 60000")
    assert schedules(app).upsert("b", "tests.sweep", {"room": "r9"}, every_ms=60_000) is False
    second = {one.id: one for one in schedules(app).list()}
    assert (second["b"].payload, second["b"].last_at_ms) == ({"room": "r9"}, first["b"].last_at_ms)
    assert second["b"].next_at_ms % 60_000 == 0
    assert (schedules(app).remove("a"), schedules(app).remove("a")) == (True, False)
    assert [one.id for one in schedules(app).list()] == ["b"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "either every_ms or crontab"),
        ({"every_ms": 1000, "crontab": "* * * * *"}, "either every_ms or crontab"),
        ({"every_ms": 5}, "every_ms"),
        ({"every_ms": True}, "every_ms"),
        ({"crontab": "* * *"}, "crontab"),
        ({"crontab": "61 * * * *"}, "crontab"),
        ({"crontab": 5}, "crontab"),
        ({"crontab": "* * * * *", "timezone": "Mars/Olympus"}, "timezone"),
    ],
)
def test_a_wrong_timing_is_named(app: Celery, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        schedules(app).upsert("x", "tests.sweep", {"room": "r"}, **options)


def test_a_wrong_id_job_or_payload_is_named(app: Celery) -> None:
    with pytest.raises(ValueError, match="id:"):
        schedules(app).upsert("a:b", "tests.sweep", {"room": "r"}, every_ms=1000)
    with pytest.raises(UnknownJob, match=r"tests\.swep"):
        schedules(app).upsert("x", "tests.swep", {"room": "r"}, every_ms=1000)
    with pytest.raises(InvalidPayload, match="room"):
        schedules(app).upsert("x", "tests.sweep", {}, every_ms=1000)
    assert schedules(app).list() == []


def test_without_redis_an_error_says_so(app: Celery) -> None:
    nowhere = schedules_app.make("redis://127.0.0.1:1/0")
    with pytest.raises(QueueUnavailable):
        schedules(nowhere).list()


# -- fire times -------------------------------------------------------------------------------------------------------


def at(text: str) -> int:
    """Milliseconds of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_durations_fire_at_multiples_since_the_epoch() -> None:
    assert Every(1000).latest(after_ms=1999, now_ms=3500) == 3000
    assert Every(1000).latest(after_ms=3000, now_ms=3999) is None
    assert Every(1000).following(3000) == 4000


@pytest.mark.parametrize(
    ("fields", "zone", "after", "now", "latest"),
    [
        ("0 3 * * *", "UTC", "2026-01-01T00:00", "2026-01-05T12:00", "2026-01-05T03:00"),
        ("0 3 * * *", "UTC", "2026-01-05T03:00", "2026-01-05T12:00", None),
        ("*/15 * * * *", "UTC", "2026-01-01T00:00", "2026-01-01T00:44", "2026-01-01T00:30"),
        ("0 9 * * mon", "UTC", "2025-01-01T00:00", "2026-01-08T00:00", "2026-01-05T09:00"),
        ("0 0 1 1 *", "UTC", "2020-01-01T00:00", "2026-11-30T00:00", "2026-01-01T00:00"),
        ("0 9 * * *", "Europe/Berlin", "2026-07-01T00:00", "2026-07-01T12:00", "2026-07-01T07:00"),
    ],
)
def test_crontabs_fire_by_their_own_time_zone(fields: str, zone: str, after: str, now: str, latest: str | None) -> None:
    assert Cron(fields, zone).latest(at(after), at(now)) == (None if latest is None else at(latest))


@pytest.mark.parametrize("month", ["2026-03", "2026-10"])
def test_fire_times_go_on_where_clocks_change(month: str) -> None:
    """A crontab of each half hour in a zone with summer time: each fire time lies after the one before."""
    cron, instant = Cron("*/30 * * * *", "Europe/Berlin"), at(f"{month}-24T00:00")
    for _ in range(400):
        following = cron.following(instant)
        assert instant < following <= instant + 3_600_000 * 2
        instant = following


def test_celerys_own_schedules_are_read_and_others_refused() -> None:
    assert timing_of_celery(crontab(minute="0", hour="4"), "UTC") == timing_of(None, "0 4 * * *", "UTC")
    assert timing_of_celery(schedule(timedelta(seconds=30)), "UTC") == Every(30_000)

    class AtDusk(schedule):
        """A kind of its own."""

    with pytest.raises(ValueError, match="AtDusk"):
        timing_of_celery(AtDusk(timedelta(seconds=30)), "UTC")
