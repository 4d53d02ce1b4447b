"""Shows one dead letter whole: what the job was sent, how it failed, where it stands now."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from queue_kit.django.management.letters import LetterCommand, shown_at
from queue_kit.rules.printing import printable
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.letters import DeadLetter


class Command(LetterCommand):
    """`manage.py dlq_show`."""

    help = "Show one dead letter: payload, error, stack, attempts. Secrets are redacted."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="id of a dead letter, as dlq_list shows it")
        self.add_json(parser)

    def act(self, letters: DeadLetters, options: dict[str, Any]) -> None:
        letter = letters.get(options["id"])
        if options["as_json"]:
            return self.print_json(letter.as_dict())
        for name, value in _facts(letter).items():
            self.stdout.write(f"{name:<15}{printable(value)}".rstrip())
        self.stdout.write(f"\nPayload\n{printable(_payload(letter), keep=chr(10))}")
        if letter.stack:
            self.stdout.write(f"\nStack\n{printable(letter.stack, keep=chr(10))}")


def _facts(letter: DeadLetter) -> dict[str, str]:
    replayed = f"{shown_at(letter.replayed_at_ms)} by {letter.replayed_by}" if letter.is_replayed else "no"
    counts = f"{letter.attempts_made} made, {letter.attempts_started} started, {letter.stalled_count} stalled"
    return {
        "Dead letter": letter.id, "Job": letter.job_id, "Task": letter.name, "Queue": letter.queue, "Cause": letter.cause,
        "Error": letter.error_class, "Reason": letter.reason, "Attempts": counts, "Correlation id": letter.correlation_id,
        "Added": shown_at(letter.added_at_ms), "Failed": shown_at(letter.failed_at_ms), "Replayed": replayed,
    }  # fmt: skip


def _payload(letter: DeadLetter) -> str:
    if letter.payload.note:
        return letter.payload.note
    arguments = {"args": letter.payload.args, "kwargs": letter.payload.kwargs}
    return json.dumps({name: value for name, value in arguments.items() if value}, ensure_ascii=False, indent=2)
