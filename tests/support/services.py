"""What a test does without a service it needs: skip on a laptop, fail in CI.

Without it a run in CI could be green because nothing ran.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def service_missing(what: str) -> NoReturn:
    """Skip the test with a line that says what is missing; fail it where the environment has CI set."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} (this would be a skip on a laptop; CI is set)", pytrace=False)
    pytest.skip(what)
