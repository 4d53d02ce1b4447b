"""A primary with two replicas under three Sentinels, whose primary can be lost: with all it had told its replicas, or with less.

Without it a run over several fail-overs would have to know which server is the primary just now.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import redis

from tests.support.ports import LOOPBACK
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel
from tests.support.waiting import wait_until

NODES, SENTINELS = 3, 3
#: Longer than a busy machine holds up a server, or its Sentinels would take that for its death.
DOWN_AFTER_MS = 2000


class Replicated:
    """Looks like one server: `client` and `port` are those of the primary, `url` names the Sentinels."""

    def __init__(self) -> None:
        fast = {"repl-diskless-sync-delay": "0"}
        self.primary = RedisServer(appendonly=True, options=fast).start()
        follows = {"replicaof": f"{LOOPBACK} {self.primary.port}"}
        self.replicas = [RedisServer(appendonly=True, options={**fast, **follows}).start() for _ in range(NODES - 1)]
        self.primary.wait_for_replica()
        self.sentinels = [Sentinel(self.primary, down_after_ms=DOWN_AFTER_MS).start() for _ in range(SENTINELS)]
        self._await_replicas()

    def _await_replicas(self) -> None:
        for sentinel in self.sentinels:
            wait_until(lambda one=sentinel: one.knows_replicas() == NODES - 1, says="the replicas are known", within_s=40)
        wait_until(self.carries, says="both replicas follow", within_s=40, ignoring=redis.RedisError)

    def carries(self) -> bool:
        """Whether each replica has what the primary has now."""
        with self.primary.client() as client:
            client.incr("carried")
            carried = client.wait(NODES - 1, 200) == NODES - 1
            client.delete("carried")
        return bool(carried)

    @property
    def port(self) -> int:
        """Where the primary is."""
        return self.primary.port

    @property
    def running(self) -> bool:
        return self.primary.running

    def url(self) -> str:
        """The Sentinels, as Celery takes them; `master_name` is theirs."""
        return ";".join(f"{sentinel.url}/0" for sentinel in self.sentinels)

    def client(self, **options: Any) -> redis.Redis:
        """Return a new client of the primary."""
        return self.primary.client(**options)

    def cut_replicas(self) -> None:
        """From now on the primary goes on by itself: its replicas are refused the command by which they follow."""
        with self.primary.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            wait_until(lambda: _info(client)["connected_slaves"] == 0, says="no replica is there")

    def lose_primary(self) -> RedisServer:
        """Kill the primary; return the replica that the Sentinels will choose, which has read all that was on its way."""
        self.primary.kill()
        for replica in self.replicas:
            with replica.client() as client:
                wait_until(lambda one=client: _info(one)["master_link_status"] == "down", says="the link is down")
        return max(self.replicas, key=_offset)

    def await_next(self) -> None:
        """Return once the Sentinels have made a replica the primary, and its neighbour follows it."""
        ports = {replica.port for replica in self.replicas}
        wait_until(
            lambda: len(now := {sentinel.knows_primary() for sentinel in self.sentinels}) == 1 and now <= ports,
            says="a replica is the primary", within_s=60,
        )  # fmt: skip
        port, lost = self.sentinels[0].knows_primary(), self.primary
        self.primary = next(replica for replica in self.replicas if replica.port == port)
        self.replicas = [*(replica for replica in self.replicas if replica is not self.primary), lost]

    def rejoin(self) -> None:
        """Start the one that was lost, empty, as a replica."""
        lost = self.replicas[-1]
        shutil.rmtree(lost.folder / "appendonlydir", ignore_errors=True)
        lost.options["replicaof"] = f"{LOOPBACK} {self.primary.port}"
        lost.start()
        self._await_replicas()

    def close(self) -> None:
        """Kill all of it."""
        for each in (*self.sentinels, self.primary, *self.replicas):
            each.close()


def post_mortem(lost: RedisServer) -> RedisServer:
    """Return a server, elsewhere, with all that a dead one had in its append-only file; the caller closes it."""
    found = RedisServer(appendonly=True)
    found.folder = Path(shutil.copytree(lost.folder, f"{lost.folder}-opened"))
    return found.start()


def _offset(replica: RedisServer) -> int:
    with replica.client() as client:
        return int(_info(client)["slave_repl_offset"])


def _info(client: redis.Redis) -> dict[str, Any]:
    return cast(dict[str, Any], client.info("replication"))


AnyRedis = RedisServer | Replicated
