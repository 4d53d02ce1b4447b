"""Dead letters in the admin: find them, read one whole, replay, discard, export.

Without it a job that failed for good would be seen by whoever has a shell, and nobody would know who let it run again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict, StreamingHttpResponse
from django.urls import URLPattern
from django.views.decorators.http import require_POST

from queue_kit.django.admin.acts import ActForm, Outcome, Targets, targets
from queue_kit.django.admin.desk import Desk
from queue_kit.django.admin.filters import FilterForm
from queue_kit.django.admin.pages import RedisAdmin
from queue_kit.django.admin.timeline import draw
from queue_kit.django.models import DeadLetter
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.replaying import Done

_PAGE: Final = 50
_VERBS: Final = ("replay", "discard", "export")


@admin.register(DeadLetter)
class DeadLetterAdmin(RedisAdmin):
    """The list, one dead letter, and what is done to them."""

    def get_urls(self) -> list[URLPattern]:
        return [
            self.route("", self.list_view, "changelist"),
            self.route("act/", require_POST(self.act_view), "act"),
            self.route("<str:letter_id>/change/", self.detail_view, "change"),
        ]

    def _verbs(self, request: HttpRequest) -> dict[str, bool]:
        return {verb: self.may(request, verb) for verb in _VERBS}

    # -- reading ------------------------------------------------------------------------------------------------------

    def list_view(self, request: HttpRequest) -> HttpResponse:
        form, letters = FilterForm(request.GET), Desk().letters
        if not form.is_valid():
            form.offer(letters.tally())
            return self.show(request, "letters.html", "Dead letters", status=400, form=form, may={}, total=0)
        number = _page_number(request.GET)
        page, counts = letters.survey(form.wanted, offset=(number - 1) * _PAGE, limit=_PAGE)
        form.offer(counts)
        last = max(1, -(-page.total // _PAGE))
        return self.show(
            request, "letters.html", "Dead letters", form=form, letters=page.letters, total=page.total, may=self._verbs(request),
            causes=[(cause, n, _query(form, cause=cause)) for cause, n in counts["cause"].most_common()],
            number=number, last=last, first_shown=(number - 1) * _PAGE + 1, filtered=bool(form.carried()),
            before=_query(form, page=min(number - 1, last)) if number > 1 else "",
            after=_query(form, page=number + 1) if number < last else "",
        )  # fmt: skip

    def detail_view(self, request: HttpRequest, letter_id: str) -> HttpResponse:
        desk = Desk()
        letter = desk.letters.get(letter_id)
        job = desk.census.job(letter.job_id)
        events = desk.timeline(letter.job_id, letter.added_at_ms)
        return self.show(
            request, "letter.html", "Dead letter", letter=letter, job=job, runs=desk.runs(letter.job_id, job), events=events,
            timeline=draw(events), may=self._verbs(request), history=self.history(letter_id),
        )  # fmt: skip

    # -- acting -------------------------------------------------------------------------------------------------------

    def act_view(self, request: HttpRequest) -> HttpResponseBase:
        act, wanted = ActForm(request.POST), FilterForm(request.POST)
        if not (act.is_valid() and wanted.is_valid()):
            faults = {**act.errors, **wanted.errors}
            said = " ".join(f"{name.strip('_')}: {' '.join(map(str, why))}" for name, why in faults.items())
            return self.say(request, 400, "That cannot be done", said)
        action = act.cleaned_data["action"]
        self.require(request, action)
        letters = Desk().letters
        meant = targets(request.POST, wanted, letters, act)
        if not meant.ids and not act.number("done"):
            self.message_user(request, "No dead letter is meant: tick some, or choose others.", messages.WARNING)
            return self.back(self.address("changelist"))
        if action == "export":
            return self._export(request, letters, meant)
        do = self._replay if action == "replay" else self._discard
        return (
            do(request, letters, meant, act) if act.cleaned_data["sure"] else self._plan(request, letters, meant, act)
        )

    def _plan(self, request: HttpRequest, letters: DeadLetters, meant: Targets, act: ActForm) -> HttpResponse:
        """Say what would become of them, and ask."""
        action = act.cleaned_data["action"]
        try_out = partial(letters.replay_each, by="") if action == "replay" else letters.discard_each
        outcome = Outcome.of(list(try_out(meant.ids, dry_run=True)))
        return self.show(
            request, "plan.html", f"{action.capitalize()} dead letters", action=action, outcome=outcome, total=len(meant.ids),
            carried=meant.carried, form=act,
        )  # fmt: skip

    def _replay(self, request: HttpRequest, letters: DeadLetters, meant: Targets, act: ActForm) -> HttpResponse:
        rate = act.cleaned_data["rate"]
        batch = meant.batch(rate)
        by = request.user.get_username()
        outcome = self._each(request, letters.replay_each(batch, by, rate_per_s=rate), CHANGE, f"Replayed by {by}.")
        return self._after(request, meant, batch, outcome, act)

    def _discard(self, request: HttpRequest, letters: DeadLetters, meant: Targets, act: ActForm) -> HttpResponse:
        batch = meant.batch(None)
        outcome = self._each(request, letters.discard_each(batch), DELETION, "Discarded.")
        return self._after(request, meant, batch, outcome, act)

    def _each(self, request: HttpRequest, results: Iterable[Done], flag: int, what: str) -> Outcome:
        """Go through what is done, and write it into the log, also what was done before Redis went away."""
        seen: list[Done] = []
        try:
            seen.extend(results)
        finally:
            self.note(request, Outcome.of(seen).done, flag, what)
        return Outcome.of(seen)

    def _after(
        self, request: HttpRequest, meant: Targets, batch: list[str], outcome: Outcome, act: ActForm
    ) -> HttpResponse:
        """The page that goes on with those that are left, or the list again."""
        action, left = act.cleaned_data["action"], len(meant.ids) - len(batch)
        done, skip = act.number("done") + len(outcome.done), act.number("skip") + outcome.refused
        if left:
            return self._go_on(request, meant, len(batch), act, {"done": done, "skip": skip, "left": left})
        if skip:
            reasons = "; ".join(why for why, _ in outcome.reasons)
            self.message_user(request, f"{skip} left as they are. {reasons}", messages.WARNING)
        self.message_user(request, f"{done} {action}ed.", messages.SUCCESS)
        return self.back(self._where(request, batch))

    def _go_on(
        self, request: HttpRequest, meant: Targets, taken: int, act: ActForm, numbers: dict[str, int]
    ) -> HttpResponse:
        rate = act.cleaned_data["rate"]
        if rate:
            time.sleep(1 / rate)  # between two requests as between two of one
        ticked = [pair for pair in meant.carried if pair[0] == "id"]
        carried = ticked[taken:] or meant.carried
        counts = [(name, str(numbers[name])) for name in ("done", "skip")]
        carried = [*carried, *counts, ("sure", "on"), ("rate", str(rate or ""))]
        title = f"{act.cleaned_data['action'].capitalize()}ing"
        return self.show(request, "going.html", title, action=act.cleaned_data["action"], carried=carried, **numbers)

    def _where(self, request: HttpRequest, batch: list[str]) -> str:
        """The page that a button stood on: one dead letter's own, if it is still there, or the list."""
        stays = request.POST.get("from") == "detail" and request.POST.get("action") == "replay" and len(batch) == 1
        return self.address("change", batch[0]) if stays else self.address("changelist")

    def _export(self, request: HttpRequest, letters: DeadLetters, meant: Targets) -> HttpResponseBase:
        # Asked for before the answer begins: after that it could no longer say that Redis is away.
        there = Outcome.of(list(letters.discard_each(meant.ids, dry_run=True))).done
        if not there:
            self.message_user(request, "None of them is there any more.", messages.WARNING)
            return self.back(self.address("changelist"))
        self.note(request, there, CHANGE, "Exported.")
        answer = StreamingHttpResponse(_lines(letters, there), content_type="application/x-ndjson")
        answer.headers["Content-Disposition"] = 'attachment; filename="dead-letters.jsonl"'
        return answer


def _lines(letters: DeadLetters, ids: list[str]) -> Iterator[bytes]:
    # Half a surrogate pair, which a payload may hold, is written as the escape that JSON has for it.
    for letter in letters.read(ids):
        yield f"{letter.as_line()}\n".encode("utf-8", "backslashreplace")


def _page_number(given: Any) -> int:
    text = given.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 7 else 1


def _query(form: FilterForm, **changed: Any) -> str:
    query = QueryDict(mutable=True)
    for name, value in form.carried():
        query[name] = value
    for name, value in changed.items():
        query[name] = str(value)
    return query.urlencode()
