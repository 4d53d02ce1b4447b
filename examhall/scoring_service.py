"""The scoring service, as a process of its own: `python -m examhall.scoring_service --port 8100`.

It stands in for the one that another team runs, and can be told to rehearse its bad days (`POST /control`); without that,
nobody would know what a retry does until the first outage at exam close. It listens on the loopback address alone and needs
no database.
"""

import argparse
import json
import signal
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examhall.grading import Question, grade, letters

# Enough for a rehearsal; a service that is left running must not grow.
CALLS_KEPT = 1000


@dataclass
class Call:
    """One request for a score: who asked, in which run of which job, and what was answered (0 while it is held)."""

    attempt: str
    job: str
    attempts_made: str
    answered: int = 0


class Rehearsal:
    """What the next calls meet: refusal for some number of them, silence until released, or so much time to think."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._fail_next = 0
        self._holding = False
        self._held = 0
        self._latency_ms = 0
        self._calls: deque[Call] = deque(maxlen=CALLS_KEPT)

    def tell(self, fail_next: int | None = None, hold: bool | None = None, latency_ms: int | None = None) -> None:
        """Set how many of the next calls fail, how long each takes, or begin or end the holding."""
        with self._changed:
            self._latency_ms = self._latency_ms if latency_ms is None else max(0, int(latency_ms))
            self._fail_next = self._fail_next if fail_next is None else fail_next
            self._holding = self._holding if hold is None else hold
            self._changed.notify_all()

    def admit(self, call: Call) -> bool:
        """Note the call, keep it while calls are held, and return whether it may be answered."""
        with self._changed:
            self._calls.append(call)
            self._held += 1
            self._changed.wait_for(lambda: not self._holding)
            self._held -= 1
            thinks_s = self._latency_ms / 1000
            refuse = self._fail_next > 0
            self._fail_next -= refuse
        time.sleep(thinks_s)
        return not refuse

    def report(self) -> dict[str, Any]:
        with self._changed:
            calls = [asdict(call) for call in self._calls]
            return {"holding": self._holding, "held": self._held, "fail_next": self._fail_next, "calls": calls}


class ScoringServer(ThreadingHTTPServer):
    daemon_threads = True
    # At exam close all workers call at once; the default of 5 would turn some away.
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.rehearsal = Rehearsal()


class Handler(BaseHTTPRequestHandler):
    server: ScoringServer

    def do_GET(self) -> None:
        """Answer `/health`, and `/control` with what is being rehearsed and the calls so far."""
        answers = {"/health": lambda: {"status": "ok"}, "/control": self.server.rehearsal.report}
        if self.path in answers:
            self.reply(200, answers[self.path]())
        else:
            self.reply(404, {"error": "there are /health, /control and /score"})

    def do_POST(self) -> None:
        routes = {"/score": self.score, "/control": self.control}
        try:
            routes.get(self.path, self.lost)(self.body())
        except (ValueError, TypeError, KeyError) as fault:
            self.reply(400, {"error": f"the request cannot be used: {fault!r}"})

    def score(self, sheet: dict[str, Any]) -> None:
        key = [Question(item["number"], letters(item["right"]), item["weight"]) for item in sheet["questions"]]
        answers = {int(number): given for number, given in sheet["answers"].items()}
        call = Call(sheet["attempt"], self.headers.get("X-Job-Id", ""), self.headers.get("X-Job-Attempts-Made", ""))
        willing = self.server.rehearsal.admit(call)
        call.answered = 200 if willing else 503
        self.reply(call.answered, {"score": grade(key, answers)} if willing else {"error": "not now"})

    def control(self, wanted: dict[str, Any]) -> None:
        self.server.rehearsal.tell(**wanted)
        self.reply(200, self.server.rehearsal.report())

    def lost(self, _body: dict[str, Any]) -> None:
        self.reply(404, {"error": "there are /score and /control"})

    def body(self) -> dict[str, Any]:
        return dict(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

    def reply(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8100)
    server = ScoringServer(parser.parse_args().port)
    # shutdown() waits for serve_forever() to return, and the signal arrives in the thread that runs it.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
