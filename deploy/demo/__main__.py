"""`python -m deploy.demo` plays the four seed cases and compares; `--serve` leaves the site running afterwards."""

import argparse
import signal
import sys
import time

from deploy.demo.cases import CASES
from deploy.demo.stack import Stack
from deploy.demo.transcript import Line, Paint, show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="leave everything running until Ctrl-C")
    serve = parser.parse_args().serve
    # As Ctrl-C does: what was started is stopped on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(serve)
    except KeyboardInterrupt:
        print("\nStopped.")
        # What is left running until Ctrl-C has ended well; a demo that is broken off has not.
        return 0 if serve else 130


def run(serve: bool) -> int:
    began = time.monotonic()
    paint = Paint(sys.stdout.isatty())
    print("Starting Redis, the site, the scoring service and `celery -A deploy worker -c 3` …", flush=True)
    with Stack() as stack:
        stack.await_worker(stack.start_worker("worker", 3))
        lines = play(stack, paint)
        print(verdict(lines, time.monotonic() - began, paint))
        if serve:
            stay(stack)
    return 0 if all(line.holds for line in lines) else 1


def play(stack: Stack, paint: Paint) -> list[Line]:
    """Play all cases; one that breaks shows where, and counts as a line that does not hold."""
    lines: list[Line] = []
    for title, case in CASES:
        print(f"\n{paint.bold(title)}")
        try:
            lines += show(case(stack), paint)
        except (TimeoutError, AssertionError, RuntimeError, OSError) as broken:
            lines += show([Line("the case ran to its end", "true", f"false: {broken}")], paint)
    return lines


def verdict(lines: list[Line], took_s: float, paint: Paint) -> str:
    held = sum(line.holds for line in lines)
    words = f"\n{held} of {len(lines)} lines as the seeds say, in {took_s:.1f} s"
    return paint.green(words) if held == len(lines) else paint.red(words)


def stay(stack: Stack) -> None:
    """Bring back the worker that the third case killed, say where to look, and wait for Ctrl-C."""
    stack.start_worker("worker-2", 3)
    print(f"""
Running until Ctrl-C:
  exam attempts    {stack.web.url}/examhall/       hand one in, and watch its score arrive
  seat map         {stack.web.url}/ticketing/      hold a seat, which comes back after 30 s
  scoring service  {stack.scoring.url}/control   POST {{"fail_next": 2}} or {{"hold": true}} to it
  Redis            {stack.redis_url}
  logs             {stack.folder}
  admin            {stack.web.url}/admin/          user demo, password demo""")
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
