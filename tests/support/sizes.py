"""Measure functions, files and scripts against the sizes this project sets itself; run as a program it prints them.

Without it the one function that everybody adds three lines to would be noticed when it has two hundred.
"""

from __future__ import annotations

import ast
import io
import itertools
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[2]

# The house rule, and the slack before it fails: a rule of thumb may be broken a little where that reads better.
BODY_LINES, MEAN_BODY_LINES, FILE_LINES, SCRIPT_LINES = 25, 10, 300, 40
SLACK = 1.5


@dataclass(frozen=True, order=True)
class Size:
    """How long something is, and what it is."""

    lines: int
    what: str


@dataclass(frozen=True)
class Report:
    """All sizes, each list longest first."""

    bodies: list[Size]
    files: list[Size]
    scripts: list[Size]

    @property
    def mean_body(self) -> float:
        """Mean lines of a function's body."""
        return mean(size.lines for size in self.bodies) if self.bodies else 0.0

    def too_long(self) -> list[str]:
        """Return a line for each size that is past its limit and the slack."""
        limits = ((self.bodies, BODY_LINES), (self.files, FILE_LINES), (self.scripts, SCRIPT_LINES))
        worst = [f"{s.what}: {s.lines} lines, {most} is the rule" for sizes, most in limits for s in _past(sizes, most)]
        if self.mean_body > MEAN_BODY_LINES * SLACK:
            worst.append(f"mean function body: {self.mean_body:.1f} lines, {MEAN_BODY_LINES} is the rule")
        return worst

    def text(self, most: int = 5) -> str:
        """Return the report for people: the rule, then the longest of each kind."""
        parts = [
            _part(
                f"function bodies (rule {BODY_LINES}; mean {self.mean_body:.1f}, rule {MEAN_BODY_LINES})",
                self.bodies[:most],
            ),
            _part(f"files (rule {FILE_LINES})", self.files[:most]),
            _part(f"scripts (rule {SCRIPT_LINES})", self.scripts[:most]),
        ]
        return "\n".join(parts)


def _past(sizes: list[Size], most: int) -> list[Size]:
    return [size for size in sizes if size.lines > most * SLACK]


def _part(title: str, sizes: list[Size]) -> str:
    return "\n".join([f"Longest {title}:", *(f"  {size.lines:4} {size.what}" for size in sizes)])


def tracked_files(*patterns: str) -> list[Path]:
    """Return the project's own files: those git knows or would add; all outside hidden folders where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        found = [p for pattern in patterns for p in ROOT.rglob(pattern) if not _is_hidden(p)]
    return sorted(path for path in set(found) if path.is_file())


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(ROOT).parts)


def measure() -> Report:
    """Measure all Python outside migrations and test modules, and all Lua."""
    sources = [path for path in tracked_files("*.py") if _counts(path)]
    bodies = [size for path in sources for size in _bodies(path)]
    files = [Size(_length(path), _name(path)) for path in sources]
    scripts = [Size(_length(path), _name(path)) for path in tracked_files("*.lua") if not is_shared(path)]
    return Report(*(sorted(sizes, reverse=True) for sizes in (bodies, files, scripts)))


def is_shared(script: Path) -> bool:
    """Say whether a script is a library of steps that the loader puts before others, and not itself a move."""
    return "The loader puts this file" in opening_comment(script)


def opening_comment(script: Path) -> str:
    """Return the comment lines that a Lua file opens with."""
    return "\n".join(itertools.takewhile(lambda line: line.startswith("--"), script.read_text().splitlines()))


def _counts(path: Path) -> bool:
    # Test modules are lists of cases: long ones are fine.
    return "migrations" not in path.parts and not path.name.startswith("test_")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _length(path: Path) -> int:
    return len(path.read_text().splitlines())


def _bodies(path: Path) -> Iterator[Size]:
    text = path.read_text()
    code = _lines_with_code(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (body := _without_docstring(node.body)):
            lines = range(body[0].lineno, (node.end_lineno or 0) + 1)
            yield Size(len(code.intersection(lines)), f"{_name(path)}:{node.lineno} {node.name}")


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else body


def _lines_with_code(text: str) -> set[int]:
    # Blank lines and comments do not make a function long.
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    return set(_spanned(t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in silent))


def _spanned(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[int]:
    for token in tokens:
        yield from range(token.start[0], token.end[0] + 1)


def main() -> int:
    """Print the report; the exit status says whether something is past its limit and the slack."""
    report = measure()
    print(report.text())
    print(*report.too_long(), sep="\n")
    return 1 if report.too_long() else 0


if __name__ == "__main__":
    sys.exit(main())
