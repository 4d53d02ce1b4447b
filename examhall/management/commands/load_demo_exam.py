"""Loads the demo exam and its attempts; run again, it opens the attempts anew and sets the bell again."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction
from django.utils import timezone

from examhall.demo_exam import ANSWERS, QUESTIONS, set_paper
from examhall.models import Attempt, Exam

CANDIDATES = {"a-5519": "Ada Birch", "a-5520": "Ben Cole", "a-5521": "Cleo Dunn", "a-5522": "Dev Elm"}
HALL = [f"a-{number}" for number in range(5531, 5543)]
FRESH = {
    "status": Attempt.Status.OPEN, "score": None, "grading_job": "", "submitted_at": None, "graded_at": None, "mailed_at": None,
}  # fmt: skip


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--minutes", type=float, default=60, help="minutes until the bell (default: 60)")

    @transaction.atomic
    def handle(self, *args: Any, minutes: float, **options: Any) -> None:
        bell_at = timezone.now() + timedelta(minutes=minutes)
        exam = set_paper("framing-1", "Picture framing, part 1", bell_at)
        for public_id in HALL:
            self.open_attempt(exam, public_id, "Exam hall")
        for public_id, candidate in CANDIDATES.items():
            self.open_attempt(exam, public_id, candidate, f"{candidate.lower().replace(' ', '.')}@example.org")
        if options["verbosity"]:
            self.stdout.write(f"{exam.title}: {len(QUESTIONS)} questions, {exam.attempts.count()} attempts")

    def open_attempt(self, exam: Exam, public_id: str, candidate: str, email: str = "") -> None:
        values = {"exam": exam, "candidate": candidate, "email": email, "answers": ANSWERS, **FRESH}
        Attempt.objects.update_or_create(public_id=public_id, defaults=values)
