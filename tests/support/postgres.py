"""A PostgreSQL server of the test run's own, on a free port, from the programs of a Debian package or whatever is on the PATH.

Without it what two transactions do to each other would be tried on SQLite alone, which lets only one of them write.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg

from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import kill_session, spawn
from tests.support.waiting import wait_until

USER = "tests"


class PostgresMissing(RuntimeError):
    """The server's programs are not on this machine."""


def find_program(name: str) -> str:
    """Return the path of one of the server's programs; Debian keeps them off the PATH, a folder for each version.

    Raises PostgresMissing, whose text says how to get them.
    """
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    found = shutil.which(name) or (str(kept[-1]) if kept else None)
    if found is None:
        raise PostgresMissing(f"no {name} on this machine; on Debian and Ubuntu: apt-get install postgresql")
    return found


class PostgresServer:
    """A server with one empty database; a context manager. It forgets nothing on a kill of a client, all on one of itself."""

    def __init__(self) -> None:
        self._initdb, self._postgres = find_program("initdb"), find_program("postgres")
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PostgresServer:
        data = self.folder / "data"
        if os.geteuid() == 0:
            owner = pwd.getpwnam(_unprivileged())
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        command = [self._initdb, "--pgdata", str(data), "--username", USER, "--auth", "trust", "--no-sync"]
        made = subprocess.run(
            [*_as_other(), *command, "--encoding", "UTF8", "--no-locale"],
            cwd="/", check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        self.process = spawn([*_as_other(), self._postgres, *self._options(data)], log=self.folder / "log", cwd=Path("/"))
        wait_until(self._answers, says=f"PostgreSQL on port {self.port} answers", within_s=30)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            kill_session(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _options(self, data: Path) -> list[str]:
        settings = {
            "port": str(self.port), "listen_addresses": LOOPBACK, "unix_socket_directories": "", "fsync": "off",
            "max_connections": "50",
        }  # fmt: skip
        return ["-D", str(data), *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))]

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended while starting:\n{(self.folder / 'log').read_text()}"
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str) -> str:
        """Return the address of a database as Django's settings here take it."""
        return f"postgresql://{USER}@{LOOPBACK}:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Make an empty database and return its address."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)


def _unprivileged() -> str:
    """A user to run as: the server refuses root."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _as_other() -> list[str]:
    if os.geteuid() != 0:
        return []
    owner = pwd.getpwnam(_unprivileged())
    return ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", "--"]
