"""pytest-celery's nodes on processes of this machine, where there is no container engine.

pytest-celery wraps a docker-py container without ever asking what it is. Here a process stands in its place, so that
nodes, clusters, setup and their fixtures are pytest-celery's own. What docker-py would be asked for and a process does not
have (images, networks, archives) is not here; asking for it fails by name.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pytest_celery import CeleryWorkerContainer, RedisContainer

from tests.support.engine import find_engine
from tests.support.ports import LOOPBACK, free_port, is_listening
from tests.support.processes import environment_with_project, kill_session, send, spawn
from tests.support.waiting import wait_until


class LocalProcess:
    """A process that answers like docker-py's container object."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str], port: int = 0) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.name = f"{Path(command[0]).name}-{self.id}"
        # pytest-celery takes a node's host name to be its id, as it is in a container.
        self._command = [word.replace("%h", self.id) for word in command]
        self._folder = folder
        self._env = dict(env)
        self._log = folder / "output.log"
        ports = {f"{port}/tcp": [{"HostPort": str(port)}]} if port else {}
        self.attrs = {"NetworkSettings": {"Networks": {}, "Ports": ports}, "Config": {"Hostname": LOOPBACK}}
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return spawn(self._command, log=self._log, cwd=self._folder, env=self._env)

    @property
    def status(self) -> str:
        """In docker's words: running (also when stopped by a signal), or exited."""
        return "running" if self._process.poll() is None else "exited"

    def reload(self) -> None:
        """Do nothing: the status here is never stale."""

    def logs(self) -> bytes:
        """All output, over all restarts."""
        return self._log.read_bytes()

    def kill(self, signal_: str | int | None = None) -> None:
        """Send a signal, SIGKILL if none is named, and wait for the end if it is one that ends."""
        wanted = signal.Signals[signal_] if isinstance(signal_, str) else signal.Signals(signal_ or signal.SIGKILL)
        if wanted is signal.SIGKILL:
            kill_session(self._process)
        else:
            send(self._process.pid, wanted)

    def restart(self, timeout: int = 10) -> None:
        """End the process in order, by force once the time is over, and start it again."""
        self._end(timeout)
        self._process = self._start()

    def _end(self, timeout: int) -> None:
        if self.status == "running":
            self.kill("SIGTERM")
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill("SIGKILL")

    def exec_run(self, cmd: str | Sequence[str]) -> tuple[int, bytes]:
        """Run a command in the process's folder and environment; answer its exit code and output."""
        words = shlex.split(cmd) if isinstance(cmd, str) else list(cmd)
        done = subprocess.run(words, cwd=self._folder, env=self._env, capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr


class LocalRedisContainer(RedisContainer):
    """A Redis whose address is the same from everywhere, since nothing lies between."""

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(next(iter(self.ports)).split("/")[0])

    @property
    def url(self) -> str:
        """Where workers find it."""
        return f"{self.prefix()}{LOOPBACK}:{self.port}/{self.vhost}"

    host_url = url

    def get_open_tcp_ports(self) -> list[str]:
        """Its port once it listens; the base class reads /proc, which not every system has."""
        return [str(self.port)] if is_listening(self.port) else []


StartProcess = Callable[..., LocalProcess]


@pytest.fixture
def local_process(tmp_path: Path) -> Iterator[StartProcess]:
    """Start processes, each in a folder of its own that holds the files given; all end with the test."""
    started: list[LocalProcess] = []

    def start(
        command: Sequence[str], env: Mapping[str, str], files: Mapping[str, bytes], port: int = 0
    ) -> LocalProcess:
        folder = tmp_path / f"node-{len(started)}"
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        folder.mkdir(exist_ok=True)
        started.append(LocalProcess(command, folder, environment_with_project(env), port))
        return started[-1]

    yield start
    for process in started:
        process.kill("SIGKILL")


def _ready(container: Any) -> Any:
    # Its own ready() asks once a second.
    wait_until(lambda: container.ready_prompt in container.logs(), says=f"{container.name} is ready", within_s=40)
    return container


def _redis(start: StartProcess, cls: type[RedisContainer], command: Sequence[str], env: Mapping[str, str]) -> Any:
    port = free_port()
    words = [str(find_engine()), *command[1:], "--port", str(port), "--bind", LOOPBACK]
    return _ready(cls(start(words, env, {}, port)))


def _worker(start: StartProcess, cls: type[CeleryWorkerContainer], command: Any, env: Any, files: Any) -> Any:
    # The container's paths are not this machine's: only what it is told to talk to counts here.
    urls = {name: value for name, value in env.items() if name.startswith("CELERY_")}
    return _ready(cls(start([sys.executable, "-m", *command], urls, files)))


@pytest.fixture
def default_redis_broker_cls() -> type[RedisContainer]:
    """The broker's class."""
    return LocalRedisContainer


@pytest.fixture
def default_redis_backend_cls() -> type[RedisContainer]:
    """The result backend's class."""
    return LocalRedisContainer


@pytest.fixture
def default_redis_broker(
    local_process: StartProcess,
    default_redis_broker_cls: type[RedisContainer],
    default_redis_broker_command: list[str],
    default_redis_broker_env: dict[str, str],
) -> Any:
    """The broker."""
    return _redis(local_process, default_redis_broker_cls, default_redis_broker_command, default_redis_broker_env)


@pytest.fixture
def default_redis_backend(
    local_process: StartProcess,
    default_redis_backend_cls: type[RedisContainer],
    default_redis_backend_command: list[str],
    default_redis_backend_env: dict[str, str],
) -> Any:
    """The result backend."""
    return _redis(local_process, default_redis_backend_cls, default_redis_backend_command, default_redis_backend_env)


@pytest.fixture
def default_worker_container(
    local_process: StartProcess,
    default_worker_container_cls: type[CeleryWorkerContainer],
    default_worker_command: list[str],
    default_worker_env: dict[str, str],
    default_worker_initial_content: dict[str, bytes],
) -> Any:
    """The first worker."""
    cls, command, files = default_worker_container_cls, default_worker_command, default_worker_initial_content
    return _worker(local_process, cls, command, default_worker_env, files)


@pytest.fixture
def second_worker_container(
    local_process: StartProcess,
    default_worker_container_cls: type[CeleryWorkerContainer],
    default_worker_command: list[str],
    default_worker_env: dict[str, str],
    default_worker_initial_content: dict[str, bytes],
) -> Any:
    """The second worker."""
    cls, command, files = default_worker_container_cls, default_worker_command, default_worker_initial_content
    return _worker(local_process, cls, command, default_worker_env, files)
