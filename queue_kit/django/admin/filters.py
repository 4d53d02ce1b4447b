"""Which dead letters a page means: the form of the filter, and what is carried from page to page.

Without it the list, the dry run and the replay could each mean others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django import forms

from queue_kit.states import Cause
from queue_kit.store.letters import LetterFilter

_LONGEST: Final = 300
_REPLAYED: Final = {"": None, "yes": True, "no": False}
#: Fields whose values are offered with their number, and what :meth:`DeadLetters.tally` calls them.
_OFFERED: Final = {"queue": "queue", "name": "name", "error": "error_class"}
#: Carried from the dry run to the act: nothing that has failed since is meant.
NEWEST: Final = "newest_ms"


def _text(label: str, **options: Any) -> forms.CharField:
    return forms.CharField(required=False, max_length=_LONGEST, label=label, **options)


def _moment(label: str) -> forms.DateTimeField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
    return forms.DateTimeField(required=False, label=label, widget=widget)


class FilterForm(forms.Form):
    """What a user may ask for. All that is given must fit."""

    text = _text("Id, correlation id or reason", widget=forms.TextInput(attrs={"type": "search"}))
    queue = _text("Queue", widget=forms.Select)
    name = _text("Task", widget=forms.Select)
    cause = forms.ChoiceField(required=False, choices=[("", "all"), *((c, c) for c in Cause)], label="Cause")
    error = _text("Error class", widget=forms.Select)
    since = _moment("Failed since")
    until = _moment("Failed before")
    replayed = forms.ChoiceField(
        required=False, choices=[("", "all"), ("no", "not yet"), ("yes", "replayed")], label="Replayed"
    )
    newest_ms = forms.IntegerField(required=False, min_value=0, max_value=2**53, widget=forms.HiddenInput)

    wanted = LetterFilter()

    def clean(self) -> dict[str, Any]:
        """Make the filter of it."""
        given = super().clean() or {}
        if self.errors:
            return given
        names = {"text": "text", "cause": "cause", **_OFFERED}
        texts: dict[str, Any] = {field: given.get(name) or "" for name, field in names.items()}
        newest_ms, until_ms = given.get(NEWEST), _milliseconds(given.get("until"))
        bounds = (until_ms, None if newest_ms is None else newest_ms + 1)
        until_ms = min((at_ms for at_ms in bounds if at_ms is not None), default=None)
        times: dict[str, Any] = {"since_ms": _milliseconds(given.get("since")), "until_ms": until_ms}
        try:
            self.wanted = LetterFilter(**texts, **times, replayed=_REPLAYED[given.get("replayed") or ""])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        return given

    def offer(self, counts: Mapping[str, Counter[str]]) -> None:
        """Let the user choose among values that there are, with how many of each."""
        for name, field in _OFFERED.items():
            there = [(value, f"{value} ({number})") for value, number in counts[field].most_common() if value]
            asked = str(self.data.get(name, ""))
            stays = [(asked, f"{asked} (0)")] if asked and asked not in counts[field] else []
            self.fields[name].widget.choices = [("", "all"), *stays, *there]

    def carried(self) -> list[tuple[str, str]]:
        """What is given, for hidden fields and links."""
        return [(name, str(self.data[name])) for name in self.fields if self.data.get(name)]


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
