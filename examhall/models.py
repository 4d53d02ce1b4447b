"""Exams, their answer keys, and the attempts at them.

The attempt's row, not the queue, says whether a score is there: a job that runs twice looks here first.
"""

import secrets
from datetime import timedelta
from string import ascii_lowercase
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from examhall.grading import is_sheet, letters

SHEET = 'map question numbers to letters, such as {"1": "b", "2": "ac"}'


def new_public_id() -> str:
    """Return an id for candidates to quote, which tells nothing of how many attempts there are."""
    return f"a-{secrets.token_hex(6)}"


def check_sheet(answers: Any) -> None:
    """Refuse what no page could show and no service grade."""
    if not is_sheet(answers):
        raise ValidationError(f"Answers must {SHEET}.")


class Exam(models.Model):
    slug = models.SlugField(unique=True)
    title = models.CharField(max_length=200)
    bell_at = models.DateTimeField(
        null=True, blank=True, verbose_name="bell", help_text="When the papers are collected; empty where no bell rings."
    )
    report_job = models.CharField(max_length=100, blank=True, help_text="The job that writes its latest report.")

    class Meta:
        permissions = [("watch_exam", "Can watch the rush of an exam and run its report")]

    def __str__(self) -> str:
        return self.title

    def is_over(self) -> bool:
        """Say whether the bell has rung, and what was under way then has had its time to arrive."""
        grace = timedelta(seconds=settings.EXAMHALL_GRACE_S)
        return self.bell_at is not None and timezone.now() > self.bell_at + grace

    def left_ms(self) -> int | None:
        """Return the milliseconds until the bell, 0 after it; None where no bell rings."""
        return None if self.bell_at is None else max(0, round((self.bell_at - timezone.now()).total_seconds() * 1000))

    def answer_key(self) -> list[dict[str, Any]]:
        """Return the key in the scoring service's own format, in the order of the paper."""
        return [question.as_key() for question in self.questions.order_by("number")]


class Question(models.Model):
    exam = models.ForeignKey(Exam, on_delete=models.CASCADE, related_name="questions")
    number = models.PositiveSmallIntegerField()
    text = models.CharField(max_length=500)
    choices = models.TextField(
        blank=True, help_text="What can be ticked, one a line: the first line is a, the second b. Without any, letters are typed."
    )
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

    def clean(self) -> None:
        """Refuse a right answer that nobody could give: the grading would fail, for every paper of the exam."""
        named, may = letters(self.right), [letter for letter, _ in self.lettered()]
        if self.right and not named:
            raise ValidationError({"right": "Right must name at least one letter, such as b or ac."})
        if may and not named <= set(may):
            raise ValidationError({"right": f"Right must name letters of the choices, {may[0]} to {may[-1]}."})

    def lettered(self) -> list[tuple[str, str]]:
        """Return what can be ticked, each with its letter."""
        lines = [line.strip() for line in self.choices.splitlines()]
        return list(zip(ascii_lowercase, filter(None, lines), strict=False))

    @property
    def takes_several(self) -> bool:
        return len(letters(self.right)) > 1

    def as_key(self) -> dict[str, Any]:
        return {"number": self.number, "right": "".join(sorted(letters(self.right))), "weight": self.weight}


class Attempt(models.Model):
    class Status(models.TextChoices):
        OPEN = "open"
        GRADING = "grading"
        GRADED = "graded"

    public_id = models.SlugField(
        unique=True, default=new_public_id, validators=[RegexValidator(r"^a-[a-z0-9]+\Z", "a- and small letters or digits.")]
    )
    exam = models.ForeignKey(Exam, on_delete=models.PROTECT, related_name="attempts")
    candidate = models.CharField(max_length=200)
    # Whoever has the link may sit an attempt that is nobody's, so one must not become nobody's with an account that goes.
    student = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="exam_attempts",
        help_text="Whose it is; empty: whoever has its link may sit it.",
    )  # fmt: skip
    email = models.EmailField(blank=True, help_text="Where the score is sent; empty: nowhere.")
    answers = models.JSONField(default=dict, blank=True, validators=[check_sheet], help_text="Question number to letters.")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.OPEN)
    score = models.PositiveSmallIntegerField(null=True, blank=True)
    grading_job = models.CharField(
        max_length=100, blank=True, help_text="The job that grades it, once the queue has taken it."
    )
    submitted_at = models.DateTimeField(null=True, blank=True)
    graded_at = models.DateTimeField(null=True, blank=True)
    mailed_at = models.DateTimeField(null=True, blank=True)

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

    def is_closed_to(self, user: Any) -> bool:
        """Say whether this is somebody's, and not this user's."""
        return self.student_id is not None and self.student_id != user.pk

    def save_answers(self, answers: dict[str, str]) -> bool:
        """Keep the answers so far, and say whether the attempt still was open."""
        return bool(Attempt.objects.filter(pk=self.pk, status=self.Status.OPEN).update(answers=answers))

    def store_score(self, score: int) -> None:
        """Keep the first score that arrives; of two runs of one job the later changes nothing."""
        changes = {"score": score, "status": self.Status.GRADED, "graded_at": timezone.now()}
        Attempt.objects.filter(pk=self.pk, score=None).update(**changes)
        self.refresh_from_db()
