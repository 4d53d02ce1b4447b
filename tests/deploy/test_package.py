"""The package as it is published: built, installed where no checkout is, and used from there, scripts and pages included."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

SHOP = """
import os
from celery import Celery
from queue_kit import install, job

app = Celery("shop", broker=os.environ["CELERY_BROKER_URL"])
install(app)


@job("sell", queue="celery")
def sell(number: int) -> None:
    print(f"sold {number}")
"""
SITE = """
import os
SECRET_KEY = "of-a-test"
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages",
    "django.contrib.sessions", "queue_kit.django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
ALLOWED_HOSTS = ["testserver"]
QUEUE_KIT = {"CELERY_APP": "shop.app"}
"""
URLS = """
from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("", include("queue_kit.django.urls"))]
"""
PAGES = """
import django
django.setup()
from django.core.management import call_command, get_commands
call_command("migrate", verbosity=0)
print(*get_commands())
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.create_superuser("root", "", "root"))
for path in ("/admin/", "/admin/queue_kit/deadletter/", "/health/live", "/health/ready", "/metrics"):
    answer = client.get(path, follow=True)
    print(answer.status_code, path)
"""


@dataclass
class Installed:
    """An environment that has the package, what it depends on, and no checkout."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "env" / "bin" / "python")

    def pip(self, *words: str) -> str:
        """This environment's pip, on that one: to give it its own would take longer than all the rest."""
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--python", self.python, *words], capture_output=True, text=True, timeout=90,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *words: str, **env: str) -> str:
        done = subprocess.run(
            [self.python, *words], cwd=self.folder, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, text=True,
            timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of sdist and wheel, the wheel made from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Dependencies come from this environment, by links: everything in it but the project itself."""
    made = Installed(tmp_path_factory.mktemp("installed"))
    venv.create(made.folder / "env")
    theirs = made.folder / "dependencies"
    theirs.mkdir()
    for entry in Path(next(p for p in sys.path if p.endswith("site-packages"))).iterdir():
        if "queue_kit" not in entry.name and not entry.name.startswith(("pip", "setuptools")):
            (theirs / entry.name).symlink_to(entry)
    [packages] = (made.folder / "env" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{theirs}\n")
    [wheel] = built.glob("*.whl")
    made.pip("install", "--quiet", "--no-index", "--no-deps", str(wheel))
    for name, text in (("shop.py", SHOP), ("site_settings.py", SITE), ("urls.py", URLS)):
        (made.folder / name).write_text(text)
    return made


def test_wheel_and_sdist_hold_the_library_whole_and_nothing_else(built: Path) -> None:
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", "queue_kit"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = set(listed.stdout.split())
    assert tracked - inside == set()
    assert {name for name in inside if not name.startswith("queue_kit/")} == set()
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert files >= tracked | {"README.md", "CHANGELOG.md", "pyproject.toml"}
    assert {name.partition("/")[0] for name in files if "/" in name} == {"queue_kit"}


def test_it_is_typed_and_says_what_it_needs(installed: Installed) -> None:
    assert "No broken requirements found" in installed.pip("check")
    found = Path(installed.run("-c", "import queue_kit; print(queue_kit.__file__)").strip())
    assert found.is_relative_to(installed.folder)
    assert found.with_name("py.typed").exists()


def test_a_project_runs_a_job_and_asks_the_doctor(
    installed: Installed, redis_server: RedisServer, tmp_path: Path
) -> None:
    url = {"CELERY_BROKER_URL": redis_server.url()}
    worker = installed_worker(installed, redis_server.url(), tmp_path)
    try:
        installed.run("-c", "import shop; shop.sell.delay(number=7)", **url)
        wait_until(lambda: "sold 7" in worker.logs(), says="the job has run", within_s=20)
        done = subprocess.run(
            [installed.python, "-m", "celery", "-A", "shop", "queue-doctor"], cwd=installed.folder, env={"PATH": "/bin", **url},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2  # this Redis keeps nothing
        assert "ok    workers: 1 of queue_kit: " in done.stdout
    finally:
        worker.kill_all()


def installed_worker(installed: Installed, url: str, folder: Path) -> WorkerProcess:
    class InstalledWorker(WorkerProcess):
        def command(self) -> list[str]:
            return [installed.python, *super().command()[1:]]

        def environment(self) -> dict[str, str]:
            return {"PATH": "/bin", "CELERY_BROKER_URL": url}

    return InstalledWorker("shop", url, folder, pool="solo", cwd=installed.folder).start()


def test_django_finds_migrations_pages_and_commands(installed: Installed, redis_server: RedisServer) -> None:
    env = {"DJANGO_SETTINGS_MODULE": "site_settings", "CELERY_BROKER_URL": redis_server.url()}
    commands, *answers = installed.run("-c", PAGES, **env).splitlines()
    assert {"queue_doctor", "queue_migrate", "dlq_list", "outbox_relay", "schedule_list"} <= set(commands.split())
    assert [line for line in answers if not line.startswith("200 ")] == []
    assert len(answers) == 5
