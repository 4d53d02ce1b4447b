"""How a process without our libraries reaches the servers of a connection, in words that JSON can carry; without it the warden
would work for plain URLs only.
"""

from __future__ import annotations

from typing import Any

from queue_kit.store import wire

#: What of a TLS connection of redis-py its context follows from.
_TLS = ("keyfile", "certfile", "certificate_password", "ca_certs", "ca_path", "ca_data", "check_hostname", "ssl_ciphers")


def reach(connection: Any, timeout_ms: int) -> list[dict[str, Any]]:
    """Every server that a job connection may be for: each URL of a list is one of its own, those of Sentinels are all one's."""
    return [_server(one.unconnected_pool(timeout_ms)) for one in connection.servers()]


def _server(pool: Any) -> dict[str, Any]:
    sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", ())
    described = _address(pool)
    if sentinels:
        described["sentinels"] = [_address(sentinel.connection_pool) for sentinel in sentinels]
        described["question"] = _text(wire.question_for_primary(pool.service_name))
    return described


def _address(pool: Any) -> dict[str, Any]:
    """One connection's target and what it says first, as redis-py has understood its options; it is made, and not connected."""
    made = pool.connection_class(**pool.connection_kwargs)
    provider = getattr(made, "credential_provider", None)
    credentials = provider.get_credentials() if provider else [word for word in (made.username, made.password) if word]
    return {
        "host": getattr(made, "host", ""), "port": getattr(made, "port", 0), "path": getattr(made, "path", ""),
        "hello": [_text(command) for command in wire.greeting(credentials, int(made.db or 0))], "tls": _tls(made),
    }  # fmt: skip


def _tls(made: Any) -> dict[str, Any] | None:
    if not hasattr(made, "cert_reqs"):
        return None
    least = made.ssl_min_version
    return {**{name: getattr(made, name) for name in _TLS}, "verify": int(made.cert_reqs), "least": least and int(least)}


def _text(command: bytes) -> str:
    """Bytes one by one, since JSON has none."""
    return command.decode("latin-1")
