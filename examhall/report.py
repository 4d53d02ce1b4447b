"""The report of an exam, a file; safe to write twice: a second run writes the same file again, and nobody sees half of one."""

import csv
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.conf import settings
from pydantic import BaseModel, Field

from examhall.models import Attempt, Exam
from queue_kit import CurrentJob, ResourceGone, current_job, job

HEADINGS = ("attempt", "candidate", "status", "score", "handed in")
# Attempts between two words about how far it is: often enough to watch, seldom enough not to count.
STEP = 100


class GenerateReport(BaseModel):
    exam: str = Field(pattern=r"^[-a-zA-Z0-9_]{1,50}$")


@job("report.generate", queue="reports", payload=GenerateReport)
def generate_report(payload: GenerateReport) -> str:
    """Write the report of an exam, and return the name of its file."""
    exam = Exam.objects.filter(slug=payload.exam).first()
    if exam is None:
        raise ResourceGone(f"there is no exam {payload.exam}")
    path = report_path(exam)
    write_whole(path, watched(rows(exam), exam.attempts.count(), current_job()))
    return path.name


def report_path(exam: Exam) -> Path:
    """Return where the report of an exam lies, or will; web and workers need one folder for it."""
    return Path(settings.EXAMHALL_REPORTS_DIR) / f"{exam.slug}.csv"


def rows(exam: Exam) -> Iterator[tuple[str, ...]]:
    """Yield a line for each attempt, by their ids: the same attempts give the same report."""
    yield HEADINGS
    for attempt in exam.attempts.order_by("public_id").iterator(chunk_size=500):
        yield row(attempt)


def row(attempt: Attempt) -> tuple[str, ...]:
    score = "" if attempt.score is None else str(attempt.score)
    handed_in = attempt.submitted_at.isoformat(timespec="seconds") if attempt.submitted_at else ""
    return attempt.public_id, plain(attempt.candidate), attempt.status, score, handed_in


def plain(text: str) -> str:
    """Return a text that a spreadsheet will not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def watched(lines: Iterable[tuple[str, ...]], total: int, run: CurrentJob) -> Iterator[tuple[str, ...]]:
    """Pass lines on, say how far the run is, and stop it between two lines when it should stop."""
    for done, line in enumerate(lines):
        if done % STEP == 0:
            run.raise_if_cancelled()
            run.progress({"done": done, "of": total})
        yield line
    run.progress({"done": total, "of": total})


def write_whole(path: Path, lines: Iterable[tuple[str, ...]]) -> None:
    """Write a file beside its name, then put it in its place at one stroke.

    A run that is killed leaves a file whose name begins with a dot; the cleanup takes those.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(lines)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
