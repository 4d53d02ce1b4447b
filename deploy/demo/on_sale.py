"""`python -m deploy.demo.on_sale` sells a hall to a crowd, kills a worker in the middle, and says whether all came right.

Real HTTP, real workers, a real SIGKILL; what is checked is what a customer can see: answers, holds and the drawn map.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles

from deploy.demo.crowd import Book, Crowd
from deploy.demo.http import Site
from deploy.demo.process import free_port
from deploy.demo.sight import Sight
from deploy.demo.stack import Stack
from deploy.demo.transcript import Paint
from deploy.demo.waiting import wait_until
from queue_kit.states import State

EVENT = 1
QUEUES = ("holds", "seat-maps")
LEASE_MS = "8000"


@dataclass(frozen=True)
class Map:
    """The drawing that the site serves: which version it is, and the state of each seat in it."""

    version: int
    states: dict[str, str]

    @classmethod
    def of(cls, site: Site) -> "Map":
        svg = site.get(f"/ticketing/events/{EVENT}/seat-map.svg").text
        version = re.search(r'data-version="(\d+)"', svg)
        assert version, "the map names its version"
        return cls(int(version[1]), dict(re.findall(r'data-seat="(\w+)" data-state="(\w+)"', svg)))


@dataclass(frozen=True)
class Outcome:
    """All that was seen of one on-sale."""

    book: Book
    statuses: dict[str, str]
    before: Map
    after: Map
    draws: int
    most_waiting: int
    stalls: int
    dead: int
    took_s: float

    def verdict(self) -> Iterator[tuple[str, bool]]:
        """Yield what must hold, in words and numbers, with whether it does."""
        sold = [hold for hold, status in self.statuses.items() if status == "sold"]
        by_seat = Counter(self.book.holds[hold] for hold in sold)
        ended = Counter(self.statuses.values())
        changes = len(self.statuses) + ended["sold"] + ended["released"]
        yield f"no seat was sold twice: {len(sold)} sales of {len(by_seat)} seats", set(by_seat.values()) <= {1}
        yield "who was told 'sold' has the seat, and nobody else", set(sold) == self.book.sold
        yield f"no hold lasts for ever: {ended['released']} were freed, {ended['held']} are left", not ended["held"]
        counted = self.after.version - self.before.version
        yield f"each of {changes} changes happened once: {counted} were counted", changes == counted
        drawn = {seat for seat, state in self.after.states.items() if state == "sold"}
        yield f"every sale is drawn, and nothing else: {len(drawn)}", drawn == set(by_seat)
        yield f"{self.draws} drawings for {changes} changes, at most {self.most_waiting} waiting", (
            self.most_waiting <= 1 and self.draws <= changes + self.stalls
        )
        yield f"the worker that was killed cost {self.stalls} stall(s) and {self.dead} dead letters", (
            self.stalls >= 1 and not self.dead
        )
        yield f"every answer was clear: {dict(sorted(self.book.answers.items()))}", not self.book.faults


class OnSale:
    """One on-sale against a running stack: the crowd comes, a worker dies, the last hold ends."""

    def __init__(self, stack: Stack, hold_ms: int) -> None:
        self.stack, self.sight = stack, Sight(stack)
        self.site = stack.start_web("on-sale", free_port(), {"TICKETING_HOLD_MS": str(hold_ms)})
        wait_until(lambda: self.site.answers("/ticketing/"), "the site answers")
        self.most_waiting = 0

    def run(self, buyers: int, seed: int) -> Outcome:
        before, began = Map.of(self.site), time.monotonic()
        drawn_before = len(self.stack.edge.purges)
        crowd = Crowd(self.site, EVENT, list(before.states), buyers, seed)
        crowd.start()
        wait_until(lambda: self.watched(len(crowd.book.sold) >= buyers // 5 or crowd.gone), "some have bought", 60)
        self.kill_one_at_work()
        wait_until(lambda: self.watched(crowd.gone), "the crowd is gone", 180)
        took_s = time.monotonic() - began
        wait_until(lambda: self.watched(self.idle()), "the queues are empty", 60)
        after = Map.of(self.site)
        statuses = {hold: self.site.get(f"/ticketing/holds/{hold}").body["status"] for hold in crowd.book.holds}
        draws = len(self.stack.edge.purges) - drawn_before
        stalls = sum(event.kind == "stalled" for queue in QUEUES for event in self.stack.census.events(queue))
        dead = sum(self.stack.census.dead_letter_count(queue) for queue in QUEUES)
        return Outcome(crowd.book, statuses, before, after, draws, self.most_waiting, stalls, dead, took_s)

    def watched(self, done: bool) -> bool:
        """Count the drawings that wait, each time somebody looks whether something is done."""
        waiting = self.stack.census.counts("seat-maps")[State.WAITING]
        self.most_waiting = max(self.most_waiting, waiting)
        return done

    def kill_one_at_work(self) -> None:
        """SIGKILL a worker that has stored a drawing and not returned: the cache in front of the site does not answer it."""
        edge = self.stack.edge
        edge.answering.clear()
        seen = len(edge.purges)
        wait_until(lambda: self.watched(len(edge.purges) > seen), "a map is being drawn", 30)
        self.sight.kill_holder(edge.purges[-1].job)
        edge.answering.set()

    def idle(self) -> bool:
        open_states = (State.WAITING, State.DELAYED, State.ACTIVE)
        return not any(self.stack.census.counts(queue)[state] for queue in QUEUES for state in open_states)


def percentiles(took_ms: list[float]) -> str:
    if len(took_ms) < 2:
        return "too few to tell"
    cuts = quantiles(took_ms, n=100, method="inclusive")
    return f"p50 {cuts[49]:.0f}   p95 {cuts[94]:.0f}   p99 {cuts[98]:.0f}   max {max(took_ms):.0f} ms"


def report(outcome: Outcome, paint: Paint) -> bool:
    """Print what was seen; return whether all of it is right."""
    sold = len(outcome.book.sold)
    print(f"\n{sold} seats sold in {outcome.took_s:.1f} s ({sold / outcome.took_s:.1f} a second)")
    for what, took_ms in outcome.book.took_ms.items():
        print(f"  {what:<9} {len(took_ms):>5} answers   {percentiles(took_ms)}")
    print()
    lines = list(outcome.verdict())
    for says, holds in lines:
        print(f"  {paint.green('✓') if holds else paint.red('✗')} {says}")
    for fault in outcome.book.faults[:5]:
        print(f"      {fault}")
    return all(holds for _, holds in lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.on_sale", description=__doc__)
    parser.add_argument("--buyers", type=int, default=150, help="how many come at once (150; the hall has 74 seats)")
    parser.add_argument("--hold-ms", type=int, default=2500, help="how long a seat is held (2500)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same wishes (1)")
    parser.add_argument("--database-url", default="", help="a PostgreSQL database that may be filled (SQLite of its own)")
    asked = parser.parse_args()
    print("Starting Redis, the site and two workers …", flush=True)
    with Stack(database_url=asked.database_url) as stack:
        # A crowd leaves the workers little of a small machine: with the demo's short lease they would seem dead.
        stack.env["WORKER_LOCK_DURATION_MS"] = LEASE_MS
        for worker in [stack.start_worker(f"worker-{number}", 2) for number in (1, 2)]:
            stack.await_worker(worker)
        print(f"{asked.buyers} buyers come at once; one worker is killed in the middle …", flush=True)
        outcome = OnSale(stack, asked.hold_ms).run(asked.buyers, asked.seed)
    return 0 if report(outcome, Paint(sys.stdout.isatty())) else 1


if __name__ == "__main__":
    sys.exit(main())
