"""`python -m deploy.demo.rush` starts a whole site and fires a deadline rush at it; its words go to `manage.py deadline_rush`.

Without it the figures would be those of whatever happened to run on the machine.
"""

import os
import subprocess
import sys

from deploy.demo.process import ROOT
from deploy.demo.stack import Stack

# As many as the web server has threads: both ways can grade the same number of papers at a time.
WORKER_SLOTS = 16


def main(words: list[str]) -> int:
    """Return the exit code of the command."""
    print(f"Starting Redis, the site, the scoring service and a worker of {WORKER_SLOTS} slots …", flush=True)
    with Stack(leases={}) as stack:
        stack.await_worker(stack.start_worker("worker", WORKER_SLOTS, "--pool", "threads"))
        command = [sys.executable, str(ROOT / "manage.py"), "deadline_rush", "--url", stack.web.url, *words]
        return subprocess.run(command, env={**os.environ, **stack.env}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
