"""dramatiq: acknowledges after the run; what a dead worker held is found by its heartbeat."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.common import PAYLOAD, URL

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor
def noop(filler):
    """Nothing."""


def send():
    """Send one job."""
    noop.send(filler=PAYLOAD)
