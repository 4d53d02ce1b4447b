"""Whether a Redis server can hold the promises; without the check it would evict jobs, and nobody would know."""

from __future__ import annotations

import logging
from typing import Any

from redis import Redis

from queue_kit.errors import ConfigurationError
from queue_kit.settings import Settings

logger = logging.getLogger(__name__)

_OLDEST = (6, 2)


def check_server(client: Redis, settings: Settings) -> None:
    """Look at version, mode and eviction policy.

    :raises ConfigurationError: a server that is too old or a cluster; with ``PRODUCTION``, one that may evict jobs.
    """
    info: dict[str, Any] = client.info("server")
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise ConfigurationError(f"broker_url: Redis {version} is too old; 6.2 or newer, or Valkey, is needed")
    if info.get("redis_mode") == "cluster":
        raise ConfigurationError("broker_url: a Redis Cluster is not supported; use one server, or Sentinel")
    policy = client.info("memory").get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return
    advice = f"maxmemory-policy is {policy}: Redis may delete jobs when memory is full; set it to noeviction"
    if settings.production and not settings.allow_eviction:
        raise ConfigurationError(f"{advice}, or accept the loss with ALLOW_EVICTION")
    logger.warning(advice)
