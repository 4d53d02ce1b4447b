"""A posting as text, for who keeps it outside Redis; without it a row of an outbox would have to be checked, routed and
packed again by a relay, which may run other code than the caller.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from queue_kit.store import Message, When
from queue_kit.store.moves import Unique
from queue_kit.transport.envelope import Posting


def as_text(posting: Posting) -> str:
    """All of it but the id, as JSON in ASCII."""
    fields = asdict(posting)
    del fields["id"]
    return json.dumps(fields)


def from_text(job_id: str, text: str, age_ms: int = 0) -> Posting:
    """Read it back. A delay is what is left of it after ``age_ms``.

    :raises ValueError: it is no posting.
    """
    try:
        fields: dict[str, Any] = json.loads(text)
        when, unique = When(**fields.pop("when")), fields.pop("unique")
        message = Message(**fields.pop("message"))
        if when.delay_ms is not None:
            when = When(max(0, when.delay_ms - age_ms), None)
        posting = Posting(id=job_id, message=message, when=when, unique=Unique(**unique) if unique else None, **fields)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"no job can be read from it: {error}") from error
    texts = (message.body, message.queue, message.name)
    if not all(isinstance(text, str) for text in texts) or not isinstance(posting.priority, int):
        raise ValueError("no job can be read from it: what is in it has not been written by queue_kit")
    return posting
