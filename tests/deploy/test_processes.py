"""The commands of compose.yaml, run as processes of this machine: PostgreSQL, Redis, web behind nginx, two workers, beat, relay.

Without it the one place that nobody can run here would hold the commands that nobody has tried.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote

import pytest
import yaml
from celery import Celery

from deploy.demo.http import Site
from queue_kit import install, open_census
from queue_kit.states import State
from tests.deploy.test_files import DEPLOY, ConfiguredRedis
from tests.support.ports import LOOPBACK, free_port
from tests.support.postgres import PostgresMissing, PostgresServer
from tests.support.processes import ROOT, environment_with_project, kill_session, spawn
from tests.support.programs import program
from tests.support.services import service_missing
from tests.support.waiting import wait_for_exit, wait_until

COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
GONE = (URLError, ConnectionError, TimeoutError)
A_JOB = """
from queue_kit.django import outbox
from django.db import transaction
with transaction.atomic():
    print(outbox.add("maintenance.cleanup", {"before": "2026-01-01T00:00:00+00:00"}).id)
"""


def command(service: str) -> list[str]:
    """The words of compose, or those of the image."""
    if "command" in COMPOSE[service]:
        return list(COMPOSE[service]["command"])
    [line] = re.findall(r"^CMD (.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    return list(yaml.safe_load(line))


@dataclass
class Machine:
    """What compose would start, without its containers."""

    env: Mapping[str, str]
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *words: str, **env: str) -> None:
        modules = {"python": [], "gunicorn": ["-m", "gunicorn"], "celery": ["-m", "celery"]}
        if words[0] in modules:
            words = (sys.executable, *modules[words[0]], *words[1:])
        self.processes[name] = spawn(words, log=self.log(name), cwd=ROOT, env={**self.env, **env})

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words[1:]], cwd=ROOT, env=dict(self.env), capture_output=True, text=True, timeout=60, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def await_answer(self, url: str, path: str, status: int = 200) -> str:
        site = Site(url)
        wait_until(lambda: site.get(path).status == status, says=f"{path} answers {status}", within_s=40, ignoring=GONE)
        return site.get(path).text

    def end(self) -> dict[str, int]:
        """SIGTERM to all, as a platform does; their exit codes."""
        for process in self.processes.values():
            process.terminate()
        return {name: wait_for_exit(process, within_s=40) for name, process in self.processes.items()}


@pytest.fixture
def machine(engine: Path, tmp_path: Path) -> Iterator[Machine]:
    """PostgreSQL and a Redis with our own file; nothing else yet."""
    try:
        postgres = PostgresServer()
    except PostgresMissing as missing:
        service_missing(str(missing))
    with postgres, ConfiguredRedis() as redis_server:
        given = {name: str(value) for name, value in COMPOSE["worker"]["environment"].items() if "$" not in str(value)}
        addresses = {"REDIS_URL": redis_server.url(), "DATABASE_URL": postgres.create("site")}
        site = {
            "DJANGO_SECRET_KEY": "of-a-test-" * 6, "DJANGO_ALLOWED_HOSTS": LOOPBACK, "DJANGO_HTTPS": "0",
            "DJANGO_SETTINGS_MODULE": "deploy.settings", "WORKER_METRICS_HOST": LOOPBACK,
        }  # fmt: skip
        made = Machine(environment_with_project({**given, **addresses, **site}), tmp_path)
        try:
            yield made
        finally:
            for process in made.processes.values():
                kill_session(process)


def behind_nginx(machine: Machine, web_port: int) -> str:
    port, conf = free_port(), machine.folder / "nginx.conf"
    text = (DEPLOY / "nginx.conf").read_text().replace("/run/nginx.pid", str(machine.folder / "nginx.pid"))
    conf.write_text(text.replace("127.0.0.1:8000", f"127.0.0.1:{web_port}").replace("127.0.0.1:8080", f"127.0.0.1:{port}"))
    words = ["-c", str(conf), "-p", str(machine.folder), "-g", "daemon off;"]
    machine.start("nginx", program("nginx", "nginx-light"), *words)
    return f"http://{LOOPBACK}:{port}"


def prometheus_sees_it(machine: Machine, web: list[str], workers: list[str]) -> None:
    """A real Prometheus with our rules scrapes web and workers; every series that a rule reads is there."""
    folder, port = machine.folder / "prometheus", free_port()
    folder.mkdir()
    shutil.copy(DEPLOY / "prometheus" / "rules.yml", folder)
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"] = [
        {"job_name": name, "static_configs": [{"targets": targets}]} for name, targets in (("web", web), ("workers", workers))
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = {
        "config.file": folder / "prometheus.yml", "storage.tsdb.path": folder / "data",
        "web.listen-address": f"{LOOPBACK}:{port}",
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in options.items()]
    machine.start("prometheus", program("prometheus", "prometheus"), *words)
    url = f"http://{LOOPBACK}:{port}"
    machine.await_answer(url, "/-/ready")

    def series(query: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = Site(url).get(f"/api/v1/query?query={quote(query)}").body["data"]["result"]
        return found

    wait_until(lambda: len(series("up == 1")) == 3, says="web and both workers are scraped", within_s=20)
    names = set(re.findall(r"\bqwk_\w+", (DEPLOY / "prometheus" / "rules.yml").read_text()))
    # What has never happened to a worker has no series: a lost lease, a failed renewal, a record that was not written.
    never = {name for name in names if re.search("lease|write_failures", name)}
    wait_until(lambda: not _absent(series, names - never), says="every series of the rules is there", within_s=20)
    assert wait_until(lambda: series("queue_kit:ended:rate5m"), says="rules are evaluated", within_s=20)
    assert series('ALERTS{severity="page"}') == []


def _absent(series: Callable[[str], list[dict[str, object]]], names: set[str]) -> set[str]:
    return {name for name in names if not series(name)}


@pytest.mark.timeout(180)
def test_the_same_commands_run_the_site_on_one_machine_and_end_in_order(machine: Machine) -> None:
    """A job goes from a transaction over the outbox, the relay and a worker to its end; all of it ends by SIGTERM, with 0."""
    machine.run(*command("migrate"))
    web_port, ports = free_port(), (free_port(), free_port())
    machine.start("web", *[word.replace("0.0.0.0:8000", f"{LOOPBACK}:{web_port}") for word in command("web")])
    for service, port in zip(("worker", "worker-slow"), ports, strict=True):
        small = ["2" if word == "8" else word for word in command(service)]
        machine.start(service, *small, WORKER_METRICS_PORT=str(port))
    machine.start("beat", *command("beat"))
    machine.start("relay", *command("relay"))
    front, web = behind_nginx(machine, web_port), f"http://{LOOPBACK}:{web_port}"

    assert "<html" in machine.await_answer(front, "/")
    assert "<html" in machine.await_answer(front, "/ticketing/")
    for path in ("/metrics", "/health/ready"):  # for those inside alone
        machine.await_answer(front, path, 404)
        machine.await_answer(web, path)
    for port in ports:
        machine.await_answer(f"http://{LOOPBACK}:{port}", "/health/ready")

    job = machine.run("python", "manage.py", "shell", "--verbosity", "0", "-c", A_JOB).strip().splitlines()[-1]
    app = Celery("reader", broker=machine.env["REDIS_URL"], set_as_current=False)
    install(app)
    census = open_census(app)
    wait_until(lambda: (view := census.job(job)) and view.state is State.COMPLETED, says="the job has run", within_s=20)
    prometheus_sees_it(machine, [f"{LOOPBACK}:{web_port}"], [f"{LOOPBACK}:{port}" for port in ports])
    shown = machine.await_answer(web, "/metrics")
    assert 'qwk_jobs_completed_total{job_name="maintenance.cleanup",queue="maintenance"} 1.0' in shown
    assert "qwk_job_duration_seconds_count" in machine.await_answer(f"http://{LOOPBACK}:{ports[1]}", "/metrics")
    app.close()
    assert machine.end() == dict.fromkeys(machine.processes, 0)
