"""What the jobs of the benchmark do: as little as possible, since whatever they did would be measured too."""

import os
import time
from functools import cache

from redis import Redis

NOOP, STAMP = "bench.noop", "bench.stamp"
STAMPS = "bench:stamps"


def queue_names(count: int) -> list[str]:
    """Names of so many queues, the first of which is Celery's own."""
    return ["celery", *(f"bench{number}" for number in range(1, count))]


def noop(filler: str) -> None:
    """Nothing."""


def stamp(sent_at: float) -> None:
    """Tell how long it took from the sender's call to here, in seconds."""
    waited_s = time.time() - sent_at
    _client().rpush(STAMPS, waited_s)


@cache
def _client() -> Redis:
    return Redis.from_url(os.environ["CELERY_BROKER_URL"])
