"""Submitting an attempt and asking after it, over HTTP.

`submit` shows both ways: `?mode=before` makes the candidate wait for the grading, which at exam close means timeouts;
`mode=after`, the default, answers at once and leaves the work to a job.
"""

import json
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from examhall.models import Attempt, Exam
from examhall.submission import AlreadyHandedIn, Answers, grade_later, grade_now
from queue_kit import NonRetryableError, TransientError

SCORING_RETRY_AFTER_S = 5


class BadRequest(Exception):
    """What the client sent cannot be used; the text says what would be right."""


@require_GET
def index(request: HttpRequest) -> HttpResponse:
    exams = Exam.objects.prefetch_related("attempts")
    return render(request, "examhall/index.html", {"exams": exams})


@require_GET
def paper(request: HttpRequest, public_id: str) -> HttpResponse:
    """Show one attempt: the questions, what was answered, and the score once it is there."""
    attempt = get_object_or_404(Attempt.objects.select_related("exam"), public_id=public_id)
    lines = [(question, attempt.answers.get(str(question.number), "")) for question in attempt.exam.questions.all()]
    return render(request, "examhall/paper.html", {"attempt": attempt, "lines": lines})


@require_GET
def status(request: HttpRequest, public_id: str) -> JsonResponse:
    attempt = Attempt.objects.filter(public_id=public_id).first()
    if attempt is None:
        return no_such_attempt(public_id)
    body = {"attemptId": attempt.public_id, "status": attempt.status, "score": attempt.score}
    return as_json(200, {**body, "jobId": attempt.grading_job or None})


# No cookie stands for anybody here, so a forged request would borrow no one's rights: nothing for a CSRF token to protect.
@csrf_exempt
@require_POST
def submit(request: HttpRequest, public_id: str) -> JsonResponse:
    """Hand in an attempt, with the answers in the body or those saved before; 200 with the score, or 202."""
    attempt = Attempt.objects.select_related("exam").filter(public_id=public_id).first()
    if attempt is None:
        return no_such_attempt(public_id)
    try:
        return MODES[read_mode(request)](attempt, read_answers(request))
    except BadRequest as fault:
        return as_json(400, {"error": str(fault)})
    except AlreadyHandedIn as conflict:
        return as_json(409, {"error": str(conflict)})


def submit_before(attempt: Attempt, answers: Answers | None) -> JsonResponse:
    """Grade within the request."""
    try:
        return as_json(200, {"score": grade_now(attempt, answers)})
    except TransientError as fault:
        return as_json(503, {"error": str(fault)}, {"Retry-After": str(SCORING_RETRY_AFTER_S)})
    except NonRetryableError as fault:
        return as_json(502, {"error": str(fault)})


def submit_after(attempt: Attempt, answers: Answers | None) -> JsonResponse:
    """Grade in a job, and answer at once."""
    grade_later(attempt, answers)
    return as_json(202, {"attemptId": attempt.public_id, "status": Attempt.Status.GRADING})


MODES = {"before": submit_before, "after": submit_after}


def read_mode(request: HttpRequest) -> str:
    mode = request.GET.get("mode", "after")
    if mode not in MODES:
        raise BadRequest("mode must be before or after")
    return mode


def read_answers(request: HttpRequest) -> Answers | None:
    """Return the answers in the body, None where there is no body or it has none."""
    if not request.body:
        return None
    try:
        answers = dict(json.loads(request.body)).get("answers")
    except (ValueError, TypeError) as fault:
        raise BadRequest('the body must be a JSON object such as {"answers": {"1": "b"}}') from fault
    if answers is None:
        return None
    if not isinstance(answers, dict) or not all(is_answer(number, given) for number, given in answers.items()):
        raise BadRequest('answers must map question numbers to letters, such as {"1": "b", "2": "ac"}')
    return answers


def is_answer(number: str, given: object) -> bool:
    return number.isdecimal() and isinstance(given, str) and len(given) <= 20


def no_such_attempt(public_id: str) -> JsonResponse:
    return as_json(404, {"error": f"there is no attempt {public_id}"})


def as_json(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> JsonResponse:
    """Answer without blanks between the fields, byte for byte what the old service sent."""
    return JsonResponse(body, status=status, headers=headers, json_dumps_params={"separators": (",", ":")})
