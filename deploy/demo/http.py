"""The demo's own little HTTP client: it talks to the site as any customer would, from outside."""

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

TIMEOUT_S = 30


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    def __str__(self) -> str:
        return f"{self.status} {self.text}"


@dataclass(frozen=True)
class Site:
    """A server by its address, such as http://127.0.0.1:8000."""

    url: str

    def get(self, path: str) -> Answer:
        return send(Request(f"{self.url}{path}"))

    def post(self, path: str, body: dict[str, Any] | None = None) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        return send(Request(f"{self.url}{path}", data, {"Content-Type": "application/json"}, method="POST"))

    def answers(self, path: str = "/") -> bool:
        """Say whether anything is answered yet."""
        try:
            return self.get(path).status < 500
        except (URLError, ConnectionError):
            return False


def send(request: Request) -> Answer:
    try:
        with urlopen(request, timeout=TIMEOUT_S) as response:
            return Answer(response.status, response.read().decode(), dict(response.headers))
    except HTTPError as refused:
        with refused:
            return Answer(refused.code, refused.read().decode(), dict(refused.headers))
