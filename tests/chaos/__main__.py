"""Kill, freeze and cut off everything at random for a while, then balance the books: `python -m tests.chaos --help`.

Ends with 0 if they balance. The seed decides what happens and what is sent; when exactly it meets what, the machine decides.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Plan, Run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="go on for so long at least (default 60)")
    parser.add_argument("--jobs", type=int, default=0, help="and until so many jobs were added")
    parser.add_argument("--kills", type=int, default=0, help="and until so many processes were killed")
    parser.add_argument("--rate", type=float, default=50, help="jobs sent in a second (default 50)")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two troubles, on average (default 1)")
    parser.add_argument("--lease-ms", type=int, default=3000, help="how long a lease lasts (default 3000)")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--sentinels", action="store_true", help="a primary under Sentinels is lost, not one Redis")
    parser.add_argument("--wait", action="store_true", help="with them: each send waits for a replica")
    parser.add_argument("--folder", type=Path, default=None, help="where logs, books and the picture go")
    return parser


def main() -> int:
    """Run once, print the table and what does not balance."""
    parser = _parser()
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("sent-*")):
        parser.error(f"--folder: {folder} has the books of another run; name a new one")
    plan = Plan(
        given.seconds, given.jobs, given.kills, given.rate, given.every, given.lease_ms, seed, given.sentinels, given.wait
    )  # fmt: skip
    print(f"seed {seed}; logs, books and the picture go to {folder}", flush=True)
    found = Run(plan, folder).go()
    print("\n".join(found[:50]) if found else "The books balance, and refuse each fault that is planted into them.")
    if found:
        print(f"{len(found)} faults; seed {seed}; see {folder}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
