"""One line of a case: what the seed says, what was seen here, and whether they agree."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    what: str
    seed: str
    seen: str

    @property
    def holds(self) -> bool:
        return self.seed == self.seen


@dataclass(frozen=True)
class Paint:
    """Colours for a terminal, plain text for a file."""

    on: bool

    def green(self, text: str) -> str:
        return self.paint("32", text)

    def red(self, text: str) -> str:
        return self.paint("31", text)

    def bold(self, text: str) -> str:
        return self.paint("1", text)

    def paint(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.on else text


def show(lines: Iterable[Line], paint: Paint) -> list[Line]:
    """Print each line as it comes, seed above sight, and return all of them."""
    shown = []
    for line in lines:
        mark = paint.green("✓") if line.holds else paint.red("✗")
        print(f"  {mark} {line.what}\n      seed  {line.seed}\n      here  {line.seen}", flush=True)
        shown.append(line)
    return shown
