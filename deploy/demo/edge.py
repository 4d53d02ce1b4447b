"""The cache in front of the site, as far as ticketing knows it: it is told to drop a map, and here it can be slow.

While it does not answer, a render-seat-map job has stored its drawing and has not returned. Without it the third case would
have to hit a moment of microseconds, or the product would need a hook for tests.
"""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Purge:
    """One order to drop a map, and what the run that sent it knew of itself."""

    job: str
    attempts_made: int
    stalled_count: int


class Edge(ThreadingHTTPServer):
    """A server on a free port, in a thread of this process."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.purges: list[Purge] = []
        self.answering = threading.Event()
        self.answering.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/purge"

    def start(self) -> "Edge":
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def stop(self) -> None:
        self.answering.set()
        self.shutdown()
        self.server_close()

    def purges_of(self, job_id: str) -> list[Purge]:
        return [purge for purge in self.purges if purge.job == job_id]


class Handler(BaseHTTPRequestHandler):
    server: Edge

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        made, stalled = self.headers["X-Job-Attempts-Made"], self.headers["X-Job-Stalled-Count"]
        self.server.purges.append(Purge(self.headers["X-Job-Id"], int(made), int(stalled)))
        self.server.answering.wait()
        self.answer()

    def answer(self) -> None:
        try:
            self.send_response(204)
            self.end_headers()
        except ConnectionError:
            pass  # The asker was killed meanwhile, as planned.

    def log_message(self, *args: object) -> None:
        """Keep the demo's output to the transcript."""
