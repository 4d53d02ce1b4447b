"""A process that runs one job around once(): it says where it is, and waits to be let go, or to be killed.

Without it two runs at one instant would be two threads of one process, and a kill could not fall between effect and commit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import django
from django.db import connection, transaction

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "deploy.settings")
django.setup()

from queue_kit import job  # noqa: E402
from queue_kit.django import once  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402


class Undone(Exception):
    """Rolls the transaction back."""


@job("once.effect", attempts=1)
def effect(key: str, folder: str, name: str) -> None:
    """Insert an effect if it is the first; then commit, or roll back, as the test says."""
    here = Path(folder)
    say(here / f"{name}.ready")
    wait_for(here / f"{name}.go")
    with transaction.atomic():
        first = once(key)
        if first:
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO effects (key) VALUES (%s)", [key])
        say(here / f"{name}.{'first' if first else 'again'}")
        wait_for(here / f"{name}.commit", here / f"{name}.rollback")
        if (here / f"{name}.rollback").exists():
            raise Undone
    say(here / f"{name}.committed")


def say(file: Path) -> None:
    file.touch()


def wait_for(*files: Path) -> None:
    wait_until(lambda: any(file.exists() for file in files), says=f"one of {files} is there", within_s=60)


if __name__ == "__main__":
    effect.apply(kwargs=dict(zip(("key", "folder", "name"), sys.argv[1:], strict=True)))
