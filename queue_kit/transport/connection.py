"""Our connection for one app: the app's broker URLs stay what they are, only the transport behind them is ours.

Without it a fail-over to another URL, or a second app in the process, would silently get kombu's own transport.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import kombu
from kombu.connection import ConnectionPool, PooledConnection
from redis import ConnectionPool as RedisPool
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from queue_kit.errors import ConfigurationError
from queue_kit.transport.channel import Channel, SentinelChannel
from queue_kit.transport.kit import Kit
from queue_kit.transport.transport import SentinelTransport, Transport

_TRANSPORTS: Final[dict[str, type]] = {"redis": Transport, "rediss": Transport, "sentinel": SentinelTransport}
_SOCKET: Final = "redis+socket"
Found = TypeVar("Found")

#: What a broker URL may begin with.
SCHEMES: Final = (*_TRANSPORTS, _SOCKET)


def connection_class(kit: Kit) -> type[kombu.Connection]:
    """A connection class whose transports are ours and know ``kit``; so are those of its pools."""
    pooled = type("PooledJobConnection", (_JobConnection, PooledConnection), {"kit": kit})
    return type("JobConnection", (_JobConnection,), {"kit": kit, "pooled": pooled})


class _JobPool(ConnectionPool):
    def new(self) -> Any:
        return self.connection.pooled(self, **dict(self.connection._info(resolve=False)))


class _JobConnection(kombu.Connection):
    kit: Kit
    pooled: type
    transport_options: dict[str, Any]
    transport_cls: Any
    virtual_host: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        timeout_s = self.kit.settings.redis_timeout_ms / 1000
        # What plain messages are held by has names of our own: a stock worker on the same database would put ours back by its
        # own timeout, and we its.
        unacked = {f"unacked{part}_key": self.kit.keys.unacked(part) for part in ("", "_index", "_mutex")}
        options = {**unacked, **_limits(timeout_s), **(self.transport_options or {})}
        if self.transport_cls == "sentinel":
            options["sentinel_kwargs"] = _for_sentinels(options, timeout_s)
        self.transport_options = options

    def get_transport_cls(self) -> type:
        """Ours for every way to reach Redis.

        :raises ConfigurationError: for a broker that is not Redis.
        """
        name = self.transport_cls
        if isinstance(name, str) and name in _TRANSPORTS:
            return _TRANSPORTS[name]
        raise ConfigurationError(f"broker_url: queue_kit keeps jobs in Redis: use {', '.join(SCHEMES)}")

    def switch(self, conn_str: str) -> None:
        """Turn to another of several URLs, and to nothing but it.

        Kombu would let one without port or database have those of the URL before, and cannot turn to a unix socket. The
        URLs of Sentinels all stand for one server, and whichever answers is asked.
        """
        if self.transport_cls == "sentinel":
            conn_str = self.alt[0]
        self.port, self.virtual_host = None, kombu.Connection.virtual_host
        is_socket = conn_str.startswith(f"{_SOCKET}://")
        super().switch("redis://" if is_socket else conn_str)
        if is_socket:
            self.hostname = conn_str.removeprefix("redis+")

    def Pool(self, limit: int | None = None, **kwargs: Any) -> ConnectionPool:
        """A pool of connections of this kind."""
        return _JobPool(self, limit, **kwargs)

    def __eqhash__(self) -> Any:
        """Connections of different apps are never pooled together."""
        return (id(self.kit), super().__eqhash__())

    @property
    def has_alternatives(self) -> bool:
        """Whether there are several URLs, each a server of its own. The URLs of Sentinels are all one server's."""
        return len(self.alt or ()) > 1 and self.transport_cls != "sentinel"

    @property
    def number_of_urls(self) -> int:
        """How many there are: of servers, or of Sentinels."""
        return len(self.alt or ()) or 1

    def servers(self) -> list[Any]:
        """A connection for each server: each of several URLs is one of its own, those of Sentinels are all one's."""
        return [self._turned_to(url) for url in self.alt] if self.has_alternatives else [self]

    def _turned_to(self, url: str) -> Any:
        one = self.clone()
        one.switch(url)
        return one

    def open_any(self, timeout_ms: int) -> Redis:
        """A client of its own for the server that has answered last, and at each new connection for the next of several URLs
        if that one cannot be reached.
        """
        pools = [one.unconnected_pool(timeout_ms) for one in self.servers()]
        return _OwnClient.from_pool(pools[0] if len(pools) == 1 else _PoolsInTurn(self.kit, pools))

    def open_client(self, timeout_ms: int) -> Redis:
        """A client of its own for the server that this connection is for: TLS, unix socket and Sentinel included.

        Closing it closes its connections.
        """
        return _OwnClient.from_pool(self.unconnected_pool(timeout_ms))

    def unconnected_pool(self, timeout_ms: int) -> Any:
        """A pool of connections to that server, none of them made yet."""
        return _unconnected(self, timeout_ms)._get_pool()

    def open_line(self, timeout_ms: int) -> Any:
        """One connection, ready for commands, to the server that has answered last, else to the next of several URLs.

        :raises redis.exceptions.RedisError: it cannot be made; each step of it has ``timeout_ms``, but not the name lookup.
        """
        return _in_turn(self.kit, [partial(one._line, timeout_ms) for one in self.servers()])

    def _line(self, timeout_ms: int) -> Any:
        pool = self.unconnected_pool(timeout_ms)
        connection = pool.connection_class(**pool.connection_kwargs)
        connection.of_pool = pool  # which asks the Sentinels, and is known to it by a weak reference only
        connection.connect()
        _close_sentinels(pool)
        return connection


