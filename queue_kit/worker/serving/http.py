"""Answers probes and scrapers on the worker's own port, whatever the main loop and the pool are busy with.

Without it an orchestrator could not tell a worker that waits from one that hangs. Threads and sockets here are real ones under
gevent too, where those of the standard library's servers would be the main loop's; and whoever connects may be slow or hostile:
a connection has its time, its size and its place among few, and the oldest makes room.
"""

from __future__ import annotations

import _socket
import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from socket import AI_PASSIVE, SHUT_RDWR, SHUT_WR, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, getaddrinfo
from time import monotonic
from typing import Any, Final

from redis import Redis

from queue_kit.worker.roles.role import Role, new_lock

logger = logging.getLogger(__name__)

#: Seconds that one connection may take, from its first byte to our last.
_TIME_S: Final = 5.0
#: Bytes of a request, whose body nobody reads.
_REQUEST_MOST: Final = 8_192
#: Connections at a time.
_MOST: Final = 16
#: Those that the kernel keeps until they are accepted: one that it drops comes again a second later, too late for a probe.
_IN_LINE: Final = 128
#: How often to look whether the worker ends; how often to try again where the port is taken.
_LOOK_S, _AGAIN_S = 0.25, 2.0

_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    status: int
    body: bytes
    content_type: str = "application/json"


def said(status: int, /, **facts: Any) -> Page:
    """An answer in JSON."""
    return Page(status, json.dumps(facts).encode())


class HttpServer(Role):
    """Listens, and answers each connection on a thread of its own. ``pages``: what makes the answer, by path."""

    name = "http"

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[], Page]]) -> None:
        super().__init__(_no_client, 0.0)
        self._host, self._port, self._pages = host, port, pages
        self._listener: Any = None
        self._told = False
        self._open: dict[Any, bool] = {}  # and whether its request has come
        self._lock = new_lock()

    def start(self) -> None:
        """Listen from now on; where the port is taken, once it is free."""
        os.register_at_fork(after_in_child=self._in_a_child)
        super().start()

    def _in_a_child(self) -> None:
        """A process of the pool has copies of the sockets, which would hold the port when its parent is gone."""
        for copy in (self._listener, *self._open):
            if copy is not None:
                copy.close()

    def tick(self) -> None:
        """Wait a little for a connection."""
        if self._listener is None:
            return self._listen()
        try:
            fd, _ = self._listener._accept()
        except TimeoutError:
            return None
        except OSError as error:  # too many open files, say
            logger.warning("a connection to the metrics port could not be taken: %s", error)
            self._every_s = _LOOK_S
            return None
        self._every_s = 0.0
        self._serve(_socket.socket(self._listener.family, SOCK_STREAM, 0, fd))

    def leave(self) -> None:
        """Close the listening socket; by its own thread."""
        if self._listener is not None:
            self._listener.close()

    def _loop(self) -> None:
        try:
            super()._loop()
        finally:
            self.leave()

    def _listen(self) -> None:
        try:
            self._listener = _listening(self._host, self._port)
        except OSError as error:
            self._every_s = _AGAIN_S
            if not self._told:
                logger.warning("metrics and health are not served: %s:%d: %s", self._host, self._port, error.strerror or error)
            self._told = True
        else:
            self._every_s = 0.0
            logger.info("metrics and health are served on http://%s:%d", self._host, self._port)

    def _serve(self, connection: Any) -> None:
        with self._lock:
            oldest = self._oldest() if len(self._open) >= _MOST else None
            self._open.pop(oldest, None)
            self._open[connection] = False
        if oldest is not None:  # its thread finds it closed
            with suppress(OSError):
                oldest.shutdown(SHUT_RDWR)
        try:
            self._start(self._converse, (connection,))
        except RuntimeError:  # no thread to be had
            self._forget(connection)

    def _oldest(self) -> Any:
        """Of those that have said nothing yet, if there are such: they are the ones that somebody may open in numbers."""
        return next((one for one, has_come in self._open.items() if not has_come), next(iter(self._open)))

    def _converse(self, connection: Any) -> None:
        until = monotonic() + _TIME_S
        try:
            request = _request(connection, until)
            with self._lock:
                if connection in self._open:
                    self._open[connection] = True
            _answer(connection, until, self._page(request))
        except OSError:  # it went away, or was too slow
            pass
        finally:
            self._forget(connection)

    def _forget(self, connection: Any) -> None:
        with self._lock:
            self._open.pop(connection, None)
        connection.close()

    def _page(self, request: bytes | int) -> tuple[Page, bool]:
        """The answer, and whether it goes without its body."""
        if isinstance(request, int):
            return said(request, error=_REASONS[request]), False
        method, _, rest = request.partition(b" ")
        path, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/"):
            return said(400, error="an HTTP request is needed"), False
        if method not in (b"GET", b"HEAD"):
            return said(405, error="only GET and HEAD are answered"), False
        make = self._pages.get(path.partition(b"?")[0].decode("ascii", "replace"))
        if make is None:
            return said(404, error=f"there are {', '.join(self._pages)}"), method == b"HEAD"
        return _made(make), method == b"HEAD"


def _no_client() -> Redis:
    raise RuntimeError("it asks Redis nothing")


def _made(make: Callable[[], Page]) -> Page:
    try:
        return make()
    except Exception:
        logger.exception("a probe could not be answered")
        return said(500, error=_REASONS[500])


def _listening(host: str, port: int) -> Any:
    family, kind, proto, _, address = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)[0]
    listener = _socket.socket(family, kind, proto)
    try:
        listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_IN_LINE)
        listener.settimeout(_LOOK_S)
    except OSError:
        listener.close()
        raise
    return listener


def _request(connection: Any, until: float) -> bytes | int:
    """The first line of a request, once its head is there; or the status that says why not."""
    head = b""
    while (end := head.find(b"\r\n\r\n")) < 0 and len(head) <= _REQUEST_MOST:
        connection.settimeout(max(0.001, until - monotonic()))
        try:
            part = connection.recv(_REQUEST_MOST)
        except TimeoutError:
            return 408
        if not part:
            return 400
        head += part
    return 431 if end < 0 or end > _REQUEST_MOST else head.split(b"\r\n", 1)[0]


def _answer(connection: Any, until: float, answer: tuple[Page, bool]) -> None:
    page, bodiless = answer
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n"
        + ("Allow: GET, HEAD\r\n" if page.status == 405 else "")
    )
    connection.settimeout(max(0.1, until - monotonic()))
    connection.sendall(f"{head}\r\n".encode() + (b"" if bodiless else page.body))
    connection.shutdown(SHUT_WR)
    # What is still coming in is read for a moment: to close now would tear down the answer with it.
    connection.settimeout(_LOOK_S)
    left = 8
    while left and connection.recv(_REQUEST_MOST):
        left -= 1
