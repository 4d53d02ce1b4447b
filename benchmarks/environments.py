"""The environments of the other task queues: each has its own, since they disagree about the version of redis-py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.demo.process import ROOT

HERE = Path(__file__).parent / "peers"
FOLDER = ROOT / ".venv-peers"
MADE_WITHIN_S = 300


class NotInstalled(Exception):
    """Why a system cannot be measured here."""


def environment(module: str, python: str = "") -> Path:
    """Make a peer's environment, once for each text of its requirements, and return the folder of its commands.

    :param python: the Python that it needs, if ours is too old.
    """
    words = HERE / f"requirements-{module}.txt"
    if not words.exists():
        return Path(sys.executable).parent  # what it needs, the benchmark needs too
    interpreter = f"python{python}" if python else sys.executable
    if not _runs(interpreter):
        raise NotInstalled(f"needs Python {python}, and no {interpreter} on PATH runs")
    folder = FOLDER / module
    commands = folder / "bin"
    install = [commands / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", words]
    _once(folder, words, [interpreter, "-m", "venv", "--clear", folder], install)
    return commands


def node_modules() -> Path:
    """Install what the peer on Node needs, once, and return where it is."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        raise NotInstalled(f"there is no {missing[0]} on PATH")
    folder, words = FOLDER / "node", HERE / "package.json"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(words, folder)
    _once(folder, words, ["npm", "install", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", "--silent"])
    return folder / "node_modules"


def _once(folder: Path, words: Path, *steps: list[str | Path]) -> None:
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text("utf-8") == words.read_text("utf-8"):
        return
    print(f"installing {words.name} into {folder.relative_to(ROOT)}", flush=True)
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=MADE_WITHIN_S, env=_plain())
        if done.returncode:
            raise NotInstalled((done.stderr or done.stdout).strip().splitlines()[-1])
    stamp.write_text(words.read_text("utf-8"), "utf-8")


def _runs(interpreter: str) -> bool:
    """A name on PATH alone does not say so: version managers put one there for each version they could install."""
    found = shutil.which(interpreter)
    return found is not None and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
