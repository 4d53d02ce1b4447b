"""A TCP proxy on loopback between a client and Redis that can cut, stall, slow down, reset, lose the answers, or alter them.

Without it the network could only fail in the one way that killing Redis makes it fail, and never between a request and
its answer.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
from types import TracebackType

from tests.support.ports import LOOPBACK
from tests.support.waiting import let_pass

CHUNK_BYTES = 65536

# SO_LINGER on, for 0 s: close() sends a reset instead of an orderly end.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TcpProxy:
    """Forward a port of its own to a target port on loopback; `start` it, or use it as a context manager."""

    def __init__(self, target_port: int, host: str = LOOPBACK) -> None:
        self.target_port = target_port
        self._host = host
        self.port = 0
        self._listener: socket.socket | None = None
        self._pairs: set[_Pair] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._losing = 0.0
        self._delay_s = 0.0
        self._passing = 0
        self._words: dict[bytes, bytes] = {}

    def __enter__(self) -> TcpProxy:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> TcpProxy:
        """Listen, on a free port the first time and on the same one ever after."""
        listener = socket.create_server((self._host, self.port))
        self.port = int(listener.getsockname()[1])
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True, name="proxy-accept").start()
        return self

    def url(self, db: int = 0) -> str:
        """Return the address as Celery and redis-py take it."""
        return f"redis://{self._host}:{self.port}/{db}"

    @property
    def connections(self) -> int:
        """How many connections go through now."""
        with self._lock:
            return len(self._pairs)

    def cut(self) -> None:
        """Reset every connection and refuse new ones, as a dead host would, until `restore`."""
        listener, self._listener = self._listener, None
        if listener:
            # Closing alone would leave the thread in accept() holding the port open.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.reset()

    def restore(self) -> None:
        """Undo `cut`, `stall`, `slow`, `lose_answers` and `alter_answers`."""
        self._losing = self._delay_s = 0.0
        self._words = {}
        self.resume()
        if self._listener is None:
            self.start()

    def reset(self) -> None:
        """Reset every connection there is; new ones are welcome."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.close()

    def stall(self) -> None:
        """Let nothing through any more in either direction, with all connections open, until `resume`.

        New connections are accepted, as by a host behind a full queue, and hang.
        """
        self._flowing.clear()

    def resume(self) -> None:
        """Undo `stall`; what was held back arrives."""
        self._flowing.set()

    def slow(self, delay_s: float) -> None:
        """Hold back each piece for so long, in either direction, until `restore`."""
        self._delay_s = delay_s

    def lose_answers(self, most: float = math.inf) -> None:
        """Bring each request to Redis, then reset the connection in place of its answer, so many times or until
        `restore`: the caller cannot know whether it was carried out."""
        self._losing = most

    def lose_answer(self, nth: int) -> None:
        """Lose one answer as above, the nth from now on."""
        self._passing, self._losing = nth - 1, 1

    def alter_answers(self, words: dict[bytes, bytes]) -> None:
        """Put other words of the same length into the answers, until `restore`: a server that says it is an older one."""
        assert all(len(old) == len(new) for old, new in words.items()), "the lengths are part of the protocol"
        self._words = words

    def close(self) -> None:
        """End the proxy and all that goes through it."""
        self.cut()
        self.resume()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((LOOPBACK, self.target_port))
        except OSError:
            client.close()
            return
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = _Pair(client, server)
        with self._lock:
            self._pairs.add(pair)
        for source, sink, answers in ((client, server, False), (server, client, True)):
            threading.Thread(
                target=self._pump, args=(pair, source, sink, answers), daemon=True, name="proxy-pump"
            ).start()

    def _pump(self, pair: _Pair, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                if self._delay_s:
                    let_pass(self._delay_s, because="the network is slow")
                self._flowing.wait()
                if answers and self._loses():
                    break
                sink.sendall(self._altered(chunk) if answers else chunk)
        with self._lock:
            self._pairs.discard(pair)
        pair.close()

    def _loses(self) -> bool:
        if self._losing <= 0:
            return False
        if self._passing:
            self._passing -= 1
            return False
        self._losing -= 1
        return True

    def _altered(self, chunk: bytes) -> bytes:
        for old, new in self._words.items():
            chunk = chunk.replace(old, new)
        return chunk


class _Pair:
    """The two sockets of one connection, closed together and once."""

    def __init__(self, *sockets: socket.socket) -> None:
        self._sockets = sockets

    def close(self) -> None:
        for side in self._sockets:
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                side.shutdown(socket.SHUT_RD)
            side.close()
