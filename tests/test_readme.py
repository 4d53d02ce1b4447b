"""The README is run and followed: its code, its links, its verbs. A page that nobody runs is wrong within a month."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import StartWorker

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_the_fifteen_lines_run_as_they_stand(start_worker: StartWorker, tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "shop.py").write_text(code)
    worker = start_worker("shop", queues=["mail"], cwd=tmp_path)
    sender = [sys.executable, "-c", "import shop; shop.on_paid(42); shop.send_receipt.delay(order=43)"]
    subprocess.run(sender, cwd=tmp_path, env=worker.environment(), check=True, timeout=30)
    for order in (42, 43):
        worker.wait_for_log(f"order {order}: attempt 1, run again after a crash: False")


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("verb", sorted(set(re.findall(r"\bmake ([a-z-]+)", README))))
def test_every_verb_is_in_the_makefile(verb: str) -> None:
    assert f"\n{verb}:" in (ROOT / "Makefile").read_text()
