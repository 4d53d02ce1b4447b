"""What a page does to many dead letters: which are meant, what would become of them, and so many in one request.

Without the last a replay of thousands at a rate would hold a request for longer than any server lets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django import forms

from queue_kit.django.admin.filters import NEWEST, FilterForm
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.replaying import Done

#: Seconds for which one request replays at a rate, and how many it takes where nobody asked for one.
_REQUEST_S: Final = 5
_AT_ONCE: Final = 1_000
#: At the slowest rate a request replays one, and waits as long.
_SLOWEST: Final = 1 / _REQUEST_S
_FASTEST: Final = 1_000
#: Reasons listed on a page.
_REASONS_MOST: Final = 20


class ActForm(forms.Form):
    """What is to be done. ``skip``: so many of the filter, the oldest, were refused before."""

    action = forms.ChoiceField(choices=[(word, word) for word in ("replay", "discard", "export")])
    everything = forms.BooleanField(required=False)
    sure = forms.BooleanField(required=False)
    rate = forms.FloatField(
        required=False, min_value=_SLOWEST, max_value=_FASTEST, label="At most so many a second",
        help_text="Empty: as fast as it goes. A page at a time is replayed; closing it stops there.",
    )  # fmt: skip
    done = forms.IntegerField(required=False, min_value=0, max_value=10**9)
    skip = forms.IntegerField(required=False, min_value=0, max_value=10**9)

    def number(self, name: str) -> int:
        return int(self.cleaned_data.get(name) or 0)


@dataclass(frozen=True, slots=True)
class Targets:
    """The dead letters that are meant, in the order in which they are taken; ``carried`` names them to the next page."""

    ids: list[str]
    carried: list[tuple[str, str]]

    def batch(self, rate_per_s: float | None) -> list[str]:
        """So many as one request may take."""
        return self.ids[: _AT_ONCE if rate_per_s is None else min(_AT_ONCE, max(1, int(rate_per_s * _REQUEST_S)))]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of some, or would. ``reasons``: why those were refused that were, with how many each."""

    done: list[str]
    refused: int
    reasons: list[tuple[str, int]]

    @classmethod
    def of(cls, results: Sequence[Done]) -> Outcome:
        """Count the refused by reason, without their ids, so that a thousand alike are one line."""
        why = Counter(str(one.error).replace(one.id, "…") for one in results if one.error is not None)
        return cls([one.id for one in results if one.error is None], why.total(), why.most_common(_REASONS_MOST))


def targets(data: Any, wanted: FilterForm, letters: DeadLetters, act: ActForm) -> Targets:
    """Those ticked, or those of the filter, the oldest first; to replay, those alone that were not replayed before.

    What has failed after the first page is not meant: a replay that fails again would go round for ever, and nothing is to be
    discarded that nobody has seen.
    """
    if not act.cleaned_data["everything"]:
        ids = list(dict.fromkeys(data.getlist("id")))
        return Targets(ids, [("id", letter_id) for letter_id in ids])
    asked = wanted.wanted
    if act.cleaned_data["action"] == "replay" and asked.replayed is None:
        asked = replace(asked, replayed=False)
    carried = [("everything", "on"), *wanted.carried()]
    if wanted.cleaned_data[NEWEST] is None:
        latest = letters.page(asked, limit=1).letters
        newest_ms = latest[0].failed_at_ms if latest else 0
        asked = replace(asked, until_ms=min(asked.until_ms or newest_ms + 1, newest_ms + 1))
        carried.append((NEWEST, str(newest_ms)))
    return Targets(letters.ids(asked)[::-1][act.number("skip") :], carried)
