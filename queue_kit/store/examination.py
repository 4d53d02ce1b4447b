"""What a doctor needs to know of a Redis, read once; without one reading, two checks could judge two different moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from queue_kit.states import State
from queue_kit.store.census import Census
from queue_kit.store.keys import Keys
from queue_kit.store.roster import WorkerView
from queue_kit.store.script import text
from queue_kit.store.stock import StockKeys, StockMessages
from queue_kit.store.switches import read_limits

#: What of the server's own settings is read; a user that may not ask for them sees none.
_CONFIG: Final = ("appendfsync", "save", "min-replicas-to-write", "maxclients")
_LOOKED_AT: Final = 1000  # waiting and delayed jobs of a queue whose names are read
_AT_ONCE: Final = 500
_PLACES: Final = ("wait", "reserved", "active", "delayed", "completed", "failed", "cancelled")
_LIVE: Final = frozenset({State.WAITING, State.DELAYED, State.ACTIVE})


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself. ``info`` and ``config`` are empty where they may not be asked for."""

    info: Mapping[str, Any]
    config: Mapping[str, str]
    now_ms: int


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue. ``overdue``: leases that ran out; ``stock``: messages in stock Celery's lists; ``names``: jobs by task."""

    name: str
    waiting: int
    delayed: int
    active: int
    overdue: int
    oldest_waiting_ms: int
    dead: int
    evicted: int
    paused: bool
    stock: int
    names: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Strays:
    """Keys that nothing will clean up. ``lost``: jobs that should run and stand in no list; ``unlisted``: records of ended
    jobs and dead letters that no list names; ``looked_at``: keys that were read."""

    lost: tuple[str, ...]
    unlisted: tuple[str, ...]
    looked_at: int
    all_read: bool


class Examination:
    """Reads facts under one prefix."""

    def __init__(self, client: Redis, keys: Keys, stock: StockKeys) -> None:
        self._client: Any = client
        self._keys, self._census, self._stock = keys, Census(client, keys), StockMessages(client, stock)

    def server(self) -> ServerFacts:
        """The server; the clock is read last, so that the caller's own can be compared with it."""
        config: dict[str, str] = {}
        try:
            for name in _CONFIG:
                config |= {text(key): text(value) for key, value in self._client.config_get(name).items()}
        except ResponseError:
            config = {}
        try:
            info = self._client.info()
        except NoPermissionError:
            info = {}
        return ServerFacts(info, config, self._census.now_ms())

    def workers(self) -> list[WorkerView]:
        return self._census.workers()

    def queues(self) -> list[str]:
        return self._census.queues()

    def queue(self, name: str, now_ms: int, overdue_ms: int) -> QueueFacts:
        """One queue, in a few trips. ``overdue_ms``: how long a lease must have run out to count."""
        oldest = self._census.oldest_waiting(name)
        waiting, reserved, delayed, active = self._sizes(name)
        return QueueFacts(
            name=name,
            waiting=waiting + reserved, delayed=delayed, active=active,
            overdue=sum(
                int(self._client.zcount(self._keys.queue(name, part), 0, now_ms - overdue_ms)) for part in ("active", "reserved")
            ),
            oldest_waiting_ms=now_ms - (oldest.added_at_ms or now_ms) if oldest else 0,
            dead=self._census.dead_letter_count(name),
            evicted=int(self._client.hget(self._keys.queue(name, "counts"), "dead_letter_evicted") or 0),
            paused=read_limits(self._client, self._keys, name).paused,
            stock=self._stock.count(name),
            names=self._names(name),
        )  # fmt: skip

    def _sizes(self, queue: str) -> list[int]:
        """Not in a transaction, which a full server refuses even for reading."""
        pipe = self._client.pipeline(transaction=False)
        for part in ("wait", "reserved", "delayed", "active"):
            pipe.zcard(self._keys.queue(queue, part))
        return [int(size) for size in pipe.execute()]

    def _names(self, queue: str) -> Mapping[str, int]:
        ids = [job_id for part in ("wait", "delayed") for job_id in self._first(queue, part)]
        pipe = self._client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hget(self._keys.job(job_id), "name")
        return Counter(text(name) for name in pipe.execute() if name)

    def _first(self, queue: str, part: str) -> list[str]:
        return [text(one) for one in self._client.zrange(self._keys.queue(queue, part), 0, _LOOKED_AT - 1)]

    def unacked(self) -> int:
        """Messages that stock workers hold."""
        return self._stock.held_count()

    def untold(self, before_ms: int) -> int:
        """Jobs that ended outside their runs before an instant, and whose callers nobody has told."""
        return int(self._client.zcount(self._keys.notes, 0, before_ms))

    # -- keys that will never go --------------------------------------------------------------------------------------

    def strays(self, most: int) -> Strays:
        """Look at no more than ``most`` keys. What no list names is looked at twice: it may have moved in between."""
        keys = list(islice(self._own_keys(), most + 1))
        pages = (keys[:most][start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))
        found = self._unnamed([key for page in pages for key in self._unnamed(page)])
        return Strays(
            lost=tuple(self._shown(key) for key, state in found.items() if state in _LIVE),
            unlisted=tuple(self._shown(key) for key, state in found.items() if state not in _LIVE),
            looked_at=min(len(keys), most),
            all_read=len(keys) <= most,
        )

    def _own_keys(self) -> Iterator[str]:
        for pattern in (self._keys.job("*"), self._keys.dead_letter("*")):
            for key in self._client.scan_iter(match=pattern, count=1000, _type="hash"):
                yield text(key)

    def _unnamed(self, keys: Sequence[str]) -> dict[str, str]:
        """Those that have no time to live and stand in no list, with the state that their record tells."""
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.hmget(key, "state", "queue", "token")
            pipe.pttl(key)
        replies = pipe.execute()
        kept = {
            key: [text(field) if field else "" for field in fields]
            for key, fields, ttl_ms in zip(keys, replies[::2], replies[1::2], strict=True)
            if ttl_ms == -1 and fields[2] not in (b"replaced", "replaced")  # which a canvas will come back to
        }
        named = self._named(kept)
        return {key: fields[0] for key, fields in kept.items() if key not in named}

    def _named(self, kept: Mapping[str, Sequence[str]]) -> set[str]:
        pipe, asked = self._client.pipeline(transaction=False), list[str]()
        for key, (_, queue, _) in kept.items():
            places = ("dead",) if key.startswith(self._keys.dead_letter("")) else _PLACES
            for place in places:
                pipe.zscore(self._keys.queue(queue, place), self._shown(key))
                asked.append(key)
        return {key for key, score in zip(asked, pipe.execute(), strict=True) if score is not None}

    def _shown(self, key: str) -> str:
        return key.removeprefix(self._keys.job("")).removeprefix(self._keys.dead_letter(""))
