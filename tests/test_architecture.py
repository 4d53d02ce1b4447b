"""The shape of the project: sizes, directions of imports, scripts, and words that do not belong in it.

Without it the house rules would be a page that nobody reads, and the first exception would be the last.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support.processes import ROOT
from tests.support.sizes import is_shared, measure, opening_comment, tracked_files

LIBRARY = ROOT / "queue_kit"
SCRIPTS = tracked_files("queue_kit/store/lua/*.lua")
PYTHON = tracked_files("*.py")
TESTS = [path for path in PYTHON if path.is_relative_to(ROOT / "tests")]

# Folders of one machine: a home, or what people mount a checkout as.
A_MACHINES_PATH = re.compile(r"(?<![\w.$}])/(?:root|Users|home|work|workspace)/[\w.]")
A_DOWNLOAD = re.compile(r"https?://[^\s\"']+\.(?:whl|tar\.gz|tgz)\b")

# Methods of a Redis client; not among them what other objects have too: get, set, delete, append, ping, close, time.
A_COMMAND = re.compile(
    r"execute_command|evalsha?|script_load|scan_iter|mget|incr|setnx|p?setex|p?expire(?:at)?"
    r"|h(?:m?get|getall|m?set|setnx|del|incrby)|s(?:add|card|rem|members|ismember)|b?[lr](?:push|pop|move)"
    r"|l(?:len|range|rem|index)|x(?:add|len|range|read|revrange|trim)"
    r"|z(?:add|card|count|incrby|popmin|popmax|range\w*|rank|rem\w*|score)"
)
A_KEY = re.compile(r"\bqwk:|:q:|:job:|:dead:")

# Tests wait for events, and are neither skipped nor expected to fail.
A_SKIP = re.compile(r"\bpytest\.(?:skip|xfail|importorskip)\(|\bmark\.(?:skip|skipif|xfail|flaky)\b")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def places(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Return file, line and text of each match in files that are text."""
    found = []
    for path in paths:
        lines = path.read_text(errors="ignore").splitlines()
        found += [f"{name(path)}:{n} {line.strip()}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def test_functions_files_and_scripts_are_short() -> None:
    report = measure()
    print(report.text(most=10))
    assert report.too_long() == []


def test_imports_go_down_the_floors_only() -> None:
    contracts = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert contracts.returncode == 0, contracts.stdout + contracts.stderr


def test_no_import_contract_has_exceptions_and_every_floor_is_under_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert [c["id"] for c in contracts if "ignore_imports" in c] == []
    below_django = {p.stem for p in LIBRARY.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    without_django = next(c for c in contracts if c["id"] == "no-django")["source_modules"]
    assert {f"queue_kit.{m}" for m in below_django - {"__init__", "django"}} == set(without_django)


def test_every_script_opens_with_its_contract() -> None:
    assert [fault for script in SCRIPTS for fault in faults_of_contract(script)] == []


def faults_of_contract(script: Path) -> list[str]:
    """Return a line for each part that the comment at a move's top does not have; a library has only to say what it is."""
    head = opening_comment(script)
    parts = ("--",) if is_shared(script) else (f"-- {script.stem}:", "Arguments:", "Keys:", "Returns")
    return [f"{name(script)} does not open with {part!r}" for part in parts if part not in head]


def test_only_the_store_builds_redis_commands_and_knows_keys() -> None:
    others = [p for p in PYTHON if p.is_relative_to(LIBRARY) and not p.is_relative_to(LIBRARY / "store")]
    assert [f"{name(path)}:{n} {what}" for path in others for n, what in redis_words(path)] == []


def redis_words(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and word of each call named like a Redis command, and each text that is part of a key.

    Carrying what the store prepared, `execute_command(*call.command)`, is neither.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr="execute_command"), args=[ast.Starred()]):
                pass
            case ast.Call(func=ast.Attribute(attr=attr)) if A_COMMAND.fullmatch(attr):
                yield node.lineno, f".{attr}()"
            case ast.Constant(value=str(text)) if A_KEY.search(text):
                yield node.lineno, repr(text)


def test_every_module_says_what_it_is() -> None:
    modules = [path for path in PYTHON if "migrations" not in path.parts and path.read_text().strip()]
    assert [name(path) for path in modules if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    own = ROOT / "tests" / "test_architecture.py"
    assert places(A_MACHINES_PATH, [path for path in tracked_files("*") if path != own]) == []


def test_no_file_downloads_from_a_fixed_address() -> None:
    assert places(A_DOWNLOAD, tracked_files("*")) == []


def test_only_waiting_sleeps_in_tests() -> None:
    # What a task of a test app does in its worker is the work itself.
    waits = [p for p in TESTS if name(p) != "tests/support/waiting.py" and "apps" not in p.parts]
    assert [f"{name(path)}:{line}" for path in waits for line in sleeps(path)] == []


def sleeps(path: Path) -> list[int]:
    """Return the lines that call a function named sleep."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [c.lineno for c in calls if ast.unparse(c.func) in {"sleep", "time.sleep", "asyncio.sleep", "gevent.sleep"}]


def test_tests_are_skipped_for_a_missing_service_alone() -> None:
    own = {"tests/support/services.py", "tests/test_architecture.py"}
    assert places(A_SKIP, [path for path in TESTS if name(path) not in own]) == []


def test_constraints_are_plain_pins() -> None:
    lines = [line for line in (ROOT / ".constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.]*", line)] == []
