"""Shows how far a long command is: a bar on a terminal, a line now and then in a log; without it a rate of two a second
looks like a hang.
"""

from __future__ import annotations

import time
from typing import Any, Final

_WIDTH: Final = 30
#: Seconds between two drawings of the bar, and between two lines where there is no terminal.
_REDRAW_S: Final = 0.1
_LINE_S: Final = 5.0


class Progress:
    """Counts up to ``total`` on ``stream``; a context manager, which leaves the last count standing."""

    def __init__(self, stream: Any, doing: str, total: int) -> None:
        self._stream, self._doing, self._total = stream, doing, total
        self._on_terminal = bool(stream.isatty())
        self._done = 0
        self._said_at = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._on_terminal and self._done:
            self._draw()
            self._write("\n")

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        now = time.monotonic()
        if now - self._said_at < (_REDRAW_S if self._on_terminal else _LINE_S):
            return
        self._said_at = now
        if self._on_terminal:
            self._draw()
        else:
            self._write(f"{self._doing} {self._done} of {self._total}\n")

    def _draw(self) -> None:
        full = _WIDTH * self._done // max(1, self._total)
        self._write(f"\r{self._doing} [{'#' * full}{'.' * (_WIDTH - full)}] {self._done} of {self._total}")

    def _write(self, text: str) -> None:
        self._stream.write(text, ending="")
        self._stream.flush()
