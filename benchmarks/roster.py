"""The other task queues: how each one's worker is started, with three processes, and how its jobs are counted from outside.

Each has its documented settings for at-least-once, if it has any, keeps no results, and runs as many jobs in a process as is its
default.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.systems import System

#: Entries of a stream that its only group has not read, and those that it has not acknowledged: taskiq deletes none.
_STREAM_LEFT = "local group = redis.call('XINFO', 'GROUPS', KEYS[1])[1] return group[6] + (group[12] or 0)"
_WORK = ("python", "-m", "benchmarks.peers.work")
_CELERY = ("--pool", "prefork", "--concurrency", "3", "--loglevel", "WARNING", "--without-gossip", "--without-mingle")


@dataclass(frozen=True)
class Peer(System):
    """One of them. ``app``: its module in `benchmarks.peers`; ``worker``: the command, in its environment.

    loses: it forgets a job before it has run, so that a crash loses it.
    python: the version that it needs, if ours is too old.
    """

    worker: tuple[str, ...] = ()
    loses: bool = False
    python: str = ""


PEERS = (
    Peer("bare list", "bare_list", [("LLEN", "bench")], worker=(*_WORK, "bare_list"), loses=True),
    Peer("BullMQ on Node", "bullmq_node", [("LLEN", "bull:bench:wait"), ("LLEN", "bull:bench:active")],
         worker=("node", "benchmarks/peers/bullmq_node.cjs", "work")),
    Peer("taskiq, streams", "taskiq", [("EVAL", _STREAM_LEFT, "1", "taskiq")],
         worker=("taskiq", "worker", "benchmarks.peers.taskiq:broker", "--workers", "3")),
    Peer("potatoq", "potatoq", [("ZCARD", f"potatoq:q:default:{part}") for part in ("ready", "active")],
         worker=("potatoq", "-A", "benchmarks.peers.potatoq", "worker", "-c", "3", "-l", "WARNING")),
    Peer("huey", "huey", [("LLEN", "huey.redis.bench")], loses=True,
         worker=("huey_consumer", "benchmarks.peers.huey.huey", "--workers", "3", "--worker-type", "process", "--quiet")),
    Peer("BullMQ for Python", "bullmq", [("LLEN", "bull:bench:wait"), ("LLEN", "bull:bench:active")],
         worker=(*_WORK, "bullmq")),
    Peer("SAQ", "saq", [("ZCARD", "saq:default:incomplete")],
         worker=("saq", "benchmarks.peers.saq.settings", "--workers", "3", "--quiet")),
    Peer("celery-redis-plus", "celery_redis_plus", [("ZCARD", "messages_index:celery")], python="3.13",
         worker=("celery", "-A", "benchmarks.peers.celery_redis_plus", "worker", *_CELERY)),
    Peer("streaQ", "streaq", [("XLEN", "streaq:default:queues:normal")],
         worker=("streaq", "run", "benchmarks.peers.streaq:worker", "--workers", "3")),
    Peer("dramatiq", "dramatiq", [("HLEN", "dramatiq:default.msgs")],
         worker=("dramatiq", "benchmarks.peers.dramatiq", "--processes", "3")),
    Peer("arq", "arq", [("ZCARD", "arq:queue")], worker=(*_WORK, "arq")),
    Peer("RQ", "rq", [("LLEN", "rq:queue:default"), ("ZCARD", "rq:wip:default")],
         worker=("rq", "worker-pool", "--num-workers", "3", "--quiet", "--url", "{url}")),
)  # fmt: skip
