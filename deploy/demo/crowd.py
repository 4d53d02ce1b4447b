"""The buyers of an on-sale: each wants a seat, and buys it, walks away from it, or buys it at the last moment.

All they do goes over HTTP, as any customer's; the book they keep is what the site told them, and nothing else.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random

from deploy.demo.http import Answer, Site

# Of a hundred buyers so many walk away from their hold, and so many press "buy" in the moment in which it runs out.
WALK_AWAY, AT_THE_LAST_MOMENT = 15, 20
# How near to the end of the hold such a purchase comes, before or after it.
NEAR_S = 0.04


@dataclass
class Book:
    """What the site answered: each hold by its id with its seat, which of them are sold, each answer with its time."""

    holds: dict[str, str] = field(default_factory=dict)
    sold: set[str] = field(default_factory=set)
    too_late: set[str] = field(default_factory=set)
    took_ms: dict[str, list[float]] = field(default_factory=lambda: {"hold": [], "purchase": []})
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def ask(self, what: str, call: partial[Answer]) -> Answer:
        """Ask the site, and note how long it took and what it said; only 2xx and 409 are answers to be expected."""
        began = time.monotonic()
        answer = call()
        self.took_ms[what].append((time.monotonic() - began) * 1000)
        self.answers[f"{what} {answer.status}"] += 1
        if answer.status not in {200, 201, 409}:
            self.faults.append(f"{what}: {answer}")
        return answer


@dataclass
class Buyer:
    name: str
    site: Site
    event: int
    seats: Sequence[str]
    dice: Random
    book: Book

    def shop(self) -> None:
        """Try one seat after another, the best first, until one is bought or given up, or all have been tried."""
        for seat in self.wishes():
            if self.try_seat(seat):
                return

    def wishes(self) -> Iterator[str]:
        """Everybody wants the front rows, so that several want the same seat at once."""
        half = len(self.seats) // 2
        yield from self.dice.sample(self.seats[:half], half)
        yield from self.dice.sample(self.seats[half:], len(self.seats) - half)

    def try_seat(self, seat: str) -> bool:
        """Say whether this buyer is done: with a seat of its own, or because it has walked away from one."""
        wanted = partial(self.site.post, f"/ticketing/events/{self.event}/holds", {"seat": seat, "holder": self.name})
        answer = self.book.ask("hold", wanted)
        if answer.status != 201:
            return False
        self.book.holds[answer.body["holdId"]] = seat
        mood = self.dice.randrange(100)
        if mood < WALK_AWAY:
            return True
        until = datetime.fromisoformat(answer.body["expiresAt"])
        self.think(until if mood < WALK_AWAY + AT_THE_LAST_MOMENT else None)
        return self.buy(answer.body["holdId"])

    def think(self, until: datetime | None) -> None:
        if until is None:
            time.sleep(self.dice.uniform(0, 0.2))
        else:
            left_s = (until - datetime.now(UTC)).total_seconds()
            time.sleep(max(0.0, left_s + self.dice.uniform(-NEAR_S, NEAR_S)))

    def buy(self, hold: str) -> bool:
        answer = self.book.ask("purchase", partial(self.site.post, f"/ticketing/holds/{hold}/purchase"))
        (self.book.sold if answer.status == 200 else self.book.too_late).add(hold)
        return answer.status == 200


class Crowd:
    """So many buyers at once, each with dice of its own: the same seed gives the same wishes and moods."""

    def __init__(self, site: Site, event: int, seats: Sequence[str], size: int, seed: int) -> None:
        self.book = Book()
        self.buyers = [
            Buyer(f"Buyer {number}", site, event, seats, Random(f"{seed}-{number}"), self.book)
            for number in range(1, size + 1)
        ]
        self.pool = ThreadPoolExecutor(size)
        self.shopping: list[Future[None]] = []

    def start(self) -> None:
        self.shopping = [self.pool.submit(buyer.shop) for buyer in self.buyers]

    @property
    def gone(self) -> bool:
        """Whether all have left; raises what one of them met."""
        return all(one.done() for one in self.shopping) and not any(one.result() for one in self.shopping)
