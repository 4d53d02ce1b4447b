"""Programs that check files of the deployment, and are no part of the project.

Without one place for them each test would look for them, and skip, in its own way.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.services import service_missing


def program(name: str, package: str) -> str:
    """The path of a program; a test without it skips, and fails in CI. Those that pip installs stand beside the interpreter."""
    found = shutil.which(name) or shutil.which(name, path=f"{Path(sys.executable).parent}:/usr/sbin:/sbin")
    return found or service_missing(f"no {name} on this machine; on Debian and Ubuntu: apt-get install {package}")


def said_by(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a check, which must be content; return what it says."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
