"""Free TCP ports on loopback, so that no two servers of a test run, nor of two runs at once, want the same one."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a port nobody listens on now.

    Another process could take it before the caller does; the kernel hands such ports out in a wide circle, so that
    this needs tens of thousands of picks in between.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def is_listening(port: int, within_s: float = 0.2) -> bool:
    """Say whether something accepts connections on this loopback port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=within_s).close()
    except OSError:
        return False
    return True
