"""A bare list: one push and one pop a job, the least that a queue on Redis can do; lost with its worker."""

import json

from redis import Redis

from benchmarks.peers.common import PAYLOAD, URL

client = Redis.from_url(URL)


def send():
    """Send one job."""
    client.lpush("bench", json.dumps({"filler": PAYLOAD}))


def work():
    """Run one worker's process."""
    own = Redis.from_url(URL, socket_timeout=None)
    while True:
        json.loads(own.brpop(["bench"])[1])
