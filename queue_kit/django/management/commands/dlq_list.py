"""Lists dead letters; without it whoever is on call would need the admin to see what has failed."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from queue_kit.django.management.letters import LetterCommand, shown_at, table
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.letters import DeadLetter

_REASON_SHOWN = 80


class Command(LetterCommand):
    """`manage.py dlq_list`."""

    help = "List dead letters, newest first, or count them."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_filter(parser)
        parser.add_argument("--limit", type=int, default=50, help="how many to list (50)")
        parser.add_argument("--offset", type=int, default=0, help="how many to skip")
        parser.add_argument("--counts", action="store_true", help="count by queue, cause, task and error class instead")
        self.add_json(parser)

    def act(self, letters: DeadLetters, options: dict[str, Any]) -> None:
        if options["limit"] < 1 or options["offset"] < 0:
            raise ValueError("limit: 1 or more; offset: 0 or more")
        if options["counts"]:
            self._count(letters, options)
        else:
            self._list(letters, options)

    def _list(self, letters: DeadLetters, options: dict[str, Any]) -> None:
        page = letters.page(self.filter_of(options), offset=options["offset"], limit=options["limit"])
        if options["as_json"]:
            return self.print_json({"total": page.total, "letters": [letter.as_dict() for letter in page.letters]})
        headings = ("FAILED AT", "ID", "TASK", "CAUSE", "ATTEMPTS", "REPLAYED", "REASON")
        if page.letters:
            table(headings, [_row(letter) for letter in page.letters], self.stdout.write)
        self.stdout.write(f"{len(page.letters)} of {page.total} dead letters")

    def _count(self, letters: DeadLetters, options: dict[str, Any]) -> None:
        counts = letters.tally(self.filter_of(options))
        if options["as_json"]:
            return self.print_json(counts)
        rows = [(facet, str(n), value) for facet, by in counts.items() for value, n in by.most_common()]
        table(("BY", "NUMBER", "WHICH"), rows, self.stdout.write)


def _row(letter: DeadLetter) -> tuple[str, ...]:
    reason = letter.payload.note if letter.is_newer else letter.reason.partition("\n")[0]
    shortened = reason if len(reason) <= _REASON_SHOWN else reason[: _REASON_SHOWN - 1] + "…"
    attempts = str(letter.attempts_made)
    return shown_at(letter.failed_at_ms), letter.id, letter.name, letter.cause, attempts, letter.replayed_by, shortened
