"""RQ: forks for each job; a lost one is run again while it has retries; no results kept."""

from redis import Redis
from rq import Queue, Retry

from benchmarks.peers.common import PAYLOAD, URL

queue = Queue(connection=Redis.from_url(URL))
again = Retry(max=3)


def noop(filler):
    """Nothing."""


def send():
    """Send one job."""
    queue.enqueue(noop, filler=PAYLOAD, retry=again, result_ttl=0)
