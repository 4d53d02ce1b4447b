"""The same steps for programs, in JSON: hold a seat, ask after a hold, buy it. Whoever has the id of a hold may buy its seat.

No cookie stands for anybody here, so a forged request would borrow no one's rights: nothing for a CSRF token to protect.
"""

import json
from uuid import UUID

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from ticketing.box_office import HoldOver, SeatTaken, buy, place_hold
from ticketing.forms import HoldForm
from ticketing.models import Event, Hold
from ticketing.views import find_seat


@csrf_exempt
@require_POST
def hold(request: HttpRequest, event_id: int) -> JsonResponse:
    """Hold a seat: 201 with the hold and the ids of its jobs; 409 when it is taken."""
    shown = Event.objects.filter(pk=event_id).first()
    if shown is None:
        return problem(404, f"there is no event {event_id}")
    try:
        form = HoldForm(read_object(request))
    except RequestDataTooBig:
        return problem(413, "the body is too large: a seat and a holder are all that is needed")
    return hold_as_asked(shown, form) if form.is_valid() else problem(400, form.first_error())


def hold_as_asked(shown: Event, form: HoldForm) -> JsonResponse:
    seat = find_seat(shown, form.cleaned_data["seat"])
    if seat is None:
        return problem(404, f"there is no seat {form.cleaned_data['seat']}")
    try:
        placed, jobs = place_hold(seat, form.cleaned_data["holder"])
    except SeatTaken as taken:
        return problem(409, str(taken))
    return JsonResponse({**as_json(placed), "releaseJob": jobs.release, "renderJob": jobs.render}, status=201)


@require_safe
def hold_status(request: HttpRequest, hold_id: UUID) -> JsonResponse:
    found = Hold.objects.select_related("seat").filter(pk=hold_id).first()
    return JsonResponse(as_json(found)) if found else problem(404, f"there is no hold {hold_id}")


@csrf_exempt
@require_POST
def purchase(request: HttpRequest, hold_id: UUID) -> JsonResponse:
    """Buy the held seat: 200, also when it was bought by this hold before; 409 when the hold is over."""
    held = Hold.objects.select_related("seat__event").filter(pk=hold_id).first()
    if held is None:
        return problem(404, f"there is no hold {hold_id}")
    try:
        render_job = buy(held)
    except HoldOver as over:
        return problem(409, str(over))
    held.refresh_from_db(fields=["status"])
    return JsonResponse({**as_json(held), "renderJob": render_job})


def read_object(request: HttpRequest) -> dict[str, object]:
    """Return the JSON object of the body; anything else counts as an empty one, which the form then refuses by field."""
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def as_json(shown: Hold) -> dict[str, str]:
    body = {"holdId": str(shown.pk), "seat": str(shown.seat), "status": str(shown.status)}
    return {**body, "expiresAt": shown.expires_at.isoformat()}


def problem(status: int, says: str) -> JsonResponse:
    return JsonResponse({"error": says}, status=status)
