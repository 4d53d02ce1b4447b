"""Whether a Redis server can hold the promises; without the check it would evict jobs, and nobody would know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from celery.exceptions import WorkerShutdown
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from queue_kit.settings import Settings
from queue_kit.transport.held import Held
from queue_kit.worker.roles.role import Role

logger = logging.getLogger(__name__)

_OLDEST: Final = (6, 2)  # ZRANGE BYSCORE, XADD in scripts with the options used
_LOOKS_AGAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a server is good for. ``refusal``: why no job may be taken from it; ``may_pass``: whether that may end by itself;
    ``advice``: what should be different."""

    refusal: str = ""
    may_pass: bool = False
    advice: str = ""


def judge(info: Mapping[str, Any], settings: Settings) -> Verdict:
    """Judge a server by what it says of itself: version, mode, role and eviction policy."""
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < _OLDEST:
        return Verdict(f"broker_url: Redis {version} is too old; 6.2 or newer, or Valkey, is needed")
    if info.get("redis_mode") == "cluster":
        return Verdict("broker_url: a Redis Cluster is not supported; use one server, or Sentinel")
    if info.get("role") in ("slave", "replica"):
        return Verdict("broker_url: this Redis is a replica; name the primary, or use sentinel://", may_pass=True)
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return Verdict()
    advice = f"maxmemory-policy: {policy} lets Redis delete jobs when memory is full; set it to noeviction"
    if settings.production and not settings.allow_eviction:
        return Verdict(f"{advice}, or accept the loss with ALLOW_EVICTION")
    return Verdict(advice=advice)


def check_server(client: Redis, settings: Settings) -> Verdict:
    """Ask a server what it is, and judge it."""
    try:
        return judge(client.info(), settings)
    except NoPermissionError:
        return Verdict(advice="broker_url: its user may not ask for INFO, so version and policy are unchecked; allow +info")


def explain(error: Exception) -> str:
    """What is wrong with the broker's URL, if this error of connecting says that it is; else ''."""
    wrong_database = "DB index" in str(error) or "Database is int" in str(error)
    if isinstance(error, (AuthenticationError, NoPermissionError)) or wrong_database:
        return f"broker_url: the server refuses its user, password or database: {error}"
    if any(word in str(error) for word in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")):
        return f"broker_url: TLS with this server fails, see ssl_ca_certs and whether it speaks TLS there: {error}"
    return ""


class Guard(Role):
    """Lets a worker claim from a server that is fit, and keeps it from one that is not.

    A worker that boots ends with one message. One that finds out later stops claiming, says why once, and looks again: what it
    runs goes on, and to end it would be to crash again and again.
    """

    name = "guard"

    def __init__(self, open_client: Callable[[], Redis], settings: Settings, held: Held) -> None:
        super().__init__(open_client, min(_LOOKS_AGAIN_S, settings.redis_retry_max_ms / 1000))
        self._settings, self._held = settings, held
        self._advised = ""

    def admit(self, client: Redis, *, booting: bool) -> None:
        """Look at a server that the worker has just connected to.

        :raises celery.exceptions.WorkerShutdown: the worker boots, and this will not pass by itself.
        """
        verdict = check_server(client, self._settings)
        if booting and verdict.refusal and not verdict.may_pass:
            end_boot(verdict.refusal)
        self._heed(verdict)

    def tick(self) -> None:
        """Look again: an unfit server may have been put right, and a policy or role can change under a connection that stays."""
        self._heed(check_server(self.ledger.client, self._settings))

    def _heed(self, verdict: Verdict) -> None:
        if verdict.advice not in ("", self._advised):
            logger.warning(verdict.advice)
        self._advised = verdict.advice
        before, self._held.refused = self._held.refused, verdict.refusal
        if verdict.refusal not in ("", before):
            logger.error("no more jobs are taken: %s", verdict.refusal)
        if before and not verdict.refusal:
            logger.info("jobs are taken again: the server is fit")
            self._held.wake()


def end_boot(problem: str) -> None:
    """End a worker that cannot start, with one message.

    :raises celery.exceptions.WorkerShutdown: always.
    """
    logger.critical("The worker cannot start: %s", problem)
    raise WorkerShutdown(1)
