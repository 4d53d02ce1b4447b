"""Reads what a run has kept of its result; a census shows people what a job does, and not what it has made."""

from __future__ import annotations

import json
from typing import Any

from queue_kit.store.keys import Keys


def kept_result(client: Any, keys: Keys, job_id: str) -> Any:
    """What was kept; ``None`` if nothing was, as of a function that has returned nothing."""
    kept = client.hget(keys.job(job_id), "result")
    return None if kept is None else json.loads(kept)
