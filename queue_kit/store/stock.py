"""Where stock Celery keeps its messages in the same database; without it a message sent by a producer that has no queue_kit
would lie where nobody looks.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis
from redis.exceptions import ResponseError

from queue_kit.rules.packing import joined, unpacked
from queue_kit.states import State
from queue_kit.store.keys import Keys
from queue_kit.store.moves import Message, When
from queue_kit.store.script import Call, script, text

#: A message as it lies there: what is to be taken away must be named byte for byte, and need not be text.
Raw = bytes | str

#: Messages read in one trip.
PAGE: Final = 500


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

    def page(self, key: str, left: int) -> list[Raw]:
        """The messages of one list that are next, the first of them first, behind as many as are ``left`` where they are."""
        try:
            raws: list[Raw] = self._client.lrange(key, -left - PAGE, -left - 1)
        except ResponseError:  # the key of something else
            return []
        return raws[::-1]

    def held(self, before_s: float) -> Iterator[list[tuple[str, Raw]]]:
        """Tag and content of each message that a worker took before this instant and still holds, a page at a time."""
        tags = [text(tag) for tag in self._client.zrange(self.keys.unacked_index, "-inf", f"({before_s}", byscore=True)]
        for start in range(0, len(tags), PAGE):
            some = tags[start : start + PAGE]
            found = self._client.hmget(self.keys.unacked, some)
            yield [(tag, raw) for tag, raw in zip(some, found, strict=True) if raw is not None]

    def held_count(self) -> int:
        """How many messages stock workers hold."""
        return int(self._client.zcard(self.keys.unacked_index))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a message of stock Celery's lies: in a list, or under a tag among those that workers hold."""

    content: Raw
    key: str
    tag: str = ""
    index: str = ""


def adopt(
    prefix: str, source: Source, job_id: str, message: Message, when: When, *, priority: int, expires_at_ms: int | None,
    correlation_id: str,
) -> Call[str]:  # fmt: skip
    """The move that makes a job of it."""
    place = (source.key, source.tag, source.index, source.content)
    _, instant = when.arguments
    expires: Any = "" if expires_at_ms is None else expires_at_ms
    job = (job_id, message.queue, message.name, priority, message.body, instant, expires, message.nesting, correlation_id)
    return Call(script("adopt"), (prefix, *place, *job), text)


def hand_over(prefix: str, job_id: str, message: str, key: str, content: str) -> Call[str]:
    """The move that makes a message of stock Celery's of a job that waits or is delayed."""
    return Call(script("hand_over"), (prefix, job_id, message, key, content), text)


@dataclass(frozen=True, slots=True)
class Parting:
    """What of a job goes with it: its message as the record has it, and in full. ``due_at_ms``: when it is delayed until;
    ``expires``: whether it still does."""

    id: str
    message: str
    full: str
    due_at_ms: int | None
    expires: bool


def read_partings(client: Any, keys: Keys, job_ids: Sequence[str]) -> list[Parting]:
    """Read jobs in one trip; those that are gone are left out."""
    pipe = client.pipeline(transaction=False)
    for job_id in job_ids:
        pipe.hgetall(keys.job(job_id))
    records = [{text(name): text(value) for name, value in reply.items()} for reply in pipe.execute()]
    return [_parting(job_id, record) for job_id, record in zip(job_ids, records, strict=True) if joined(record)]


def _parting(job_id: str, record: Mapping[str, str]) -> Parting:
    message = joined(record)
    full = unpacked(message, job_id, record.get("name", ""), record.get("queue", ""))
    due_at_ms = int(float(record["due_at"])) if record.get("state") == State.DELAYED else None
    return Parting(job_id, message, full, due_at_ms, "expires_at" in record)
