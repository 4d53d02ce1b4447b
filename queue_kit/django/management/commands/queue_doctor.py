"""Examines the whole set-up; without it each way to lose or double work would be found by losing something."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from queue_kit.django.checks import import_tasks
from queue_kit.django.conf import celery_app
from queue_kit.django.outbox_doctor import examine_outbox
from queue_kit.errors import ConfigurationError
from queue_kit.observe.doctor import Finding, Verdict, as_json, as_line, exit_status
from queue_kit.worker.operating.doctor import KEYS, examine_app


class Command(BaseCommand):
    """`manage.py queue_doctor`."""

    help = (
        "Say how this set-up can lose or double work: a verdict a line, why, and the fix. Exit status: 0 all is well; "
        "1 something to look at; 2 work is lost, doubled or stuck, or the project is not set up."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
        parser.add_argument("--keys", type=int, default=KEYS, help=f"keys to look at for forgotten ones ({KEYS})")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            app = celery_app()
            missing = import_tasks(app)
            findings = [*examine_app(app, keys=options["keys"]), *examine_outbox()]
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=2) from error
        if missing:
            findings.append(Finding(Verdict.BAD, "tasks", missing, "start a worker to see where"))
        for line in [as_json(findings)] if options["as_json"] else map(as_line, findings):
            self.stdout.write(line)
        if exit_status(findings):
            sys.exit(exit_status(findings))
