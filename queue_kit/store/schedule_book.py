"""Schedules as Redis keeps them; without one place for them two beats would each count fire times of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redis import Redis

from queue_kit.store.ledger import Ledger
from queue_kit.store.script import Call, script, text


class ScheduleBook:
    """Definitions by id, and of each when it has fired last."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client, self._ledger, self._prefix = client, Ledger(client), prefix
        self._key = f"{prefix}:schedules"

    def put(self, schedule_id: str, definition: Mapping[str, Any]) -> bool:
        """Write a definition; answer whether it is new."""
        words = json.dumps(definition, sort_keys=True)
        return self._ledger.run(Call(script("schedule"), (self._prefix, schedule_id, words), text)) == "added"

    def remove(self, schedule_id: str) -> bool:
        """Take a definition away; answer whether it was there."""
        return self._ledger.run(Call(script("unschedule"), (self._prefix, schedule_id), int)) == 1

    def fired(self, schedule_id: str, fire_at_ms: int) -> bool:
        """The job of this fire time has been sent; answer whether no later one was known."""
        return self._ledger.run(Call(script("fired"), (self._prefix, schedule_id, fire_at_ms), int)) == 1

    def notice(self, schedule_id: str, now_ms: int) -> None:
        """A schedule from an app's own settings counts from when a beat has first seen it."""
        self._client.execute_command("HSETNX", f"{self._key}:last", schedule_id, now_ms)

    def all(self) -> dict[str, dict[str, Any]]:
        """Definitions by id."""
        found = self._client.execute_command("HGETALL", self._key)
        return {text(key): json.loads(value) for key, value in found.items()}

    def last(self) -> dict[str, int]:
        """When each has fired last, or since when it counts."""
        found = self._client.execute_command("HGETALL", f"{self._key}:last")
        return {text(key): int(value) for key, value in found.items()}

    def now_ms(self) -> int:
        """The clock that all beats share."""
        seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000
