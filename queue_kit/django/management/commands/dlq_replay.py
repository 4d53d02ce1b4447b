"""Lets jobs run again that had failed for good; without it each would be sent anew by hand, under another id."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from queue_kit.django.management.letters import LetterCommand, whoever_asks
from queue_kit.store.dead_letters import DeadLetters


class Command(LetterCommand):
    """`manage.py dlq_replay`."""

    help = (
        "Replay dead letters: each job waits again, the same job with all its attempts. By filter those alone that were not "
        "replayed before, the oldest first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_targets(parser, "replay")
        parser.add_argument("--rate", type=float, help="at most so many a second")
        parser.add_argument("--by", default="", help="who asks for it (this user); kept in the dead letter")

    def act(self, letters: DeadLetters, options: dict[str, Any]) -> None:
        ids = self.targets(letters, options, replayed=False)
        if not options["ids"]:
            ids.reverse()
            self.confirm(f"Replay {len(ids)} dead letters?", options)
        done = letters.replay_each(
            ids, options["by"] or whoever_asks(), rate_per_s=options["rate"], dry_run=options["dry_run"]
        )
        self.each(done, "replaying", len(ids), options, "replayed")
