"""streaQ: a stream whose entries are acknowledged after the run; no results kept."""

from contextlib import asynccontextmanager

from streaq import Worker

from benchmarks.peers.common import PAYLOAD, URL

worker = Worker(redis_url=URL)


@worker.task(name="noop", ttl=0)
async def noop(filler):
    """Nothing."""


@asynccontextmanager
async def sending():
    """Give what sends one job."""

    async def send():
        await noop.enqueue(PAYLOAD)

    async with worker:
        yield send
