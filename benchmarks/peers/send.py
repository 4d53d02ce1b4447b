"""The sending side of a peer, in its own environment: ``python -m benchmarks.peers.send PEER JOBS`` prints jobs per second."""

import asyncio
import json
import sys
import time
from importlib import import_module
from typing import Any

WARM_UP = 100


def in_line(peer: Any, jobs: int) -> float:
    """Send one by one. The first ones, which open connections, are sent but not timed."""
    for _ in range(WARM_UP):
        peer.send()
    began = time.perf_counter()
    for _ in range(jobs - WARM_UP):
        peer.send()
    return (jobs - WARM_UP) / (time.perf_counter() - began)


async def in_loop(peer: Any, jobs: int) -> float:
    """Likewise for a peer whose sends are coroutines, each awaited before the next."""
    async with peer.sending() as send:
        for _ in range(WARM_UP):
            await send()
        began = time.perf_counter()
        for _ in range(jobs - WARM_UP):
            await send()
        return (jobs - WARM_UP) / (time.perf_counter() - began)


if __name__ == "__main__":
    module, number = import_module(f"benchmarks.peers.{sys.argv[1]}"), int(sys.argv[2])
    rate = asyncio.run(in_loop(module, number)) if hasattr(module, "sending") else in_line(module, number)
    print(json.dumps({"per_s": rate}))
