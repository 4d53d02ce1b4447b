"""What the pages name is there: a promise whose test was renamed is a promise that nobody checks."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from tests.support.processes import environment_with_project
from tests.support.redis_server import RedisServer
from tests.support.settings_page import page as settings_page

from .conftest import StartWorker

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for file, function in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text()):
        source = ROOT / file
        assert source.exists(), f"{page.name} names {file}"
        assert not function or f"def {function}(" in source.read_text(), f"{page.name} names {file}::{function}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_script_and_rule_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    for script in re.findall(r"`(\w+\.lua)`", text):
        assert (ROOT / "queue_kit/store/lua" / script).exists(), f"{page.name} names {script}"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_guarantee_has_its_four_columns() -> None:
    rows = [line for line in (ROOT / "docs/guarantees.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 20
    assert [row for row in rows if row.count(" | ") != 3] == []


def blocks(page: Path) -> str:
    """The Python of a page, from top to bottom."""
    return blocks_of(page.read_text())


def blocks_of(text: str) -> str:
    """The Python in it; a block with a title is a file of its own, and run where that page is tested."""
    found = re.findall(r"^( *)```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return "\n".join(textwrap.dedent(code) for _, code in found)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_every_block_of_code_runs(page: Path, redis_server: RedisServer, tmp_path: Path) -> None:
    """As one program, where a project would run it; what it asserts holds."""
    before = "import django\n\ndjango.setup()\n" if "django" in blocks(page) else ""
    (tmp_path / "page.py").write_text(before + blocks(page))
    redis = {"CELERY_BROKER_URL": redis_server.url(), "REDIS_URL": redis_server.url()}
    env = environment_with_project({**redis, "DJANGO_SETTINGS_MODULE": "deploy.settings"})
    command = [sys.executable, "page.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_a_section_needs_nothing_but_what_the_page_begins_with(page: Path) -> None:
    """Who comes for one section copies that, and has what its first block gave."""
    sections = [code for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE) if (code := blocks_of(section))]
    for section in sections:
        lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--quiet", "--select", "F821", "-"]
        done = subprocess.run(lint, input=sections[0] + section, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_quick_start_gives_what_it_says(start_worker: StartWorker, tmp_path: Path) -> None:
    """Its files written down, its worker and sender started, on this test's Redis."""
    text = (ROOT / "docs/index.md").read_text()
    for name, code in re.findall(r'```python title="([\w.]+)"\n(.*?)```', text, re.DOTALL):
        with (tmp_path / name).open("a") as file:
            file.write(code)
    worker = start_worker("shop", queues=["mail"], cwd=tmp_path)
    subprocess.run([sys.executable, "send.py"], cwd=tmp_path, env=worker.environment(), check=True, timeout=30)
    [line] = re.findall(r"prints, once, .*: `(.*)`\.", text.split("`send_receipt")[0])
    worker.wait_for_log(line)


def test_the_page_of_settings_is_that_of_the_code() -> None:
    """Made anew by `python -m tests.support.settings_page`."""
    assert (ROOT / "docs/settings.md").read_text() == settings_page()


def test_every_dependency_of_who_installs_it_has_its_licence_on_the_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = [*project["dependencies"], *project["optional-dependencies"]["site"]]
    names = {re.split(r"[\[<>=]", word)[0] for word in words}
    rows = re.findall(r"^\| (?:\*the site:\* )?([a-z][^|]*) \| ", (ROOT / "docs/security.md").read_text(), re.MULTILINE)
    assert names == {name for row in rows for name in row.split(", ")} - {"package"}
