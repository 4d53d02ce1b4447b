"""The project's engine finder, loaded past the package it lies in.

Without it each test process would make the Django project's Celery app as a side effect of looking for Redis, and
tests of the library would run under that app.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from tests.support.services import service_missing

FILE = Path(__file__).resolve().parents[2] / "deploy" / "engine.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine_of_deploy", FILE)
    assert spec is not None, f"{FILE} is not there"
    assert spec.loader is not None, f"{FILE} cannot be loaded"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_engine = _load()


class EngineMissing(RuntimeError):
    """No Redis engine on the PATH and none in a wheel."""


def newer_engine() -> Path:
    """Return the engine that comes with a wheel: Debian's is older than some of what Redis can do. Without one the test skips."""
    return next(iter(_engine._in_a_wheel()), None) or service_missing("no wheel of this machine brings a Redis engine")


def find_engine() -> Path:
    """Return the path of a Redis or Valkey server program, or raise EngineMissing with the ways to get one."""
    try:
        return Path(_engine.find_engine())
    except _engine.EngineMissing as missing:
        raise EngineMissing(str(missing)) from missing
