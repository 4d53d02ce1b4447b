"""potatoq: leases and fences, in Redis scripts."""

from potatoq import Potatoq

from benchmarks.peers.common import PAYLOAD, URL

app = Potatoq("peer", broker=URL)


@app.task(name="noop")
def noop(filler):
    """Nothing."""


def send():
    """Send one job."""
    noop.delay(filler=PAYLOAD)
