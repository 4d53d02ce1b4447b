"""What the runbooks have people type and look for is there: at 3 am nobody finds out what an option is called now."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

import queue_kit
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
RUNBOOKS = (ROOT / "docs/operations.md").read_text().split("## Runbooks")[1]


def typed() -> list[str]:
    """Every command of Django's that a page has somebody type."""
    return sorted({line.strip() for page in PAGES for line in re.findall(r"manage\.py (\w[^`\n#]*)", page.read_text())})


def section(title: str) -> str:
    """One runbook."""
    return RUNBOOKS.split(f"### {title}\n")[1].split("\n### ")[0]


def source() -> str:
    files = [file for ending in ("py", "html") for file in (ROOT / "queue_kit").rglob(f"*.{ending}")]
    return "\n".join(file.read_text() for file in files)


@pytest.mark.parametrize("line", typed())
def test_a_command_on_a_page_is_one_that_there_is(line: str) -> None:
    name, *words = shlex.split(line)
    command = load_command_class(get_commands()[name], name)
    command.create_parser("manage.py", name).parse_args(words)


def test_what_is_run_in_a_shell_names_what_there_is() -> None:
    lines = re.findall(r' -c "([^"]+)"', RUNBOOKS)
    assert len(lines) > 3
    for line in lines:
        imported = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.ImportFrom)]
        names = [alias.name for node in imported if node.module == "queue_kit" for alias in node.names]
        assert names
        assert set(names) <= set(queue_kit.__all__)


def test_what_a_runbook_has_people_look_for_is_what_is_said() -> None:
    reasons = re.findall(r"^\| (\w[^|…]+?)(?: …)? \| ", section("Readiness is 503"), re.MULTILINE)
    assert len(reasons) > 4
    logged = re.findall(r"Its log says `([^`]+)`", RUNBOOKS)
    shown = re.findall(r'"(?:1 )?([\w ]+)"', section("A queue climbs"))
    assert shown[1:4] == ["paused", "held off", "at once"]
    said = source()
    assert [text for text in [*reasons, *logged, *shown[1:]] if text != "reason" and text not in said] == []


def test_a_backup_is_restored_as_the_page_says(tmp_path: Path) -> None:
    """Without its step between, a server with an append-only file starts empty beside the backup."""
    words = [line.strip() for line in section("Redis was restored from a backup").splitlines() if line.startswith("        ")]
    assert words[:2] == ["redis-server /etc/redis.conf --appendonly no", "redis-cli config set appendonly yes"]
    with RedisServer(appendonly=True) as lost, lost.client() as client:
        client.set("kept", "yes")
        client.save()
        shutil.copy(lost.folder / "dump.rdb", tmp_path)
    once, always = RedisServer(), RedisServer(appendonly=True)
    once.folder = always.folder = tmp_path
    with once.start().client() as client:
        client.config_set("appendonly", "yes")
        wait_until(lambda: _rewritten(client.info("persistence")), says="the append-only file is written")
    once.kill()
    with always, always.client() as client:
        assert client.get("kept") == "yes"


def _rewritten(info: dict[str, object]) -> bool:
    return not info["aof_rewrite_in_progress"] and info["aof_last_bgrewrite_status"] == "ok" and bool(info["aof_enabled"])
