"""BullMQ for Python: jobs are locked while they run; a stalled one is run again."""

import asyncio
from contextlib import asynccontextmanager

from bullmq import Queue, Worker

from benchmarks.peers.common import AT_ONCE, PAYLOAD, URL


async def noop(job, token):
    """Nothing."""


@asynccontextmanager
async def sending():
    """Give what sends one job."""
    queue = Queue("bench", {"connection": URL})

    async def send():
        await queue.add("noop", {"filler": PAYLOAD}, {"removeOnComplete": True})

    yield send
    await queue.close()


def work():
    """Run one worker's process."""
    asyncio.run(_work())


async def _work():
    worker = Worker("bench", noop, {"connection": URL, "concurrency": AT_ONCE})
    await asyncio.Event().wait()
    await worker.close()
