"""SAQ: a job that is stuck is run again while it has retries; no results kept."""

from contextlib import asynccontextmanager

from saq import Queue

from benchmarks.peers.common import PAYLOAD, URL

queue = Queue.from_url(URL)


async def noop(context, *, filler):
    """Nothing."""


settings = {"queue": queue, "functions": [noop]}


@asynccontextmanager
async def sending():
    """Give what sends one job."""

    async def send():
        await queue.enqueue("noop", filler=PAYLOAD, retries=3, ttl=-1)

    await queue.connect()
    yield send
    await queue.disconnect()
