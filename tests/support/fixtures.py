"""The types of the fixtures that are functions, so that tests which take them are checked like other code."""

from __future__ import annotations

from typing import Any, Protocol

from tests.support.proxy import TcpProxy
from tests.support.redis_server import RedisServer
from tests.support.worker_process import WorkerProcess


class OwnRedis(Protocol):
    """Start a Redis server that only this test uses; the options are RedisServer's."""

    def __call__(self, **options: Any) -> RedisServer: ...


class OwnProxy(Protocol):
    """Start a proxy before a server (the shared one if none is named)."""

    def __call__(self, server: RedisServer | None = None) -> TcpProxy: ...


class StartWorker(Protocol):
    """Start a worker; the options are WorkerProcess's. What is not named: the harness's own sample app, the shared
    Redis, this test's queue."""

    def __call__(
        self, app: str = ..., *, broker_url: str = ..., wait: bool = True, within_s: float = ..., **options: Any
    ) -> WorkerProcess: ...
