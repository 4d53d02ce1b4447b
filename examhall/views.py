"""What a student uses: the paper, saving while writing, handing in, asking after the score. Without it there is no exam to sit.

`submit` shows both ways: `?mode=before` makes the candidate wait for the grading, which at exam close means timeouts;
`mode=after`, the default, answers at once and leaves the work to a job. An attempt that belongs to a student is for that student
alone; one that is nobody's is for whoever has its link, and no cookie stands for anybody there.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_POST, require_safe

from examhall.examiner import may_watch
from examhall.grading import letters
from examhall.models import Attempt, Exam, Question
from examhall.sheets import BadRequest, read_sheet, sent_by_form
from examhall.submission import AlreadyHandedIn, Answers, NoQuestions, grade_later, grade_now, in_time
from examhall.watching import says
from queue_kit import NonRetryableError, TransientError

SCORING_RETRY_AFTER_S = 5
OPEN_SEATS_SHOWN = 20
LATE = "The bell has rung. What was saved by then has been handed in; what came later does not count."
NOT_SAVED = "The bell has rung or the attempt is handed in: no more answers are taken."

View = Callable[..., HttpResponse]


@require_safe
@never_cache
def index(request: HttpRequest) -> HttpResponse:
    """Show a user's own attempts, and the seats that are nobody's."""
    attempts = Attempt.objects.select_related("exam").order_by("exam_id", "public_id")
    mine = attempts.filter(student=request.user) if request.user.is_authenticated else attempts.none()
    seats = attempts.filter(student=None)[:OPEN_SEATS_SHOWN]
    watched = Exam.objects.order_by("title") if may_watch(request.user) else []
    return render(request, "examhall/index.html", {"mine": mine, "seats": seats, "watched": watched})


@require_safe
@never_cache
def paper(request: HttpRequest, public_id: str) -> HttpResponse:
    """Show one attempt: the questions, what was answered, and the score once it is there."""
    attempt = get_object_or_404(Attempt.objects.select_related("exam"), public_id=public_id)
    if attempt.is_closed_to(request.user):
        if request.user.is_authenticated:
            raise Http404
        return redirect_to_login(request.get_full_path(), reverse("examhall:login"))
    lines = [Line(question, attempt.answers) for question in attempt.exam.questions.all()]
    return render(request, "examhall/paper.html", {"attempt": attempt, "lines": lines, "says": says(attempt)})


class Line:
    """One question of a paper, with what was answered."""

    def __init__(self, question: Question, answers: Answers) -> None:
        self.question, self.answer = question, answers.get(str(question.number), "")
        ticked = letters(self.answer)
        self.choices = [(letter, text, letter in ticked) for letter, text in question.lettered()]


def for_its_candidate(view: View) -> View:
    """Hand a view the attempt of its address, if it is this user's to touch, and answer what cannot be used.

    Where an attempt is somebody's, a request that changes it needs the token of that somebody's own page.
    """

    @csrf_exempt
    @wraps(view)
    def found(request: HttpRequest, public_id: str) -> HttpResponse:
        attempt = Attempt.objects.select_related("exam").filter(public_id=public_id).first()
        if attempt is not None and attempt.student_id is not None and not request.user.is_authenticated:
            return tell(request, public_id, 403, {"error": "This attempt belongs to a student: log in as that student."})
        if attempt is None or attempt.is_closed_to(request.user):
            return tell(request, public_id, 404, {"error": f"there is no attempt {public_id}"})
        answer = answering if attempt.student_id is None else csrf_protect(answering)
        return answer(request, attempt)

    def answering(request: HttpRequest, attempt: Attempt) -> HttpResponse:
        try:
            return view(request, attempt)
        except BadRequest as fault:
            return tell(request, attempt.public_id, fault.status, {"error": str(fault)})
        except AlreadyHandedIn as conflict:
            return tell(request, attempt.public_id, 409, {"error": str(conflict)})
        except NoQuestions as empty:
            # No 409: a page of ours takes that for handed in elsewhere, and loads itself anew.
            return tell(request, attempt.public_id, 422, {"error": str(empty)})

    return found


@require_safe
@never_cache
@for_its_candidate
def status(request: HttpRequest, attempt: Attempt) -> JsonResponse:
    """Say how far an attempt is, in words too, and how long it is to the bell."""
    body = {"attemptId": attempt.public_id, "status": attempt.status, "score": attempt.score}
    more = {"jobId": attempt.grading_job or None, "says": says(attempt), "leftMs": attempt.exam.left_ms()}
    return as_json(200, {**body, **more})


@require_POST
@for_its_candidate
def answers(request: HttpRequest, attempt: Attempt) -> HttpResponse:
    """Keep the answers so far; 409 where no more are taken."""
    sheet = read_sheet(request)
    if sheet is None:
        raise BadRequest('answers must be given, such as {"answers": {"1": "b"}}')
    if in_time(attempt, sheet) is None or not attempt.save_answers(sheet):
        return tell(request, attempt.public_id, 409, {"error": NOT_SAVED})
    return tell(request, attempt.public_id, 200, {"saved": len(sheet), "leftMs": attempt.exam.left_ms()})


@require_POST
@for_its_candidate
def submit(request: HttpRequest, attempt: Attempt) -> HttpResponse:
    """Hand in an attempt, with the answers in the body or those saved before; 200 with the score, or 202."""
    sheet, mode = read_sheet(request), read_mode(request)
    counts = in_time(attempt, sheet)
    status, body, headers = MODES[mode](attempt, counts)
    return tell(request, attempt.public_id, status, {**body, **({"late": LATE} if counts != sheet else {})}, headers)


Said = tuple[int, dict[str, Any], dict[str, str]]


def submit_before(attempt: Attempt, answers: Answers | None) -> Said:
    """Grade within the request."""
    try:
        return 200, {"score": grade_now(attempt, answers)}, {}
    except TransientError as fault:
        return 503, {"error": str(fault)}, {"Retry-After": str(SCORING_RETRY_AFTER_S)}
    except NonRetryableError as fault:
        return 502, {"error": str(fault)}, {}


def submit_after(attempt: Attempt, answers: Answers | None) -> Said:
    """Grade in a job, and answer at once."""
    grade_later(attempt, answers)
    return 202, {"attemptId": attempt.public_id, "status": Attempt.Status.GRADING}, {}


MODES = {"before": submit_before, "after": submit_after}


def read_mode(request: HttpRequest) -> str:
    mode = request.GET.get("mode") or (request.POST.get("mode") if sent_by_form(request) else None) or "after"
    if mode not in MODES:
        raise BadRequest("mode must be before or after")
    return mode


def tell(
    request: HttpRequest, public_id: str, status: int, body: dict[str, Any], headers: dict[str, str] | None = None
) -> HttpResponse:
    """Answer a browser's form by showing the paper again with a message, everything else in JSON."""
    wants = request.get_preferred_type(["application/json", "text/html"])
    if wants != "text/html" or not sent_by_form(request):
        return as_json(status, body, headers)
    if status == 404:
        raise Http404
    if words := body.get("error") or body.get("late"):
        messages.error(request, words)
    return redirect("examhall:paper", public_id)


def as_json(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> JsonResponse:
    """Answer without blanks between the fields, byte for byte what the old service sent."""
    return JsonResponse(body, status=status, headers=headers, json_dumps_params={"separators": (",", ":")})
