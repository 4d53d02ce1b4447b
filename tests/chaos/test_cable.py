"""A partition by namespaces: what is sent over a cable that is pulled comes once it is plugged in again, and nobody was told."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from tests.support.cable import Cable, permitted
from tests.support.processes import ROOT, kill_session, spawn
from tests.support.waiting import stays_true, wait_until

SAYS_WHAT_IT_HEARS = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as one:
    while word := one.recv(100):
        one.sendall(word.upper())
"""


def test_a_pulled_cable_delays_and_tells_nobody(tmp_path: Path) -> None:
    """B14: where the machine permits namespaces; elsewhere `make chaos` has its proxies alone."""
    if not permitted():
        return
    cable = Cable().start()
    with socket.create_server((cable.host, 0)) as server:
        words = [*cable.inside, sys.executable, "-c", SAYS_WHAT_IT_HEARS, cable.host, str(server.getsockname()[1])]
        process = spawn(words, log=tmp_path / "log", cwd=ROOT)
        ours, _ = server.accept()
        with ours:
            ours.sendall(b"one")
            assert ours.recv(100) == b"ONE"
            cable.pull()
            ours.sendall(b"two")
            ours.setblocking(False)
            stays_true(lambda: _heard(ours) == b"", says="nothing comes, and no error", for_s=0.3)
            cable.plug()
            wait_until(lambda: _heard(ours) == b"TWO", says="it comes", within_s=20)
    kill_session(process)
    cable.close()


def _heard(ours: socket.socket) -> bytes:
    try:
        return ours.recv(100)
    except BlockingIOError:
        return b""
