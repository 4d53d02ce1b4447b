"""The pages of an event: see the map, hold seats, buy them or give them back. Plain forms do all of it; scripts add comfort."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_safe

from queue_kit import QueueUnavailable
from ticketing.box_office import HoldOver, SeatTaken, TooMany, buy, give_back, place_hold, redraw
from ticketing.forms import HoldForm
from ticketing.live import glance, named_visitor, visitor_of
from ticketing.models import Event, Hold, Seat, SeatMap
from ticketing.seats import split_label

HOLDER = "ticketing_holder"
QUEUE_AWAY = "Seats cannot be held just now: the job queue does not answer. Nothing was changed; try again in a few seconds."
RETRY_AFTER_S = 2


class Unreadable(Exception):
    """What was sent names nothing here; the text says what would be right."""


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    return render(request, "ticketing/index.html", {"events": Event.objects.select_related("venue")})


@require_safe
def event(request: HttpRequest, event_id: int) -> HttpResponse:
    return event_page(request, find_event(event_id))


@require_safe
def live(request: HttpRequest, event_id: int) -> HttpResponse:
    """Give what changes on an event's page; who has it already gets 304."""
    seen = glance(find_event(event_id), visitor_of(request))
    headers = {"ETag": f'"{seen.tag}"', "Cache-Control": "private, no-cache"}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return HttpResponseNotModified(headers=headers)
    return HttpResponse(render_to_string("ticketing/live.html", {"seen": seen}, request), headers=headers)


@require_safe
def seat_map(request: HttpRequest, event_id: int) -> HttpResponse:
    """Serve the stored drawing; a client that has this version already gets 304."""
    drawn = get_object_or_404(SeatMap, event=find_event(event_id))
    etag = f'"{drawn.version}-{drawn.drawn_at.timestamp():.6f}"'
    if request.headers.get("If-None-Match") == etag:
        return HttpResponseNotModified(headers={"ETag": etag})
    return HttpResponse(drawn.svg, content_type="image/svg+xml", headers={"ETag": etag, "Cache-Control": "no-cache"})


def by_form(act: Callable[[HttpRequest, Event], str]) -> Callable[..., HttpResponse]:
    """Make a view of an act that says what it did: back to the page if it worked, else the page with the reason.

    The address of a refusal may be reloaded, or a seat be followed from there: to the event's page.
    """

    @require_http_methods(["GET", "HEAD", "POST"])
    @wraps(act)
    def view(request: HttpRequest, event_id: int) -> HttpResponse:
        shown = find_event(event_id)
        if request.method != "POST":
            return redirect(f"{reverse('ticketing:event', args=[event_id])}?{request.GET.urlencode()}")
        try:
            messages.success(request, act(request, shown))
        except Unreadable as fault:
            return refusal(request, shown, 400, str(fault))
        except (SeatTaken, TooMany, HoldOver) as lost:
            return refusal(request, shown, 409, f"Sorry: {lost}.")
        except QueueUnavailable:
            return refusal(request, shown, 503, QUEUE_AWAY)
        return redirect("ticketing:event", event_id)

    return view


@by_form
def hold(request: HttpRequest, shown: Event) -> str:
    form = HoldForm(request.POST)
    if not form.is_valid():
        raise Unreadable(form.first_error())
    request.session[HOLDER] = form.cleaned_data["holder"]
    seat = find_seat(shown, form.cleaned_data["seat"])
    if seat is None:
        raise Unreadable(f"there is no seat {form.cleaned_data['seat']}")
    visitor = named_visitor(request)
    try:
        held, _ = place_hold(seat, form.cleaned_data["holder"], visitor)
    except SeatTaken:
        # By this visitor's own first click, it may be.
        if Hold.objects.in_force().filter(seat=seat, visitor=visitor).exists():
            return holding(seat, f"You hold seat {seat} already.")
        raise
    return holding(held.seat, f"Seat {held.seat} is held for {held.holder}.")


def holding(seat: Seat, says: str) -> str:
    """Say what the page's script takes away again once the visitor holds the seat no longer."""
    return format_html('<span data-holds="{}">{}</span>', seat, says)


@by_form
def purchase(request: HttpRequest, shown: Event) -> str:
    chosen = own_holds(request, shown)
    buy(*chosen)
    return f"Sold to you: {', '.join(str(hold.seat) for hold in chosen)}. Enjoy the evening!"


@by_form
def release(request: HttpRequest, shown: Event) -> str:
    freed = [str(hold.seat) for hold in own_holds(request, shown) if give_back(hold)]
    if not freed:
        raise HoldOver("this hold is over already")
    redraw(shown.pk)
    return f"Given back: {', '.join(freed)}."


def own_holds(request: HttpRequest, shown: Event) -> list[Hold]:
    """Return the holds that the form names; those of other visitors are as unknown as those that never were."""
    wanted = set(request.POST.getlist("hold"))
    mine = Hold.objects.filter(visitor=visitor_of(request), visitor__isnull=False, seat__event=shown)
    in_order = mine.select_related("seat__event").order_by("seat__row", "seat__number")
    chosen = [hold for hold in in_order if str(hold.pk) in wanted]
    if not chosen or len(chosen) < len(wanted):
        raise Unreadable("hold must name seats that you hold")
    return chosen


def refusal(request: HttpRequest, shown: Event, status: int, says: str) -> HttpResponse:
    messages.error(request, says)
    answer = event_page(request, shown, status)
    if status == 503:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def event_page(request: HttpRequest, shown: Event, status: int = 200) -> HttpResponse:
    asked: dict[str, Any] = {"seat": request.GET.get("seat", "")[:4], "holder": request.session.get(HOLDER, "")}
    seen = glance(shown, visitor_of(request))
    return render(request, "ticketing/event.html", {"event": shown, "seen": seen, **asked}, status=status)


def find_event(event_id: int) -> Event:
    return get_object_or_404(Event.objects.select_related("venue"), pk=event_id)


def find_seat(shown: Event, label: str) -> Seat | None:
    row, number = split_label(label)
    return Seat.objects.select_related("event").filter(event=shown, row=row, number=number).first()
