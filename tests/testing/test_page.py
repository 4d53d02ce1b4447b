"""The page about testing, followed: its files written down, and its tests run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, environment_with_project
from tests.support.redis_server import RedisServer

PAGE = (ROOT / "docs" / "testing.md").read_text()


@pytest.mark.crash
def test_the_files_of_the_page_pass_as_they_stand(redis_server: RedisServer, tmp_path: Path) -> None:
    files = re.findall(r'```python title="([\w.]+)"\n(.*?)```', PAGE, re.DOTALL)
    assert [name for name, _ in files] == ["shop.py", "test_shop.py"]
    for name, code in files:
        (tmp_path / name).write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:django -p no:celery -p no:randomly\n")
    env = environment_with_project({"BROKER_URL": redis_server.url()})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini", "test_shop.py"], cwd=tmp_path, env=env, capture_output=True,
        text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
