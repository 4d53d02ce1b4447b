"""Exams, their answer keys, and the attempts at them.

The attempt's row, not the queue, says whether a score is there: a job that runs twice looks here first.
"""

import secrets
from typing import Any

from django.db import models
from django.utils import timezone

from examhall.grading import letters


def new_public_id() -> str:
    """Return an id for candidates to quote, which tells nothing of how many attempts there are."""
    return f"a-{secrets.token_hex(6)}"


class Exam(models.Model):
    slug = models.SlugField(unique=True)
    title = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.title

    def answer_key(self) -> list[dict[str, Any]]:
        """Return the key in the scoring service's own format, in the order of the paper."""
        return [question.as_key() for question in self.questions.order_by("number")]


class Question(models.Model):
    exam = models.ForeignKey(Exam, on_delete=models.CASCADE, related_name="questions")
    number = models.PositiveSmallIntegerField()
    text = models.CharField(max_length=500)
    right = models.CharField(max_length=20, help_text="The letters of the right answers, such as b or ac.")
    weight = models.PositiveSmallIntegerField(default=1)

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["exam", "number"], name="examhall_one_question_a_number"),
            models.CheckConstraint(condition=models.Q(weight__gte=1), name="examhall_question_weighs_something"),
        ]

    def __str__(self) -> str:
        return f"{self.number}. {self.text}"

    def as_key(self) -> dict[str, Any]:
        return {"number": self.number, "right": "".join(sorted(letters(self.right))), "weight": self.weight}


class Attempt(models.Model):
    class Status(models.TextChoices):
        OPEN = "open"
        GRADING = "grading"
        GRADED = "graded"

    public_id = models.SlugField(unique=True, default=new_public_id)
    exam = models.ForeignKey(Exam, on_delete=models.PROTECT, related_name="attempts")
    candidate = models.CharField(max_length=200)
    answers = models.JSONField(default=dict, help_text="Question number to letters.")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN)
    score = models.PositiveSmallIntegerField(null=True, blank=True)
    grading_job = models.CharField(
        max_length=100, blank=True, help_text="The job that grades it, once the queue has taken it."
    )
    submitted_at = models.DateTimeField(null=True, blank=True)
    graded_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["public_id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(score__isnull=True) | models.Q(score__lte=100), name="examhall_score_out_of_100"
            ),
            models.CheckConstraint(
                condition=models.Q(status="graded", score__isnull=False)
                | (~models.Q(status="graded") & models.Q(score__isnull=True)),
                name="examhall_graded_means_scored",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.public_id}, {self.candidate}"

    def store_score(self, score: int) -> None:
        """Keep the first score that arrives; of two runs of one job the later changes nothing."""
        changes = {"score": score, "status": self.Status.GRADED, "graded_at": timezone.now()}
        Attempt.objects.filter(pk=self.pk, score=None).update(**changes)
        self.refresh_from_db()
