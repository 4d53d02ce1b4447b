"""What the pages name is there: a promise whose test was renamed is a promise that nobody checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
