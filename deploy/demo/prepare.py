"""Makes the database of the demo and fills it, in one process: three would take three times as long to start."""

import os

import django
from django.contrib.auth import get_user_model
from django.core.management import call_command

COMMANDS = ("migrate", "load_demo_exam", "load_demo_event")


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "deploy.settings")
    django.setup()
    for command in COMMANDS:
        call_command(command)
    # Only this throw-away database has it; where the demo runs, its site listens on the loopback address alone.
    get_user_model().objects.create_superuser("demo", password="demo")  # noqa: S106


if __name__ == "__main__":
    main()
