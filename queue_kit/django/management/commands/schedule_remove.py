"""Removes schedules; without it one that should stop would need the code that made it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from queue_kit.django.conf import celery_app
from queue_kit.django.management.letters import NOTHING, UNAVAILABLE
from queue_kit.errors import QueueUnavailable
from queue_kit.worker.sending.schedules import schedules


class Command(BaseCommand):
    """`manage.py schedule_remove`."""

    help = "Remove schedules; jobs already sent stay. Exit status: 0 done; 3 one was not there; 4 Redis does not answer."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ids", nargs="+", metavar="ID", help="ids of schedules, as schedule_list shows them")

    def handle(self, *args: Any, **options: Any) -> None:
        known = schedules(celery_app())
        try:
            missing = [one for one in options["ids"] if not known.remove(one)]
        except QueueUnavailable as error:
            raise CommandError(str(error), returncode=UNAVAILABLE) from error
        self.stdout.write(f"{len(options['ids']) - len(missing)} removed")
        if missing:
            raise CommandError(f"there is no schedule {', '.join(missing)}", returncode=NOTHING)
