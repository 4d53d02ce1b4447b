"""How the admin pages show times, durations and payloads; without it each template would do it in its own way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django import template

from queue_kit.django import quoting

register = template.Library()
register.filter("quoted", quoting.quoted)


@register.filter
def instant(at_ms: int | str | None) -> datetime | None:
    """A time that ``date`` shows in the project's zone."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC) if isinstance(at_ms, int) else None
    except (ValueError, OverflowError, OSError):
        return None


@register.filter
def duration(ms: float | None) -> str:
    """How long something took, in the largest units that matter."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, hours, days = ms / 60_000, ms / 3_600_000, ms / 86_400_000
    return f"{minutes:.0f} min" if minutes < 60 else f"{hours:.1f} h" if hours < 48 else f"{days:.0f} days"


@register.filter
def since(began_at_ms: int | str | None, ended_at_ms: int) -> str:
    """How long it was from one time to the other. Of what is missing a template makes an empty text."""
    return duration(max(0, ended_at_ms - began_at_ms)) if isinstance(began_at_ms, int) else ""


@register.filter
def split(words: str) -> list[str]:
    """The words of a text."""
    return words.split()


@register.filter
def printable(text: str) -> str:
    """A text that every page can be encoded with: of half a surrogate pair the escape."""
    return text.encode("utf-8", "backslashreplace").decode()


@register.filter
def pretty(value: Any) -> str:
    """A value as indented JSON. Half a surrogate pair, which JSON may hold and no page can, is written as its escape."""
    try:
        shown = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except RecursionError:
        return "nested too deep to be shown"
    return str(printable(shown))
