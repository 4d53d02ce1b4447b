"""arq: a job stays in the queue until it has run; no results kept."""

import asyncio
from contextlib import asynccontextmanager

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

from benchmarks.peers.common import PAYLOAD, URL


async def noop(context, filler):
    """Nothing."""


@asynccontextmanager
async def sending():
    """Give what sends one job."""
    pool = await create_pool(RedisSettings.from_dsn(URL))

    async def send():
        await pool.enqueue_job("noop", filler=PAYLOAD)

    yield send
    await pool.aclose()


def work():
    """Run one worker's process."""
    asyncio.run(_work())


async def _work():
    worker = Worker([func(noop, name="noop", keep_result=0)], redis_settings=RedisSettings.from_dsn(URL))
    await worker.main()
