"""For a project's own tests: run jobs where they are sent, run all that waits, kill a worker at a named moment.

Without it each project would test its tasks as plain functions, and meet retries, crashes and reruns in production first.
"""

from queue_kit.testing.draining import drain
from queue_kit.testing.inline import run_inline
from queue_kit.testing.killing import KILL_POINTS, kill_at

__all__ = ["KILL_POINTS", "drain", "kill_at", "run_inline"]
