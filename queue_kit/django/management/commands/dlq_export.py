"""Writes dead letters as lines of JSON, for whatever reads those; redacted like everything that is shown."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from queue_kit.django.management.letters import SOME_REFUSED, LetterCommand
from queue_kit.django.management.progress import Progress
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.letters import DeadLetter


class Command(LetterCommand):
    """`manage.py dlq_export`."""

    help = "Export dead letters, newest first, a line of JSON each. Secrets are redacted."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_filter(parser)
        parser.add_argument(
            "--output", default="-", help="the file to write, whole or not at all; without it: standard output"
        )

    def act(self, letters: DeadLetters, options: dict[str, Any]) -> None:
        wanted = self.filter_of(options)
        total = len(letters.require(wanted))
        newer: list[str] = []
        with Progress(self.stderr, "exporting", total) as progress:
            lines = _lines(letters.each(wanted), progress, newer)
            if options["output"] == "-":
                for line in lines:
                    self.stdout.write(line)
            else:
                _write_whole(Path(options["output"]), lines)
        if newer:
            raise CommandError(
                f"{len(newer)} of {total} were written by a later version of queue_kit, and exported without what is not "
                f"known here: {', '.join(newer)}",
                returncode=SOME_REFUSED,
            )


def _lines(letters: Iterable[DeadLetter], progress: Progress, newer: list[str]) -> Iterator[str]:
    for letter in letters:
        if letter.is_newer:
            newer.append(letter.id)
        yield letter.as_line()
        progress.advance()


def _write_whole(path: Path, lines: Iterable[str]) -> None:
    """Write a file beside its name and rename it, so that nobody finds half of one.

    :raises CommandError: it cannot be written.
    """
    try:
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise CommandError(f"{path}: cannot be written: {error.strerror}", returncode=SOME_REFUSED) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
