"""Reads an answer sheet from a request, be it a form or JSON; without it a NUL or a nest of brackets would be a 500."""

import json
from typing import Any

from django.http import HttpRequest

from examhall.grading import is_sheet
from examhall.models import SHEET
from examhall.submission import Answers

# A paper of a few hundred questions is a tenth of this.
MOST_BYTES = 64 * 1024
FIELD = "answer-"
# In each form of ours: where nothing is ticked, no other field would tell an empty sheet from a body that is no sheet.
MARK = "sheet"


class BadRequest(Exception):
    """What the client sent cannot be used; the text says what would be right."""

    status = 400


class TooLarge(BadRequest):
    """The body is larger than any sheet."""

    status = 413


class LengthMissing(BadRequest):
    """The body comes in pieces, without its length, and a WSGI server's request then reads as one without a body."""

    status = 411


def read_sheet(request: HttpRequest) -> Answers | None:
    """Return the answers in the body, None where there is no body or it has none.

    :raises BadRequest: it cannot be read; says what would be right.
    """
    if "Transfer-Encoding" in request.headers:
        raise LengthMissing("the body must be sent with its Content-Length, not in chunks")
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > MOST_BYTES:
        raise TooLarge(f"the body must have {MOST_BYTES} bytes at most")
    answers = from_form(request) if sent_by_form(request) else from_json(request.body)
    if answers is None:
        return None
    if not is_sheet(answers):
        raise BadRequest(f"answers must {SHEET}")
    return answers


def sent_by_form(request: HttpRequest) -> bool:
    return request.content_type in ("application/x-www-form-urlencoded", "multipart/form-data")


def from_form(request: HttpRequest) -> Any:
    """Return what the fields of a form say; what is not ticked is not in it, so an empty sheet has the mark alone."""
    if not request.POST and not request.FILES:
        return None
    fields = {name.removeprefix(FIELD): request.POST.getlist(name) for name in request.POST if name.startswith(FIELD)}
    if not fields and MARK not in request.POST:
        raise BadRequest(f"a form must have fields such as {FIELD}1, or {MARK} if none is answered; JSON needs its type")
    return {number: "".join(ticked) for number, ticked in fields.items()}


def from_json(body: bytes) -> Any:
    try:
        return dict(json.loads(body)).get("answers") if body else None
    except (ValueError, TypeError, RecursionError) as fault:
        raise BadRequest('the body must be a JSON object such as {"answers": {"1": "b"}}') from fault
