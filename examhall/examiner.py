"""What an examiner uses: the rush of an exam, and its report. Without it nobody sees at the bell whether the grading keeps up."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from examhall.models import Exam
from examhall.report import report_path
from examhall.rush import paper_numbers, queue_numbers
from examhall.watching import QueueAway, reading
from queue_kit import enqueue

View = Callable[[HttpRequest, Exam], HttpResponse]


def may_watch(user: Any) -> bool:
    return bool(user.is_staff and user.has_perm("examhall.watch_exam"))


def for_examiners(view: View) -> Callable[..., HttpResponse]:
    """Hand a view the exam of its address, if this user may watch exams."""

    @wraps(view)
    def found(request: HttpRequest, slug: str) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(reverse("examhall:rush", args=[slug]), reverse("examhall:login"))
        if not may_watch(request.user):
            raise PermissionDenied
        return view(request, get_object_or_404(Exam, slug=slug))

    return found


@require_safe
@never_cache
@for_examiners
def rush(request: HttpRequest, exam: Exam) -> HttpResponse:
    numbers = {"papers": paper_numbers(exam), "queue": queue_numbers(), "report": report_of(exam)}
    return render(request, "examhall/rush.html", {"exam": exam, **numbers})


def report_of(exam: Exam) -> dict[str, Any]:
    """Return how far the latest report is, and the file that is there."""
    path = report_path(exam)
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC) if path.exists() else None
    return {"written_at": written, **job_of(exam)}


def job_of(exam: Exam) -> dict[str, Any]:
    if not exam.report_job:
        return {}
    try:
        with reading() as census:
            job = census.job(exam.report_job)
    except QueueAway:
        return {"away": True}
    return {"state": str(job.state), "running": not job.state.is_final, **(job.progress or {})} if job else {}


@require_POST
@for_examiners
def run_report(request: HttpRequest, exam: Exam) -> HttpResponse:
    """Have the report written; whoever asks while one is being written watches that one."""
    key = {"idempotency_key": f"report:{exam.slug}", "dedup": "until_finished"}
    handle = enqueue("report.generate", {"exam": exam.slug}, **key)
    Exam.objects.filter(pk=exam.pk).update(report_job=handle.id)
    return redirect("examhall:rush", exam.slug)


@require_safe
@never_cache
@for_examiners
def report_file(request: HttpRequest, exam: Exam) -> HttpResponse:
    path = report_path(exam)
    if not path.exists():
        raise Http404
    return FileResponse(path.open("rb"), as_attachment=True, filename=path.name)
