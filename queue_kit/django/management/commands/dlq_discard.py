"""Deletes dead letters that nobody will act on; without it they would hide the others until the bound evicts them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from queue_kit.django.management.letters import LetterCommand
from queue_kit.store.dead_letters import DeadLetters


class Command(LetterCommand):
    """`manage.py dlq_discard`."""

    help = "Discard dead letters for good. The jobs' own records stay until they are trimmed."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_targets(parser, "discard")

    def act(self, letters: DeadLetters, options: dict[str, Any]) -> None:
        ids = self.targets(letters, options)
        self.confirm(f"Discard {len(ids)} dead letters for good?", options)
        done = letters.discard_each(ids, dry_run=options["dry_run"])
        self.each(done, "discarding", len(ids), options, "discarded")
