"""A mail server that keeps what it is sent: it can refuse, and it can accept a mail and lose the answer.

Without it a test could not tell what a mail provider has seen when a worker dies.
"""

from __future__ import annotations

import socketserver
import threading
from email import message_from_bytes
from email.message import Message
from email.policy import default

from tests.support.ports import LOOPBACK


class SmtpSink:
    """Speaks as much SMTP as Django does; a context manager.

    ``mails``: what was accepted, in order. ``refuse``: answers to the next recipients, such as "550 no such user".
    ``holding``: set, a mail is accepted and the answer kept back until it is cleared.
    """

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.refuse: list[str] = []
        self.holding = threading.Event()
        self._server = _Server((LOOPBACK, 0), _Session)
        self._server.sink = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> SmtpSink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.holding.clear()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    sink: SmtpSink


class _Session(socketserver.StreamRequestHandler):
    """One connection."""

    server: _Server

    def handle(self) -> None:
        self._say("220 sink")
        for line in self.rfile:
            verb = line.decode("ascii", "replace").strip().upper()
            if verb.startswith("QUIT"):
                return self._say("221 bye")
            self._answer(verb)

    def _answer(self, verb: str) -> None:
        sink = self.server.sink
        if verb.startswith("RCPT") and sink.refuse:
            self._say(sink.refuse.pop(0))
        elif verb == "DATA":
            self._say("354 go on")
            self._accept()
        else:
            self._say("250 ok")

    def _accept(self) -> None:
        lines = []
        for line in self.rfile:
            if line == b".\r\n":
                break
            lines.append(line.removeprefix(b"."))
        sink = self.server.sink
        sink.mails.append(message_from_bytes(b"".join(lines), policy=default))
        held = sink.holding.is_set()
        while sink.holding.is_set():
            if not self._still_there():
                return
        if not held:
            self._say("250 accepted")

    def _still_there(self) -> bool:
        self.connection.settimeout(0.05)
        try:
            return bool(self.connection.recv(1))
        except TimeoutError:
            return True
        except OSError:
            return False
        finally:
            self.connection.settimeout(None)

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())
