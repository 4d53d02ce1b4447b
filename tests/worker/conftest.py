"""Fixtures of the worker's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fixtures import StartWorker
from tests.support.redis_server import RedisServer
from tests.worker.stage import Stage


@pytest.fixture
def stage(redis_server: RedisServer, queue_name: str, tmp_path: Path, start_worker: StartWorker) -> Stage:
    """A stage on the shared Redis."""
    return Stage(redis_server.url(), queue_name, tmp_path, start_worker)
