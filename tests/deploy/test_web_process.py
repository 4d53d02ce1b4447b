"""The site's real web server, two processes of it, through an outage of Redis: at its boot, and later."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from queue_kit import State, install, open_census
from tests.support.fixtures import OwnRedis
from tests.support.ports import LOOPBACK, free_port, is_listening
from tests.support.probes import Answer, ask, series
from tests.support.processes import ROOT, environment_with_project, kill_session, spawn
from tests.support.waiting import Stopwatch, wait_until

#: H4 and H5, with what the cases allow beside a bound.
BOUND_S = 1.2 * 1.2 + 0.25
ID = "click-77"


class Web:
    """Gunicorn with two processes."""

    def __init__(self, redis_port: int, folder: Path) -> None:
        self.port, self._log = free_port(), folder / "web.log"
        env = environment_with_project({
            "DJANGO_SETTINGS_MODULE": "deploy.settings", "DATABASE_URL": f"sqlite:///{folder / 'db.sqlite3'}",
            "REDIS_URL": f"redis://{LOOPBACK}:{redis_port}/0",
        })  # fmt: skip
        subprocess.run([sys.executable, "-m", "deploy.demo.prepare"], env=env, cwd=ROOT, check=True, capture_output=True)
        command = ["-m", "gunicorn", "-c", "deploy/gunicorn_conf.py", "--workers", "2", "--bind", f"{LOOPBACK}:{self.port}"]
        self.process = spawn([sys.executable, *command], log=self._log, cwd=ROOT, env=env)
        wait_until(lambda: is_listening(self.port), says="the web server listens", within_s=40)

    def submit(self) -> tuple[int, dict[str, str], Any, float]:
        """Hand in the demo's attempt; status, headers, body and duration."""
        watch, connection = Stopwatch(), HTTPConnection(LOOPBACK, self.port, timeout=10)
        connection.request("POST", "/examhall/attempts/a-5521/submit", "", {"x-correlation-id": ID})
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, body, watch.elapsed_s

    def probe(self, what: str) -> Answer:
        return ask(self.port, f"/health/{what}")

    def enqueued(self) -> float | None:
        """How many grading jobs were sent, as whichever process answers has it."""
        return series(ask(self.port, "/metrics").text).get(("qwk_jobs_enqueued_total", "grade-attempt", "grading"))


@pytest.fixture
def redis_port() -> int:
    return free_port()


@pytest.fixture
def web(redis_port: int, tmp_path: Path) -> Iterator[Web]:
    server = Web(redis_port, tmp_path)
    yield server
    kill_session(server.process)


@pytest.mark.crash
def test_a_web_server_lives_through_outages_and_its_processes_show_the_same_numbers(
    own_redis: OwnRedis, redis_port: int, web: Web
) -> None:
    """H4, H5, SPEC 12: given no Redis at boot, then one, then a frozen one; probes, a submit and metrics at each."""
    assert [wait_until(lambda what=what: web.probe(what), says="it answers").status for what in ("live", "ready")] == [200, 503]
    status, headers, body, after_s = web.submit()
    assert (status, headers["retry-after"], headers["x-correlation-id"], after_s < BOUND_S) == (503, "2", ID, True)
    assert "send the same request again" in body["error"]
    server = own_redis(port=redis_port)
    wait_until(lambda: web.probe("ready").status == 200, says="it is ready")
    assert web.submit()[0] == 202
    app = Celery("reader", broker=server.url(), set_as_current=False)
    install(app)
    (job,) = open_census(app).jobs("grading", State.WAITING)
    assert (job.name, job.correlation_id) == ("grade-attempt", ID)
    assert {web.enqueued() for _ in range(20)} == {1}
    server.freeze()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(web.probe, ["live", "ready"] * 8))
    assert [answer.status for answer in answers] == [200, 503] * 8
    assert max(answer.after_s for answer in answers) < BOUND_S
    server.thaw()
    wait_until(lambda: web.probe("ready").status == 200, says="it is ready again")
