"""Asks over HTTP as a probe or a scraper does, past any client library's own retries, and reads metrics.

Without it each test would read status, body and duration of an answer in its own way.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.ports import LOOPBACK
from tests.support.waiting import Stopwatch


@dataclass(frozen=True)
class Answer:
    """What came back, and after how long."""

    status: int
    text: str
    headers: dict[str, str]
    after_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(port: int, path: str, method: str = "GET", within_s: float = 10.0, host: str = LOOPBACK) -> Answer:
    """Send one request and read the answer."""
    watch = Stopwatch()
    connection = HTTPConnection(host, port, timeout=within_s)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read().decode()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, body, headers, watch.elapsed_s)
    finally:
        connection.close()


def tell(port: int, words: bytes, within_s: float = 10.0) -> bytes:
    """Send bytes as they are, and return all that comes back until the other side ends."""
    with socket.create_connection((LOOPBACK, port), within_s) as line:
        line.sendall(words)
        came = b""
        while part := line.recv(65_536):
            came += part
        return came


def series(text: str) -> dict[tuple[str, ...], float]:
    """The values of metrics, by name and the values of the labels in the order of their names."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families for sample in family.samples
    }  # fmt: skip
