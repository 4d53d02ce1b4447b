"""What the commands for dead letters share: which are meant, who asks, how errors end, how records look on a terminal."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from redis.exceptions import RedisError

from queue_kit.django.conf import celery_app
from queue_kit.django.management.progress import Progress
from queue_kit.errors import ConfigurationError, DeadLetterError, DeadLetterNotFound, NoDeadLetterMatches
from queue_kit.rules.printing import printable
from queue_kit.states import Cause
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.letters import LetterFilter
from queue_kit.store.replaying import Done
from queue_kit.worker.operating.letters import dead_letters

SOME_REFUSED, USAGE, NOTHING, UNAVAILABLE = 1, 2, 3, 4
_EXIT_CODES: Final = (
    "Exit status: 0 done; 1 some could not be done, or the project is not set up; 2 wrong usage; 3 no dead letter is meant; "
    "4 Redis does not answer."
)
_AGO_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: Options that say which dead letters are meant: name, field of the filter, what it is.
_CHOOSING: Final = (
    ("--queue", "queue", "of this queue"),
    ("--task", "name", "of this task"),
    ("--error", "error_class", "with this error class, such as ValueError"),
    ("--search", "text", "whose id, job id, correlation id or reason contains this"),
)


class LetterCommand(BaseCommand):
    """A command that does something with dead letters: :meth:`act` says what; errors of all kinds end it by their status."""

    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(prog_name, subcommand, epilog=_EXIT_CODES, **kwargs)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.act(dead_letters(celery_app()), options)
        except (DeadLetterNotFound, NoDeadLetterMatches) as error:
            raise CommandError(str(error), returncode=NOTHING) from error
        except (DeadLetterError, ConfigurationError) as error:
            raise CommandError(str(error), returncode=SOME_REFUSED) from error
        except ValueError as error:
            raise CommandError(str(error), returncode=USAGE) from error
        except RedisError as error:
            raise CommandError(f"Redis does not answer: {error}", returncode=UNAVAILABLE) from error
        except BrokenPipeError:  # whoever read this has seen enough, as `| head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def act(self, letters: DeadLetters, options: dict[str, Any]) -> None:
        """What this command is for."""
        raise NotImplementedError

    # -- which are meant ----------------------------------------------------------------------------------------------

    def add_filter(self, parser: CommandParser) -> None:
        """Options that choose dead letters."""
        group = parser.add_argument_group("which dead letters", "All that are given must fit.")
        for option, field, what in _CHOOSING:
            group.add_argument(option, dest=field, default="", help=f"those {what}")
        group.add_argument("--cause", default="", choices=list(Cause), help="those that ended for this cause")
        when = "a time, as 2026-11-30T18:00 or 2h (s, m, h, d: so long ago)"
        group.add_argument("--since", dest="since_ms", type=instant_ms, help=f"those that failed then or later: {when}")
        group.add_argument("--until", dest="until_ms", type=instant_ms, help="those that failed before: likewise")
        group.add_argument("--replayed", choices=["yes", "no"], help="those that were replayed, or were not")

    def add_targets(self, parser: CommandParser, verb: str) -> None:
        """Ids, or options that choose; and what goes with doing something to many."""
        parser.add_argument("ids", nargs="*", metavar="ID", help="ids of dead letters, as dlq_list shows them")
        self.add_filter(parser)
        parser.add_argument("--all", action="store_true", help=f"{verb} every dead letter")
        parser.add_argument("--dry-run", action="store_true", help="change nothing; say what would be done")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        self.add_json(parser)

    def add_json(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")

    def filter_of(self, options: dict[str, Any], **defaults: Any) -> LetterFilter:
        """The filter that the options spell."""
        fields = {
            name: options[name] for name in ("queue", "name", "cause", "error_class", "text", "since_ms", "until_ms")
        }
        replayed = {"yes": True, "no": False, None: defaults.get("replayed")}[options["replayed"]]
        return LetterFilter(**fields, replayed=replayed)

    def targets(self, letters: DeadLetters, options: dict[str, Any], **defaults: Any) -> list[str]:
        """The ids given, or those that the filter means.

        :raises CommandError: ids and filter, or neither.
        :raises NoDeadLetterMatches: the filter means none.
        """
        filtered = options["all"] or self.filter_of(options) != LetterFilter()
        if bool(options["ids"]) == filtered:
            raise CommandError("name dead letters by id, or choose by filter, or say --all", returncode=USAGE)
        return options["ids"] or letters.require(self.filter_of(options, **defaults))

    def confirm(self, question: str, options: dict[str, Any]) -> None:
        """Ask before many are changed, or before anything is lost.

        :raises CommandError: the answer is no, or there is nobody to ask.
        """
        if options["yes"] or options["dry_run"]:
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{question} Nobody is there to ask: add --yes", returncode=USAGE)
        self.stderr.write(f"{question} [y/N] ", ending="")
        if input().strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was changed", returncode=SOME_REFUSED)

    # -- what is said -------------------------------------------------------------------------------------------------

    def each(self, done: Iterable[Done], doing: str, total: int, options: dict[str, Any], word: str) -> None:
        """Go through what is done, with progress; then say what was done and what was not.

        :raises CommandError: some could not be done; all the others have been.
        """
        results: list[Done] = []
        try:
            with Progress(self.stderr, doing, total) as progress:
                for one in done:
                    results.append(one)
                    progress.advance()
        finally:
            self._tell(results, options, word)
        refused = [one for one in results if one.error is not None]
        if refused:
            nothing = all(isinstance(one.error, DeadLetterNotFound) for one in results)
            raise CommandError(
                f"{len(refused)} of {total} left as they are", returncode=NOTHING if nothing else SOME_REFUSED
            )

    def _tell(self, results: Sequence[Done], options: dict[str, Any], word: str) -> None:
        done = [one.id for one in results if one.error is None]
        refused = {one.id: str(one.error) for one in results if one.error is not None}
        if options["as_json"]:
            self.print_json({word: done, "refused": refused, "dry_run": options["dry_run"]})
            return
        for reason in refused.values():
            self.stderr.write(printable(reason))
        self.stdout.write(f"{len(done)} {'would be ' if options['dry_run'] else ''}{word}")

    def print_json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False, indent=2))


def whoever_asks() -> str:
    """The user of the operating system, for the record of who replayed."""
    try:
        return f"{getpass.getuser()} (command)"
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return "command"


def instant_ms(text: str) -> int:
    """Milliseconds of a time: ISO 8601, in the project's time zone unless it names one, or so long ago.

    :raises argparse.ArgumentTypeError: it is none.
    """
    ago = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if ago:
        return int((time.time() - int(ago[1]) * _AGO_S[ago[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else timezone.make_aware(moment)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: use 2026-11-30T18:00, or 2h for two hours ago"
        ) from None


def shown_at(at_ms: int | None) -> str:
    """A time for people, in the project's time zone; empty for none."""
    if at_ms is None:
        return ""
    return timezone.localtime(datetime.fromtimestamp(at_ms / 1000, UTC)).isoformat(sep=" ", timespec="seconds")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], write: Callable[[str], Any]) -> None:
    """Write rows in columns; the last one is as long as it is."""
    lines = [headings, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings) - 1)]
    for line in lines:
        write("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip())
