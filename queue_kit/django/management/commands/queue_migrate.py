"""Moves what waits from stock Celery to queue_kit, or back; without it a project could only change over with empty queues."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from redis.exceptions import RedisError

from queue_kit.django.conf import celery_app
from queue_kit.django.management.letters import SOME_REFUSED, UNAVAILABLE
from queue_kit.django.management.progress import Progress
from queue_kit.errors import ConfigurationError
from queue_kit.worker.operating.migration_command import Wish, migrate


class Command(BaseCommand):
    """`manage.py queue_migrate`."""

    help = (
        "Make jobs of what stock Celery has waiting in the same Redis, or with --back messages of stock Celery's of what waits "
        "here. May be ended and run again at any time. Exit status: 0 done; 1 some stay, or the project is not set up; "
        "4 Redis does not answer."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", action="append", default=[], help="this queue alone; may be given more than once")
        parser.add_argument("--back", action="store_true", help="to stock Celery; what runs, and dead letters, stay")
        parser.add_argument("--dry-run", action="store_true", help="change nothing; say what would be moved")
        held = "take what stock workers have held for so many seconds (their visibility timeout); 0 once none of them runs"
        parser.add_argument("--held-for", type=float, default=None, metavar="SECONDS", help=held)

    def handle(self, *args: Any, **options: Any) -> None:
        wish = Wish(options["queue"], options["back"], options["dry_run"], options["held_for"])
        try:
            lines, some_stay = migrate(celery_app(), wish, partial(Progress, self.stderr, "moving"))
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=SOME_REFUSED) from error
        except (RedisError, OSError) as error:
            raise CommandError(f"Redis does not answer: {error}", returncode=UNAVAILABLE) from error
        for line in lines:
            self.stdout.write(line)
        if some_stay:
            raise CommandError("some stay where they are", returncode=SOME_REFUSED)
