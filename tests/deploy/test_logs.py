"""How the site logs: lines for people on a laptop, JSON in production, in web processes and in workers alike."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.fixtures import StartWorker
from tests.support.processes import ROOT, environment_with_project
from tests.support.waiting import wait_until

SAYS = "import django, logging; django.setup(); logging.getLogger('examhall').info('graded, token=abcdef')"
PRODUCTION = {"DJANGO_DEBUG": "0", "DJANGO_SECRET_KEY": "k" * 50, "DJANGO_SETTINGS_MODULE": "deploy.settings"}


def said(**env: str) -> str:
    given = {"DJANGO_SETTINGS_MODULE": "deploy.settings", **env}
    done = subprocess.run(
        [sys.executable, "-c", SAYS], env=environment_with_project(given), cwd=ROOT, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    return done.stderr


def test_on_a_laptop_it_is_a_line_for_people() -> None:
    assert said().strip().endswith("INFO examhall: graded, token=abcdef")


def test_in_production_it_is_json_without_secrets() -> None:
    (line,) = said(**PRODUCTION).splitlines()
    assert {"event": "graded, token=[redacted]", "logger": "examhall", "level": "info"}.items() <= json.loads(line).items()


@pytest.mark.crash
def test_a_worker_in_production_logs_json_too(start_worker: StartWorker) -> None:
    worker = start_worker("deploy", env={**PRODUCTION, "CELERY_RESULT_BACKEND": ""}, pool="solo", backend_url="")
    worker.sigterm()
    worker.wait_exit()
    wait_until(lambda: "\n{" in worker.logs(), says="it has logged")
    text = worker.logs()
    lines = [json.loads(line) for line in text[text.find("\n{") :].strip().splitlines()]
    assert any(line["event"].endswith("ready.") for line in lines)
