"""Loads the demo exam and its attempts; run again, it opens the attempts anew."""

from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from examhall.models import Attempt, Exam

EXAM = {"slug": "framing-1", "title": "Picture framing, part 1"}

# Number, text, right letters, weight.
QUESTIONS = [
    (1, "Which glass keeps colours from fading? (a) float, (b) museum, (c) frosted", "b", 4),
    (2, "What may touch a watercolour? (a) acid-free board, (b) the glass, (c) cotton rag", "ac", 4),
    (3, "At which angle are the corners mitred? (a) 30, (b) 45, (c) 60 degrees", "b", 2),
    (4, "Which marks a mount that was botched? (a) a bevel, (b) an overcut, (c) a hinge", "b", 3),
    (5, "Which hold a print reversibly? (a) paper hinges, (b) photo corners, (c) spray glue", "ab", 6),
    (6, "How long does wood glue stay in the clamp? (a) 1, (b) 30 minutes, (c) two days", "b", 4),
    (7, "Which hanger carries 20 kg? (a) a sawtooth, (b) two D-rings, (c) a pin", "b", 8),
]

# Half of question 2, a letter too many in question 5, a slip in question 6: 22 of 31 points, a score of 71.
ANSWERS = {"1": "b", "2": "a", "3": "b", "4": "b", "5": "abc", "6": "c", "7": "B"}

CANDIDATES = {"a-5519": "Ada Birch", "a-5520": "Ben Cole", "a-5521": "Cleo Dunn", "a-5522": "Dev Elm"}
HALL = [f"a-{number}" for number in range(5531, 5543)]


class Command(BaseCommand):
    help = __doc__

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        exam, _ = Exam.objects.update_or_create(slug=EXAM["slug"], defaults=EXAM)
        for number, text, right, weight in QUESTIONS:
            values = {"text": text, "right": right, "weight": weight}
            exam.questions.update_or_create(number=number, defaults=values)
        for public_id, candidate in (CANDIDATES | dict.fromkeys(HALL, "Exam hall")).items():
            self.open_attempt(exam, public_id, candidate)
        if options["verbosity"]:
            self.stdout.write(f"{exam.title}: {len(QUESTIONS)} questions, {exam.attempts.count()} attempts")

    def open_attempt(self, exam: Exam, public_id: str, candidate: str) -> None:
        fresh = {
            "status": Attempt.Status.OPEN,
            "score": None,
            "grading_job": "",
            "submitted_at": None,
            "graded_at": None,
        }
        values = {"exam": exam, "candidate": candidate, "answers": ANSWERS, **fresh}
        Attempt.objects.update_or_create(public_id=public_id, defaults=values)
