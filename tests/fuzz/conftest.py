"""Fixtures of the fuzzed inputs: the site with its Redis, and a stage with workers."""

from __future__ import annotations

from tests.support.site import queue
from tests.worker.conftest import stage

__all__ = ["queue", "stage"]
