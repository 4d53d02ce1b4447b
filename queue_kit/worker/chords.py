"""Frees the claim under which a run that died was to send its chord's body; without it the body would never be sent.

Celery lets the part that returns last take a claim of ten seconds and more, send the body, and then strike the chord out. It
expects a part whose worker died in between to come back later than that. Ours come back within seconds, would find the claim
of their own dead run, and leave the body to it. The body's id is fixed, so that two who send it are one job.
"""

from __future__ import annotations

from typing import Any, Final

from celery.backends.redis import RedisBackend

#: What stands in place of a claim once the body has been sent: a part that comes late must find it.
_SENT: Final = (b"done", "done")


def free_claim(backend: Any, request: Any) -> None:
    """Take away whatever claim there is on the chord that a job is part of, before that job's part returns once more."""
    if not request.chord or not request.group or not isinstance(backend, RedisBackend):
        return
    key = backend.get_key_for_group(request.group, ".c")
    if backend.get(key) not in (None, *_SENT):
        backend.delete(key)
