"""Queues and jobs in the admin: numbers, limits, and one job by its id.

Without it a queue that is paused, held off or full of old jobs would look like workers that are slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.views.decorators.http import require_POST

from queue_kit.django.admin.desk import Desk, desk_with
from queue_kit.django.admin.hour import HOUR_MS, summarise
from queue_kit.django.admin.jobs import JobPages
from queue_kit.django.admin.keys import KeyPages
from queue_kit.django.models import Queue
from queue_kit.states import State
from queue_kit.store.census import JobView
from queue_kit.store.roster import WorkerView
from queue_kit.store.switches import QueueLimits
from queue_kit.worker.operating import control

_MOST: Final = 2**31 - 1
#: The longest that a queue is held off from here: a day.
_HOLD_MOST_S: Final = 86_400


def _number(label: str, most: int = _MOST) -> forms.IntegerField:
    return forms.IntegerField(required=False, min_value=1, max_value=most, label=label)


class LimitsForm(forms.Form):
    """The limits of a queue over all workers; an empty field lifts one."""

    concurrency = _number("Jobs at once")
    rate_max = _number("Starts")
    rate_ms = _number("in each window of, ms")

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not self.errors and (given["rate_max"] is None) != (given["rate_ms"] is None):
            raise forms.ValidationError("A rate needs both: starts, and the window in milliseconds.")
        return given

    @property
    def rate(self) -> tuple[int, int] | None:
        starts, window_ms = self.cleaned_data["rate_max"], self.cleaned_data["rate_ms"]
        return None if starts is None else (starts, window_ms)


class HoldForm(forms.Form):
    """For how long nothing is given out; 0 ends it."""

    seconds = forms.IntegerField(min_value=0, max_value=_HOLD_MOST_S, label="Seconds")


@dataclass(frozen=True, slots=True)
class Row:
    """One queue, as the list shows it."""

    name: str
    counts: list[tuple[str, int]]
    oldest: JobView | None
    rules: QueueLimits
    dead: int
    consumers: int


@admin.register(Queue)
class QueueAdmin(JobPages, KeyPages):
    """The list of queues, one queue and its last hour, and its buttons; with the pages of jobs and of keys."""

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.list_view, "changelist"),
            self.route("workers/", self.workers_view, "workers"),
            self.route("<str:queue>/change/", self.queue_view, "change"),
            self.route("<str:queue>/act/", require_POST(self.act_view), "act"),
            self.route("<str:queue>/hour/", self.hour_view, "hour"),
            self.route("<str:queue>/key/", self.key_view, "key"),
            self.route("jobs/find/", self.find_view, "find"),
            self.route("jobs/<str:job_id>/show/", self.job_view, "job"),
            self.route("jobs/<str:job_id>/do/", require_POST(self.job_act_view), "job_act"),
        ]

    # -- reading ------------------------------------------------------------------------------------------------------

    def list_view(self, request: HttpRequest) -> HttpResponse:
        desk = Desk()
        workers = desk.census.workers()
        rows = [self._row(desk, queue, workers) for queue in desk.census.queues()]
        return self.show(request, "queues.html", "Queues", rows=rows, states=list(State), now_ms=desk.census.now_ms())

    def workers_view(self, request: HttpRequest) -> HttpResponse:
        census = Desk().census
        return self.show(request, "workers.html", "Workers", workers=census.workers(), now_ms=census.now_ms())

    def queue_view(self, request: HttpRequest, queue: str) -> HttpResponse:
        desk = desk_with(queue)
        asked = request.GET.get("state", "")
        state = State(asked) if asked in set(State) else State.WAITING
        row = self._row(desk, queue, desk.census.workers())
        return self._queue_page(request, row, state=state, jobs=desk.census.jobs(queue, state))

    def hour_view(self, request: HttpRequest, queue: str) -> HttpResponse:
        census = desk_with(queue).census
        now_ms = census.now_ms()
        hour = summarise(census.events(queue, str(now_ms - HOUR_MS)), now_ms)
        return self.show(request, "hour.html", f"The last hour of {queue}", queue=queue, hour=hour)

    def _queue_page(self, request: HttpRequest, row: Row, status: int = 200, **context: Any) -> HttpResponse:
        starts, window_ms = row.rules.rate or (None, None)
        rules = {"concurrency": row.rules.concurrency, "rate_max": starts, "rate_ms": window_ms}
        defaults = {"limits": LimitsForm(initial=rules), "hold": HoldForm(initial={"seconds": 60})}
        return self.show(
            request, "queue.html", f"Queue {row.name}", status=status, row=row, may_control=self.may(request, "control"),
            now_ms=Desk().census.now_ms(), history=self.history(row.name), **{**defaults, **context},
        )  # fmt: skip

    def _row(self, desk: Desk, queue: str, workers: Sequence[WorkerView]) -> Row:
        census = desk.census
        counts = [(str(state), number) for state, number in census.counts(queue).items()]
        rules = control.limits(queue, desk.app)
        consumers = sum(worker.consumes(queue) for worker in workers)
        return Row(queue, counts, census.oldest_waiting(queue), rules, census.dead_letter_count(queue), consumers)

    # -- acting on a queue --------------------------------------------------------------------------------------------

    def act_view(self, request: HttpRequest, queue: str) -> HttpResponse:
        self.require(request, "control")
        desk = desk_with(queue)
        acts = {
            "pause": self._pause, "resume": self._resume, "limit": self._limit, "hold": self._hold, "drain": self._drain,
        }  # fmt: skip
        act = acts.get(request.POST.get("action", ""))
        if act is None:
            return self.say(request, 400, "That cannot be done", f"action: one of {', '.join(acts)} is needed")
        return act(request, desk, queue)

    def _pause(self, request: HttpRequest, desk: Desk, queue: str) -> HttpResponse:
        control.pause(queue, desk.app)
        return self._done(request, queue, "Paused.")

    def _resume(self, request: HttpRequest, desk: Desk, queue: str) -> HttpResponse:
        control.resume(queue, desk.app)
        return self._done(request, queue, "Resumed.")

    def _limit(self, request: HttpRequest, desk: Desk, queue: str) -> HttpResponse:
        form = LimitsForm(request.POST)
        if not form.is_valid():
            return self._again(request, desk, queue, limits=form)
        control.limit(queue, concurrency=form.cleaned_data["concurrency"], rate=form.rate, app=desk.app)
        rate = f"{form.rate[0]} in {form.rate[1]} ms" if form.rate else "none"
        return self._done(
            request, queue, f"Limits set: at once {form.cleaned_data['concurrency'] or 'any'}, rate {rate}."
        )

    def _hold(self, request: HttpRequest, desk: Desk, queue: str) -> HttpResponse:
        form = HoldForm(request.POST)
        if not form.is_valid():
            return self._again(request, desk, queue, hold=form)
        seconds = form.cleaned_data["seconds"]
        control.hold_off(queue, seconds * 1000, desk.app)
        return self._done(request, queue, f"Held off for {seconds} s." if seconds else "Held off no longer.")

    def _drain(self, request: HttpRequest, desk: Desk, queue: str) -> HttpResponse:
        delayed = "delayed" in request.POST
        if "sure" not in request.POST:
            counts = desk.census.counts(queue)
            number = counts[State.WAITING] + (counts[State.DELAYED] if delayed else 0)
            text = f"Remove {number} jobs of {queue} for good, with their history? What runs goes on."
            carried = [("action", "drain"), *([("delayed", "on")] if delayed else [])]
            return self.ask(request, "Drain queue", text, carried, self.address("change", queue))
        gone = control.drain(queue, delayed=delayed, app=desk.app)
        return self._done(request, queue, f"Drained: {gone} jobs removed.")

    def _again(self, request: HttpRequest, desk: Desk, queue: str, **forms_: forms.Form) -> HttpResponse:
        row = self._row(desk, queue, desk.census.workers())
        jobs = desk.census.jobs(queue, State.WAITING)
        return self._queue_page(request, row, 400, state=State.WAITING, jobs=jobs, **forms_)

    def _done(self, request: HttpRequest, queue: str, what: str) -> HttpResponse:
        self.note(request, [queue], CHANGE, what)
        self.message_user(request, f"{queue}: {what}", messages.SUCCESS)
        return self.back(self.address("change", queue))
