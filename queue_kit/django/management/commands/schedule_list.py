"""Lists schedules; without it whoever is on call could not see what is sent by itself, and when next."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from queue_kit.django.conf import celery_app
from queue_kit.django.management.letters import UNAVAILABLE, shown_at, table
from queue_kit.errors import QueueUnavailable
from queue_kit.worker.sending.schedules import schedules


class Command(BaseCommand):
    """`manage.py schedule_list`."""

    help = "List the schedules that Redis keeps. Exit status: 0 done; 4 Redis does not answer."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = schedules(celery_app()).list()
        except QueueUnavailable as error:
            raise CommandError(str(error), returncode=UNAVAILABLE) from error
        if options["as_json"]:
            self.stdout.write(json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False, indent=2))
            return
        rows = [(one.id, one.name, one.timing, shown_at(one.last_at_ms), shown_at(one.next_at_ms)) for one in found]
        table(("ID", "JOB", "FIRES", "COUNTS FROM", "NEXT"), rows, self.stdout.write)
