"""Where stock Celery keeps its messages in the same database; without it a message sent by a producer that has no queue_kit
would lie where nobody looks.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from queue_kit.store.script import text

#: Messages read in one trip.
_PAGE = 500


@dataclass(frozen=True, slots=True)
class StockKeys:
    """Names of stock Celery's keys, as an app's transport options make them; the defaults are kombu's."""

    global_keyprefix: str = ""
    sep: str = "\x06\x16"
    priority_steps: tuple[int, ...] = (0, 3, 6, 9)
    unacked_key: str = "unacked"
    unacked_index_key: str = "unacked_index"
    visibility_timeout: float = 3600

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> StockKeys:
        """Those of an app with these ``broker_transport_options``."""
        known = {name: value for name, value in (options or {}).items() if name in cls.__slots__}
        if "priority_steps" in known:
            known["priority_steps"] = tuple(sorted(known["priority_steps"]))
        return cls(**known)

    def lists(self, queue: str) -> list[str]:
        """The lists of a queue, the most urgent first."""
        return [self._list(queue, step) for step in self.priority_steps]

    def list_for(self, queue: str, priority: int) -> str:
        """The list that a message of this priority goes to."""
        return self._list(queue, self.priority_steps[max(0, bisect(self.priority_steps, priority) - 1)])

    def _list(self, queue: str, step: int) -> str:
        return f"{self.global_keyprefix}{queue}{f'{self.sep}{step}' if step else ''}"

    @property
    def unacked(self) -> str:
        """Hash: what stock workers have taken and not acknowledged."""
        return f"{self.global_keyprefix}{self.unacked_key}"

    @property
    def unacked_index(self) -> str:
        """Sorted set: the same by the second in which it was taken."""
        return f"{self.global_keyprefix}{self.unacked_index_key}"


class StockMessages:
    """Reads them."""

    def __init__(self, client: Redis, keys: StockKeys) -> None:
        self._client: Any = client
        self.keys = keys

    def count(self, queue: str) -> int:
        """How many lie in the lists of a queue; a key that is no list has none."""
        pipe = self._client.pipeline(transaction=False)
        for key in self.keys.lists(queue):
            pipe.llen(key)
        return sum(size for size in pipe.execute(raise_on_error=False) if isinstance(size, int))

    def waiting(self, queue: str) -> Iterator[tuple[str, str]]:
        """Each message with the list that it lies in, the one that is next first. What the reader takes away meanwhile moves
        nothing: the next page begins behind what it has left."""
        for key in self.keys.lists(queue):
            left = 0
            while page := self._page(key, left):
                for raw in reversed(page):
                    yield key, text(raw)
                left += sum(self._client.lpos(key, raw) is not None for raw in page)

    def _page(self, key: str, left: int) -> list[bytes]:
        try:
            page: list[bytes] = self._client.lrange(key, -left - _PAGE, -left - 1)
        except ResponseError:  # the key of something else
            return []
        return page

    def unacked(self, before_s: float) -> Iterator[tuple[str, str]]:
        """Tag and content of each message that a worker took before this instant, in seconds, and still holds."""
        tags = [text(tag) for tag in self._client.zrange(self.keys.unacked_index, "-inf", f"({before_s}", byscore=True)]
        for start in range(0, len(tags), _PAGE):
            page = tags[start : start + _PAGE]
            found = self._client.hmget(self.keys.unacked, page)
            yield from ((tag, text(raw)) for tag, raw in zip(page, found, strict=True) if raw is not None)

    def unacked_count(self) -> int:
        """How many messages stock workers hold."""
        return int(self._client.zcard(self.keys.unacked_index))
