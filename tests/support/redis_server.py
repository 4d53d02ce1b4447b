"""A Redis server of the test's own, on a free port: it may be killed, frozen, restarted and filled.

Without it a crash test could only talk about a Redis failure, and two tests would share one server's state.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from tests.support.engine import find_engine
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import kill_session, send, spawn
from tests.support.waiting import wait_for_exit, wait_until

# A server that answers nothing (frozen on purpose) must fail the test's own client, not hang the run.
CLIENT_TIMEOUT_S = 5.0


@dataclass
class RedisServer:
    """A private server: `start` it, or use it as a context manager.

    appendonly: keep an append-only file, written through at each command, so that a `kill` loses nothing.
    maxmemory, policy: as in redis.conf, e.g. "4mb" and "noeviction".
    save: snapshot points as in redis.conf; none by default, so that a restart without appendonly comes back empty.
    options: further settings, name to value. port: a free one if 0. Data and log lie in a temporary folder.
    engine: the program; the one that all tests run on if None.
    """

    appendonly: bool = False
    maxmemory: str | None = None
    policy: str = "noeviction"
    save: str = ""
    options: dict[str, str] = field(default_factory=dict)
    port: int = 0
    engine: Path | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    folder: Path = field(default=Path(), init=False)

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> RedisServer:
        """Start the server and return once it answers (some 20 ms)."""
        assert not self.running, f"the server on port {self.port} is running already"
        self.port = self.port or free_port()
        if self.folder == Path():
            self.folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self.process = spawn([str(self.engine or find_engine()), *self._arguments()], log=self.log_file, cwd=self.folder)
        wait_until(self._answers, says=f"Redis on port {self.port} answers", within_s=10, every_s=0.003)
        return self

    def _arguments(self) -> list[str]:
        settings = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": str(self.folder),
            "save": self.save,
            "appendonly": "yes" if self.appendonly else "no",
            "appendfsync": "always",
            "maxmemory": self.maxmemory or "0",
            "maxmemory-policy": self.policy,
            "daemonize": "no",
            **self.options,
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    def _answers(self) -> bool:
        assert self.running, f"the server ended while starting:\n{self.logs()}"
        try:
            with self.client(retry=None) as probe:
                return bool(probe.ping())
        except redis.RedisError:
            return False

    @property
    def running(self) -> bool:
        """Whether the process lives (also while frozen)."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self.process is not None, "the server was never started"
        assert self.running, "the server has ended"
        return self.process.pid

    @property
    def log_file(self) -> Path:
        """Where the server logs; one file over all its restarts."""
        return self.folder / "redis.log"

    def logs(self) -> str:
        """All that the server has logged, over all its restarts."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def url(self, db: int = 0) -> str:
        """Return the address as Celery and redis-py take it."""
        return f"redis://{LOOPBACK}:{self.port}/{db}"

    def client(self, db: int = 0, **options: Any) -> redis.Redis:
        """Return a new client that gives strings, with time limits, so that a frozen server fails it."""
        limits = {"socket_timeout": CLIENT_TIMEOUT_S, "socket_connect_timeout": CLIENT_TIMEOUT_S}
        return redis.Redis(host=LOOPBACK, port=self.port, db=db, **{"decode_responses": True, **limits, **options})

    def wait_for_replica(self) -> None:
        """Return once a replica has confirmed a write: its link is up before that, on its own side alone."""
        with self.client() as client:
            client.pipeline(transaction=True).set("replicated", "yes").delete("replicated").execute()
            wait_until(lambda: client.wait(1, 50) == 1, says="a replica has confirmed a write", within_s=20)

    def stop(self) -> None:
        """End the server in order (SIGTERM); the data stays for `start` if it is kept at all."""
        if self.process is None or not self.running:
            return
        self.thaw()
        send(self.process.pid, signal.SIGTERM)
        wait_for_exit(self.process)

    def kill(self) -> None:
        """SIGKILL the server, as a crash of its machine would."""
        if self.process is not None and self.running:
            kill_session(self.process)

    def freeze(self) -> None:
        """SIGSTOP the server: connections stay open and are accepted, nothing is answered."""
        send(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT a frozen server; it answers what was asked meanwhile."""
        send(self.pid, signal.SIGCONT)

    def restart(self) -> RedisServer:
        """Kill the server and start it again on the same port; with appendonly its data is kept, else it is empty."""
        self.kill()
        return self.start()

    def close(self) -> None:
        """Kill the server and delete its folder."""
        self.kill()
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = Path()
