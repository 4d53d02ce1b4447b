"""The pages of an event and the same steps for programs: see the map, hold a seat, buy it."""

import json
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from ticketing.box_office import HoldOver, SeatTaken, buy, place_hold
from ticketing.forms import HoldForm
from ticketing.models import Event, Hold, Seat, SeatMap
from ticketing.seats import HoldStatus, SeatState, split_label


@require_GET
def index(request: HttpRequest) -> HttpResponse:
    return render(request, "ticketing/index.html", {"events": Event.objects.select_related("venue")})


@require_GET
def event(request: HttpRequest, event_id: int) -> HttpResponse:
    """Show the drawn map, a form to hold one of the free seats, and the holds in force."""
    shown = get_object_or_404(Event.objects.select_related("venue", "seat_map"), pk=event_id)
    now = timezone.now()
    free = [seat.label for row in shown.plan(now).rows for seat in row if seat.state is SeatState.FREE]
    holds = Hold.objects.filter(seat__event=shown, status=HoldStatus.HELD, expires_at__gt=now).select_related("seat")
    return render(request, "ticketing/event.html", {"event": shown, "free": free, "holds": holds})


@require_GET
def seat_map(request: HttpRequest, event_id: int) -> HttpResponse:
    """Serve the stored drawing; a client that has this version already gets 304."""
    drawn = get_object_or_404(SeatMap, event_id=event_id)
    etag = f'"{drawn.version}-{drawn.drawn_at.timestamp():.6f}"'
    if request.headers.get("If-None-Match") == etag:
        return HttpResponseNotModified(headers={"ETag": etag})
    return HttpResponse(drawn.svg, content_type="image/svg+xml", headers={"ETag": etag, "Cache-Control": "no-cache"})


@require_POST
def hold_by_form(request: HttpRequest, event_id: int) -> HttpResponse:
    """Hold a seat from the page, and go back to it with what came of it."""
    shown = get_object_or_404(Event, pk=event_id)
    form = HoldForm(request.POST)
    try:
        if not form.is_valid():
            messages.error(request, form.first_error())
        else:
            hold, _ = place_hold(find_seat(shown, form.cleaned_data["seat"]), form.cleaned_data["holder"])
            messages.success(request, f"Seat {hold.seat} is held for {hold.holder}.")
    except SeatTaken as taken:
        messages.error(request, f"Sorry: {taken}.")
    return redirect("ticketing:event", event_id)


# No cookie stands for anybody here, so a forged request would borrow no one's rights: nothing for a CSRF token to protect.
@csrf_exempt
@require_POST
def hold(request: HttpRequest, event_id: int) -> JsonResponse:
    """Hold a seat: 201 with the hold and the ids of its jobs; 409 when it is taken."""
    shown = Event.objects.filter(pk=event_id).first()
    if shown is None:
        return problem(404, f"there is no event {event_id}")
    form = HoldForm(read_object(request))
    if not form.is_valid():
        return problem(400, form.first_error())
    try:
        placed, jobs = place_hold(find_seat(shown, form.cleaned_data["seat"]), form.cleaned_data["holder"])
    except Http404 as missing:
        return problem(404, str(missing))
    except SeatTaken as taken:
        return problem(409, str(taken))
    return JsonResponse({**as_json(placed), "releaseJob": jobs.release, "renderJob": jobs.render}, status=201)


@require_GET
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


def find_seat(shown: Event, label: str) -> Seat:
    row, number = split_label(label)
    seat = Seat.objects.select_related("event").filter(event=shown, row=row, number=number).first()
    if seat is None:
        raise Http404(f"there is no seat {label}")
    return seat


def read_object(request: HttpRequest) -> dict[str, object]:
    """Return the JSON object of the body; anything else counts as an empty one, which the form then refuses by field."""
    try:
        body = json.loads(request.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def as_json(shown: Hold) -> dict[str, str]:
    body = {"holdId": str(shown.pk), "seat": str(shown.seat), "status": str(shown.status)}
    return {**body, "expiresAt": shown.expires_at.isoformat()}


def problem(status: int, says: str) -> JsonResponse:
    return JsonResponse({"error": says}, status=status)
