"""Under Django a task keeps what Celery's own Django task class gives it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import redis

from tests.support.processes import ROOT, environment_with_project
from tests.support.redis_server import RedisServer

# A process of its own: whether Celery sees Django is decided when an app is made.
SENDER = """
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()

from celery import Celery
from celery.contrib.django.task import DjangoTask
from django.db import transaction
from queue_kit import install, job

app = Celery("on_commit")
install(app)

@app.task(name="plain")
def plain(): ...

@job("declared")
def declared(): ...

kept, declared = app.tasks["plain"], app.tasks["declared"]
assert isinstance(kept, DjangoTask) and isinstance(declared, DjangoTask)
try:
    with transaction.atomic():
        kept.delay_on_commit()
        raise LookupError
except LookupError:
    pass
with transaction.atomic():
    kept.delay_on_commit()
    declared.apply_async_on_commit(priority=1)
    print("before", app.queue_kit.sender.client.exists("qwk:q:celery:wait"))
"""


def test_delay_on_commit_sends_with_the_commit_and_not_before(
    redis_server: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    """K12: of a plain task and of a declared job; what is rolled back is never sent."""
    script = tmp_path / "sender.py"
    script.write_text(SENDER)
    env = environment_with_project({"CELERY_BROKER_URL": redis_server.url(), "DJANGO_SETTINGS_MODULE": "none"})
    done = subprocess.run(
        [sys.executable, str(script)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["before", "0"]
    names = sorted(str(client.hget(f"qwk:job:{job}", "name")) for job in client.zrange("qwk:q:celery:wait", 0, -1))
    assert names == ["declared", "plain"]
