"""Fires a crowd of candidates at both ways of handing in, one way after the other, and says what each candidate had to wait.

It needs the site's own database and scoring service (the stand-in of `examhall.scoring_service`), so run it with the site's
settings. `python -m deploy.demo.rush` starts a whole site for it.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.urls import reverse

from examhall.chart import latency_chart, readable
from examhall.deadline import Outcome, percentile, rush
from examhall.demo_exam import ANSWERS, set_paper
from examhall.models import Attempt
from queue_kit.django.management.progress import Progress

MODES = ("before", "after")
SLUG = "deadline-rush"
LOOK_S = 0.1
SHEET = json.dumps({"answers": ANSWERS}).encode()
# For whoever waits for this in a script.
NOT_ALL_GRADED, CANNOT_RUN = 1, 2


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the site is (default: %(default)s)")
        parser.add_argument("--students", type=positive, default=200, help="how many hand in, each way (%(default)s)")
        parser.add_argument("--concurrency", type=positive, help="how many at a time (all)")
        parser.add_argument(
            "--scoring-latency-ms", type=positive, default=200, help="how long the scoring of a paper takes (%(default)s)"
        )
        parser.add_argument("--within-s", type=positive, default=300, help="how long to wait for all scores (%(default)s)")
        parser.add_argument("--chart", type=Path, help="an SVG file to draw the two into")

    def handle(self, *args: Any, chart: Path | None, **options: Any) -> None:
        if chart is not None and not chart.resolve().parent.is_dir():
            raise CommandError(f"--chart: there is no folder {chart.resolve().parent}", returncode=CANNOT_RUN)
        with scoring_takes(options["scoring_latency_ms"]):
            outcomes = {mode: self.rush(mode, options) for mode in MODES}
        self.stdout.write(table(outcomes))
        if chart is not None:
            chart.write_text(latency_chart(title(options), {mode: found.took_ms for mode, found in outcomes.items()}))
            self.stdout.write(f"Drawn: {chart}")
        after, students = outcomes["after"], options["students"]
        if after.accepted < students or after.all_graded_s is None:
            raise CommandError("not every paper handed in to the queue has its score", returncode=NOT_ALL_GRADED)

    def rush(self, mode: str, options: dict[str, Any]) -> Outcome:
        """Let the crowd hand in one way; return once all scores are there, or the time for it is over."""
        students = options["students"]
        ids = seats(mode, students)
        submit = [f"{options['url'].rstrip('/')}{reverse('examhall:submit', args=[i])}?mode={mode}" for i in ids]
        outcome, began = Outcome(), time.monotonic()
        with Progress(self.stdout, f"{mode}: handed in", students) as progress:
            outcome.answers = rush(submit, SHEET, options["concurrency"] or students, progress.advance)
        with Progress(self.stdout, f"{mode}: graded", students) as progress:
            if all_graded(mode, outcome.accepted, began + options["within_s"], progress):
                outcome.all_graded_s = time.monotonic() - began
        return outcome


def positive(text: str) -> int:
    """Read a whole number above 0; argparse names the option where this raises ValueError."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


@contextmanager
def scoring_takes(latency_ms: int) -> Iterator[None]:
    """Have the scoring service think so long about each paper, and none afterwards."""
    tell_scoring(latency_ms)
    try:
        yield
    finally:
        tell_scoring(0)


def tell_scoring(latency_ms: int) -> None:
    order = Request(f"{settings.EXAMHALL_SCORING_URL}/control", json.dumps({"latency_ms": latency_ms}).encode())
    try:
        with urlopen(order, timeout=10):
            pass
    except (URLError, OSError) as error:
        raise CommandError(f"the scoring service cannot be told to take its time: {error}", returncode=CANNOT_RUN) from error


@transaction.atomic
def seats(mode: str, students: int) -> list[str]:
    """Put so many candidates into the hall, in place of those of a rush before, and return the ids of their attempts."""
    exam = set_paper(f"{SLUG}-{mode}", f"Deadline rush, {mode}", bell_at=None)
    exam.attempts.all().delete()
    hall = Attempt.objects.bulk_create(Attempt(exam=exam, candidate=f"Candidate {n}") for n in range(1, students + 1))
    return [attempt.public_id for attempt in hall]


def all_graded(mode: str, accepted: int, until: float, progress: Progress) -> bool:
    """Wait until as many of these have a score as were accepted; False when the time is over."""
    seen = 0
    while True:
        graded = Attempt.objects.filter(exam__slug=f"{SLUG}-{mode}", score__isnull=False).count()
        for _ in range(graded - seen):
            progress.advance()
        seen = graded
        if graded >= accepted:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)


def title(options: dict[str, Any]) -> str:
    return f"{options['students']} candidates hand in at the bell; scoring takes {options['scoring_latency_ms']} ms"


def table(outcomes: dict[str, Outcome]) -> str:
    """Return both ways side by side."""
    rows = [
        ("", list(outcomes)),
        ("accepted", [f"{found.accepted} of {len(found.answers)}" for found in outcomes.values()]),
        *((f"p{share}", [readable(percentile(found.took_ms, share)) for found in outcomes.values()]) for share in (50, 95, 99)),
        ("slowest", [readable(max(found.took_ms)) for found in outcomes.values()]),
        ("errors", [found.errors() for found in outcomes.values()]),
        ("last score", [f"{s:.1f} s" if (s := found.all_graded_s) is not None else "not in time" for found in outcomes.values()]),
    ]
    return "\n".join(f"{name:<12}" + "".join(f"{cell:>18}" for cell in cells) for name, cells in rows)
