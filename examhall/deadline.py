"""A crowd that hands in at the bell, over HTTP, each candidate on a connection of its own; without it a rush would be a guess."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event
from urllib.parse import urlsplit

# A browser waits longer; a candidate who looks at nothing for a minute does not.
PATIENCE_S = 60


@dataclass(frozen=True)
class Answer:
    """What a candidate got, and after how long; `said` is the status, or the kind of error where there was no answer."""

    said: str
    took_ms: float

    @property
    def accepted(self) -> bool:
        return self.said in ("200", "202")


@dataclass
class Outcome:
    """One rush: the answers, and how long after the bell the last score was there (None: not in time)."""

    answers: list[Answer] = field(default_factory=list)
    all_graded_s: float | None = None

    @property
    def took_ms(self) -> list[float]:
        return [answer.took_ms for answer in self.answers]

    @property
    def accepted(self) -> int:
        return sum(answer.accepted for answer in self.answers)

    def errors(self) -> str:
        refused = Counter(answer.said for answer in self.answers if not answer.accepted)
        return ", ".join(f"{count} x {said}" for said, count in sorted(refused.items())) or "none"


def rush(urls: Sequence[str], body: bytes, concurrency: int, advance: Callable[[], None]) -> list[Answer]:
    """Post a sheet to each address as soon as the bell rings, so many at a time; say after each that one more is done."""
    bell = Event()

    def candidate(url: str) -> Answer:
        bell.wait()
        return post(url, body)

    with ThreadPoolExecutor(concurrency) as crowd:
        handing_in = [crowd.submit(candidate, url) for url in urls]
        bell.set()
        answers = []
        for done in as_completed(handing_in):
            answers.append(done.result())
            advance()
    return answers


def post(url: str, body: bytes) -> Answer:
    began = time.monotonic()
    try:
        said = str(status_of(url, body))
    except (OSError, HTTPException) as error:
        said = type(error).__name__
    return Answer(said, (time.monotonic() - began) * 1000)


def status_of(url: str, body: bytes) -> int:
    where = urlsplit(url)
    kind = HTTPSConnection if where.scheme == "https" else HTTPConnection
    connection = kind(where.netloc, timeout=PATIENCE_S)
    try:
        connection.request("POST", f"{where.path}?{where.query}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def percentile(values: Sequence[float], share: int) -> float:
    """Return the smallest value that so many of a hundred do not exceed; 0 without values."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share / 100 * len(ranked)) - 1)] if ranked else 0.0
