"""The desk that every test of the store works at."""

from __future__ import annotations

import pytest
import redis

from tests.store.desk import Desk


@pytest.fixture
def desk(client: redis.Redis, queue_name: str) -> Desk:
    """A desk on the shared Redis, which is empty."""
    return Desk(client, queue_name)