def _in_turn(kit: Kit, ways: Sequence[Callable[[], Found]]) -> Found:
    """What the first of these ways has found that leads anywhere, beginning with the one that did so last."""
    for turn in range(kit.turn, kit.turn + len(ways)):
        try:
            found = ways[turn % len(ways)]()
        except (RedisError, OSError) as error:
            trouble = error
            continue
        kit.turn = turn % len(ways)
        return found
    raise trouble


class _PoolsInTurn(RedisPool):
    """The pools of several URLs as one. Each keeps its own connections, which go back where they came from."""

    def __init__(self, kit: Kit, pools: Sequence[Any]) -> None:
        super().__init__(pools[0].connection_class, **pools[0].connection_kwargs)
        self._kit, self._pools = kit, pools

    def get_connection(self, *args: Any, **options: Any) -> Any:
        return _in_turn(self._kit, [partial(_borrowed, pool, *args, **options) for pool in self._pools])

    def release(self, connection: Any) -> None:
        connection.of_pool.release(connection)

    def disconnect(self, inuse_connections: bool = True) -> None:
        for pool in self._pools:
            pool.disconnect(inuse_connections)


def _borrowed(pool: Any, *args: Any, **options: Any) -> Any:
    connection = pool.get_connection(*args, **options)
    connection.of_pool = pool
    return connection


class _OwnClient(Redis):
    """One that closes all that was opened for it."""

    def close(self) -> None:
        super().close()
        _close_sentinels(self.connection_pool)


def _close_sentinels(pool: Any) -> None:
    """Close the connections on which the Sentinels were asked; they open again when they are asked again."""
    for sentinel in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
        sentinel.close()


def _unconnected(connection: _JobConnection, timeout_ms: int) -> Any:
    """A channel that knows how to connect, and has not: kombu's own reading of URLs and options, without its ping."""
    base = SentinelChannel if connection.transport_cls == "sentinel" else Channel
    channel = base.__new__(base)
    channel.connection = connection.transport
    channel._registered = False
    for option in channel.from_transport_options:
        if option in connection.transport_options:
            setattr(channel, option, connection.transport_options[option])
    channel.max_connections = 10_000  # as many as there are threads that send at once; kombu's limit of 10 is for its own pool
    channel.socket_timeout = channel.socket_connect_timeout = timeout_ms / 1000
    if base is SentinelChannel:
        channel.sentinel_kwargs = {**channel.sentinel_kwargs, **_limits(timeout_ms / 1000)}
    return channel


def _limits(timeout_s: float) -> dict[str, Any]:
    return {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}


def _for_sentinels(options: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """How Sentinels are asked: once each, since there are others. Redis-py would wait seconds for one that is dead."""
    return {**_limits(timeout_s), "retry": Retry(NoBackoff(), 0), **(options.get("sentinel_kwargs") or {})}
