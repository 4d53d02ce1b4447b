"""taskiq on Redis streams: acknowledged after the run; a lost entry is claimed by others after ten minutes."""

from contextlib import asynccontextmanager

from taskiq_redis import RedisStreamBroker

from benchmarks.peers.common import PAYLOAD, URL

broker = RedisStreamBroker(url=URL)


@broker.task(task_name="noop")
async def noop(filler: str) -> None:
    """Nothing."""


@asynccontextmanager
async def sending():
    """Give what sends one job."""

    async def send():
        await noop.kiq(filler=PAYLOAD)

    await broker.startup()
    yield send
    await broker.shutdown()
