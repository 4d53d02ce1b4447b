"""What a sender may wait for after its job is in Redis's memory; without it a job that was accepted could be lost with the
machine a moment later, also where that must not be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from queue_kit.store.script import text

#: Asks a server what it is.
INFO: Final = ("INFO",)
_OLDEST_WITH_WAITAOF: Final = (7, 2)


@dataclass(frozen=True, slots=True)
class Durability:
    """``disk``: the append-only file of the primary has been synced; ``replicas``: so many of them have the job in memory."""

    disk: bool = False
    replicas: int = 0

    def __bool__(self) -> bool:
        return self.disk or self.replicas > 0

    def commands(self, timeout_ms: int) -> Iterator[tuple[Any, ...]]:
        """What to ask, on the connection that has written and after the write; all of it takes at most this long."""
        each_ms = max(1, timeout_ms // (2 if self.disk and self.replicas else 1))
        if self.disk:
            yield ("WAITAOF", 1, 0, each_ms)
        if self.replicas:
            yield ("WAIT", self.replicas, each_ms)

    def missing(self, answers: list[Any]) -> str:
        """What the answers to these commands do not confirm, in words; '' if all is well."""
        found = iter(answers)
        if self.disk:
            answer = next(found)
            if isinstance(answer, Exception) or int(answer[0]) < 1:
                return f"its disk has not confirmed the job{_said(answer)}"
        if self.replicas:
            answer = next(found)
            if isinstance(answer, Exception) or int(answer) < self.replicas:
                return f"{self.replicas} replicas have not confirmed the job{_said(answer)}"
        return ""

    def refusal(self, info: bytes | str) -> str:
        """Why a server with this answer to ``INFO`` cannot confirm what is asked, in words; '' if it can."""
        if not self.disk:
            return ""
        facts = _facts(text(info))
        version = facts.get("redis_version", "0")
        if "valkey_version" not in facts and tuple(map(int, version.split(".")[:2])) < _OLDEST_WITH_WAITAOF:
            return f"ENQUEUE_WAIT_DISK: Redis {version} has no WAITAOF; 7.2 or newer, or Valkey, is needed"
        if facts.get("aof_enabled") != "1":
            return "ENQUEUE_WAIT_DISK: this Redis keeps no append-only file; set appendonly to yes"
        return ""


def _facts(info: str) -> Mapping[str, str]:
    lines = (line.strip().partition(":") for line in info.splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def _said(answer: Any) -> str:
    return f" ({answer})" if isinstance(answer, Exception) else " in time"
