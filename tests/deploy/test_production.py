"""The site's settings as in production: what Django's own list of dangers says of them."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import ROOT, environment_with_project


def check(**env: str) -> subprocess.CompletedProcess[str]:
    given = {
        "DJANGO_DEBUG": "0",
        "DJANGO_ALLOWED_HOSTS": "exams.example",
        "DJANGO_SETTINGS_MODULE": "deploy.settings",
        **env,
    }
    command = [sys.executable, str(ROOT / "manage.py"), "check", "--deploy", "--fail-level", "WARNING"]
    return subprocess.run(
        command, env=environment_with_project(given), capture_output=True, text=True, timeout=60, check=False
    )


def test_djangos_check_for_production_finds_nothing() -> None:
    done = check(DJANGO_SECRET_KEY="0123456789abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRST")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_key_that_can_be_guessed_is_found() -> None:
    done = check(DJANGO_SECRET_KEY="a" * 60)
    assert done.returncode == 1
    assert "security.W009" in done.stderr
