"""The id that goes from a request to every job it sends, to their logs and dead letters; without it nobody could say which click
a job at night came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final
from uuid import uuid4

HEADER: Final = "x-correlation-id"
_FITS: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}")

#: That of what runs here, in this thread or coroutine; '': nothing has set one.
correlation_id: ContextVar[str] = ContextVar("correlation_id", default="")
#: How to learn what is known of the job that runs here; asked only where a line of the log is made of it.
running_job: ContextVar[Callable[[], Mapping[str, Any]]] = ContextVar("running_job", default=dict)


def accepted(given: str | None) -> str:
    """An id as it was given, or a new one: it comes from outside, and is no reason to refuse anything."""
    return given if given and _FITS.fullmatch(given) else str(uuid4())
