"""Real Sentinels, which watch a primary and its replica and make the one of them the other.

Without it a fail-over could only be told to the code under test, not seen by it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.support.engine import find_engine
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import kill_session, spawn
from tests.support.redis_server import CLIENT_TIMEOUT_S, RedisServer
from tests.support.waiting import wait_until

NAME = "main"

CONFIGURATION = """\
bind {host}
port {port}
dir {folder}
sentinel monitor {name} {host} {primary} 1
sentinel down-after-milliseconds {name} {down_after_ms}
sentinel failover-timeout {name} 2000
"""


@dataclass
class Sentinel:
    """One Sentinel of a primary; `start` it. It rewrites its own configuration, in a temporary folder."""

    primary: RedisServer
    port: int = 0
    down_after_ms: int = 400
    process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    folder: Path = field(default=Path(), init=False)

    def start(self) -> Sentinel:
        """Start the process and return once it answers."""
        self.port = self.port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="sentinel-"))
        file = self.folder / "sentinel.conf"
        facts: dict[str, Any] = {"host": LOOPBACK, "port": self.port, "folder": self.folder, "name": NAME}
        file.write_text(CONFIGURATION.format(**facts, primary=self.primary.port, down_after_ms=self.down_after_ms))
        words = [str(find_engine()), str(file), "--sentinel"]
        self.process = spawn(words, log=self.folder / "sentinel.log", cwd=self.folder)
        wait_until(self.knows_primary, says="the Sentinel answers", ignoring=redis.RedisError)
        return self

    @property
    def url(self) -> str:
        """One address of those that make up a broker URL."""
        return f"sentinel://{LOOPBACK}:{self.port}"

    def client(self) -> redis.Redis:
        """Return a new client of the Sentinel itself."""
        limits = {"socket_timeout": CLIENT_TIMEOUT_S, "socket_connect_timeout": CLIENT_TIMEOUT_S}
        return redis.Redis(host=LOOPBACK, port=self.port, decode_responses=True, **limits)  # type: ignore[arg-type]

    def knows_primary(self) -> int:
        """The port of the primary, as this Sentinel knows it."""
        with self.client() as client:
            return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def knows_replicas(self) -> int:
        """How many replicas this Sentinel has found, and sees alive."""
        with self.client() as client:
            return sum("down" not in str(replica["flags"]) for replica in client.sentinel_slaves(NAME))

    def close(self) -> None:
        """Kill the process and delete its folder."""
        if self.process is not None and self.process.poll() is None:
            kill_session(self.process)
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)
