"""Sends the jobs that stand in the outbox, until it is told to stop; without it they would stay there."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseError

from queue_kit.django.conf import celery_app, project_settings
from queue_kit.django.management.letters import NOTHING, SOME_REFUSED, UNAVAILABLE, instant_ms
from queue_kit.django.relay import Relay
from queue_kit.errors import ConfigurationError

_STATUS: Final = (
    "Exit status: 0 stopped by SIGTERM or SIGINT, or with --once all is sent; 1 the project is not set up; with --once also: "
    "3 some rows can never be sent, 4 Redis or the database does not answer."
)


class Command(BaseCommand):
    """`manage.py outbox_relay`."""

    help = f"Send the jobs of the outbox. Any number of relays may run, for each database that is used. {_STATUS}"
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, choices=list(connections), help="alias of the database")
        parser.add_argument("--once", action="store_true", help="send what is there now, and end")
        parser.add_argument("--retry-failed", action="store_true", help="first try those again that could not be sent")
        since = "first send again, under their ids, those sent then or later: a time, as 2026-11-30T18:00 or 2h (so long ago)"
        parser.add_argument("--sent-since", dest="since_ms", type=instant_ms, help=f"{since}. After Redis was restored")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._relay(Relay(celery_app(), options["database"], project_settings()), options)
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=SOME_REFUSED) from error

    def _relay(self, relay: Relay, options: dict[str, Any]) -> None:
        try:  # a table that nobody has made is found out now, and not by going on trying
            self.stderr.write(f"waiting: {relay.waiting()}")
            if options["retry_failed"]:
                self.stdout.write(f"{relay.retry_failed()} to be tried again")
            if options["since_ms"] is not None:
                since = datetime.fromtimestamp(options["since_ms"] / 1000, UTC)
                self.stdout.write(f"{relay.send_again(since)} to be sent again")
        except DatabaseError as error:
            raise CommandError(f"{error}: is `manage.py migrate queue_kit` done?", returncode=SOME_REFUSED) from error
        if options["once"]:
            self._once(relay)
        else:
            relay.run(_stopped_by_signals())
        self.stdout.write(_counts(relay))

    def _once(self, relay: Relay) -> None:
        try:
            trouble: Exception | None = relay.drain()
        except DatabaseError as error:
            trouble = error
        if trouble is not None:
            raise CommandError(f"{_counts(relay)}, the rest waits: {trouble}", returncode=UNAVAILABLE)
        if relay.failed:
            raise CommandError(f"{_counts(relay)}: see the outbox in the admin", returncode=NOTHING)


def _counts(relay: Relay) -> str:
    return f"{relay.sent} sent, {relay.failed} failed"


def _stopped_by_signals() -> threading.Event:
    """Set by SIGTERM and SIGINT. The batch that is being sent is marked before the relay ends."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
