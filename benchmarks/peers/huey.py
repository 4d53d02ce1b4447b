"""Huey: a job is popped before it runs, and lost with its worker; no results kept."""

from huey import RedisHuey

from benchmarks.peers.common import PAYLOAD, URL

huey = RedisHuey("bench", url=URL, results=False)


@huey.task()
def noop(filler):
    """Nothing."""


def send():
    """Send one job."""
    noop(filler=PAYLOAD)
