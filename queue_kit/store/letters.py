"""Dead letters as values: what one says to people, and which of them a filter means.

Without it each page and command would decode and redact in its own way, and one of them would forget to.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from queue_kit.rules.packing import unpacked
from queue_kit.rules.payload import Payload, read_payload
from queue_kit.rules.redaction import Redactor
from queue_kit.states import Cause

#: The version of the record that this code writes and reads.
VERSION: Final = 2
#: Fields of a record that are shown as they are, and as numbers.
_TEXTS: Final = ("queue", "name", "cause", "error_class", "correlation_id")
_NUMBERS: Final = ("attempts_made", "attempts_started", "stalled_count")
#: Fields of a filter that must be equal to those of the record.
_EXACT: Final = ("name", "cause", "error_class")
_TOO_NEW: Final = "a later version of queue_kit has written this dead letter"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One job that will not run again by itself, as it was when it ended. Secrets are redacted; times in milliseconds."""

    id: str
    queue: str
    job_id: str
    name: str
    cause: str
    reason: str
    error_class: str
    stack: str
    payload: Payload
    attempts_made: int
    attempts_started: int
    stalled_count: int
    correlation_id: str
    added_at_ms: int | None
    failed_at_ms: int
    replayed_at_ms: int | None
    replayed_by: str
    version: int

    @property
    def is_newer(self) -> bool:
        """Whether it holds more than this code can read; what it can is here."""
        return self.version > VERSION

    @property
    def is_replayed(self) -> bool:
        """Whether somebody has replayed it."""
        return self.replayed_at_ms is not None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def as_line(self) -> str:
        """All of it as one line of JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are meant; what is left empty means all.

    ``text`` is looked for in the ids, the correlation id and the reason, in either case. Times in milliseconds: failed at
    ``since_ms`` or later, before ``until_ms``. ``replayed``: only those that were (True) or were not (False).

    :raises ValueError: for a cause that does not exist, or a time that is not before ``until_ms``.
    """

    queue: str = ""
    name: str = ""
    cause: str = ""
    error_class: str = ""
    text: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    replayed: bool | None = None

    def __post_init__(self) -> None:
        if self.cause and self.cause not in set(Cause):
            close = difflib.get_close_matches(self.cause, list(Cause), n=1)
            raise ValueError(
                f"cause: did you mean {close[0]}?" if close else f"cause: one of {', '.join(Cause)} is needed"
            )
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise ValueError("since: a time before until is needed")

    @property
    def facets(self) -> tuple[str, ...]:
        """Fields of a record that it looks at; none if the lists of the queues, which know queue and time, say enough."""
        exact = [name for name in _EXACT if getattr(self, name)]
        searched = ("job", "correlation_id", "reason") if self.text else ()
        marks = ("failed_at", "replayed_at") if self.replayed is not None else ()
        return (*exact, *searched, *marks)

    def __str__(self) -> str:
        """The filter in words, as in an error."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return ", ".join(f"{name} {value}" for name, value in given.items() if value not in ("", None)) or "all"


def matches(letter_id: str, facts: Mapping[str, str], wanted: LetterFilter, redactor: Redactor) -> bool:
    """Whether the facets of a record fit a filter, but for queue and time. A secret cannot be found by looking for it."""
    if any(getattr(wanted, name) not in ("", facts.get(name)) for name in _EXACT):
        return False
    if wanted.replayed is not None and wanted.replayed != _is_replayed(facts):
        return False
    if not wanted.text:
        return True
    shown = (letter_id, facts["job"], facts["correlation_id"], redactor.text(facts["reason"]))
    return any(wanted.text.lower() in text.lower() for text in shown)


def open_letter(
    letter_id: str, record: Mapping[str, str], redactor: Redactor, parameters: Sequence[str] = ()
) -> DeadLetter:
    """Read a record for people: payload decoded, secrets out of payload, reason and stack. Never raises for what it holds.

    :param parameters: names of what the task takes by position, so that a secret among it is known too.
    """
    version = _whole(record.get("version")) or 0
    payload, secrets = Payload(note=_TOO_NEW), set[str]()
    if version <= VERSION:
        payload, secrets = _payload(_message(record), redactor, parameters)
    texts: dict[str, Any] = {name: record.get(name, "") for name in _TEXTS}
    numbers: dict[str, Any] = {name: _whole(record.get(name)) or 0 for name in _NUMBERS}
    return DeadLetter(
        id=letter_id,
        job_id=record.get("job", ""),
        payload=payload,
        reason=redactor.text(record.get("reason", ""), secrets),
        stack=redactor.text(record.get("stack", ""), secrets),
        added_at_ms=_whole(record.get("added_at")),
        failed_at_ms=_whole(record.get("failed_at")) or 0,
        replayed_at_ms=_whole(record.get("replayed_at")) if _is_replayed(record) else None,
        replayed_by=record.get("replayed_by", "") if _is_replayed(record) else "",
        version=version,
        **texts,
        **numbers,
    )


def _message(record: Mapping[str, str]) -> str:
    return unpacked(record.get("message", ""), *(record.get(field, "") for field in ("job", "name", "queue")))


def _payload(message: str, redactor: Redactor, parameters: Sequence[str]) -> tuple[Payload, set[str]]:
    read = read_payload(message)
    named = list(zip([*parameters, *[""] * len(read.args)], read.args, strict=False))
    try:
        secrets = redactor.secrets([read.kwargs, *({name: value} for name, value in named)])
        args = [redactor.tree({name: value})[name] for name, value in named]
        return Payload(args, redactor.tree(read.kwargs), redactor.text(read.note)), secrets
    except RecursionError:
        return Payload(note=f"nested too deep to be shown, {len(message)} characters"), set()


def _is_replayed(record: Mapping[str, str]) -> bool:
    """Whether this failure was replayed. A mark older than it is another job's, which had the same id."""
    replayed_at, failed_at = _whole(record.get("replayed_at")), _whole(record.get("failed_at"))
    return replayed_at is not None and replayed_at >= (failed_at or 0)


def _whole(value: str | None) -> int | None:
    try:
        return int(float(value)) if value else None
    except (ValueError, OverflowError):
        return None
