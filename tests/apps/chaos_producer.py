"""A process that sends jobs of every kind, and writes down before each send what it will be and after it what became of it.

Without it nobody could say which jobs were accepted once their sender is killed in the middle of a send.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
from celery import chain, chord
from django.db import Error as DatabaseError
from django.db import connection, transaction

from queue_kit import QueueUnavailable, enqueue, enqueue_many
from queue_kit.django import outbox
from tests.apps import chaos_app
from tests.apps.chaos_app import QUEUES, gives_way, step

PRIORITIES = (0, 0, 5, 9)


class TakenBack(Exception):
    """A transaction is rolled back."""


class Producer:
    """One sender. `dice` decides what is sent; ids are made before the send, so that the intent can be written down."""

    def __init__(self, name: str, seed: int, ledger: Path) -> None:
        self.dice = random.Random(seed)
        self._name, self._number = name, 0
        self._ledger = ledger.open("a")

    def note(self, **facts: Any) -> None:
        """Write a line that is on the disk when this returns."""
        self._ledger.write(json.dumps({"send": f"{self._name}-{self._number}", **facts}) + "\n")
        self._ledger.flush()
        os.fsync(self._ledger.fileno())

    def send(self) -> int:
        """Send one thing of a random kind; return how many jobs that is."""
        self._number += 1
        kind = self.dice.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
        ids, act = KINDS[kind][1](self)
        self.note(kind=kind, ids=ids)
        try:
            got = act()
        except QueueUnavailable as trouble:
            # The parts of a canvas are sent one by one: the first ones may be there.
            whole = len(ids) == 1
            self.note(verdict="refused" if trouble.sent == "no" and whole else "unclear")
        except TakenBack:
            self.note(verdict="refused")
        except DatabaseError:
            self.note(verdict="unclear")
            connection.close()
        else:
            self.note(verdict="accepted", got=got)
        return len(ids)

    def new_id(self) -> str:
        return f"{self._name}-{self._number}-{uuid.UUID(int=self.dice.getrandbits(128)).hex[:8]}"


Plan = tuple[list[str], Callable[[], Any]]


def _one(name: str, payload: dict[str, Any] | None = None, **options: Any) -> Callable[[Producer], Plan]:
    def plan(producer: Producer) -> Plan:
        dice, job_id = producer.dice, producer.new_id()
        given = {key: value(dice) if callable(value) else value for key, value in (payload or {}).items()}
        more = {key: value(dice) if callable(value) else value for key, value in options.items()}
        return [job_id], lambda: [enqueue(name, given, job_id=job_id, **more).id]

    return plan


def _many(producer: Producer) -> Plan:
    def act() -> list[str]:
        handles = enqueue_many("chaos.pause", [{"seconds": 0.005}] * producer.dice.randint(2, 30))
        failed = [handle.error for handle in handles if handle.error]
        if failed:
            raise failed[0]
        return [handle.id for handle in handles]

    return [], act


def _once_by_key(producer: Producer) -> Plan:
    """One of a few keys, which all producers of a run share: of many sends one job comes."""
    key = f"key-{int(time.time() / 5)}-{producer.dice.randint(1, 3)}"
    job_id = producer.new_id()
    return [job_id], lambda: [enqueue("chaos.pause", {"seconds": 0.02}, job_id=job_id, idempotency_key=key).id, key]


def _chain(producer: Producer) -> Plan:
    ids = [producer.new_id() + f"-{place}" for place in range(3)]
    queues = [producer.dice.choice(QUEUES) for _ in ids]
    steps = [step.si().set(task_id=job_id, queue=queue) for job_id, queue in zip(ids, queues, strict=True)]
    return ids, lambda: [chain(*steps).apply_async().id]


def _chord(producer: Producer) -> Plan:
    ids = [producer.new_id() + f"-{place}" for place in range(4)]
    *header, body = [step.s().set(task_id=job_id, queue=producer.dice.choice(QUEUES)) for job_id in ids]
    return ids, lambda: [chord(header)(body).id]


def _replaced(producer: Producer) -> Plan:
    """A chain whose second step gives way to a chain of its own: the last id is that of the one step it has before itself."""
    ids = [producer.new_id() + f"-{place}" for place in range(4)]
    before, replaced, after, inner = ids
    steps = [step.si().set(task_id=before), gives_way.si(inner).set(task_id=replaced), step.si().set(task_id=after)]
    return ids, lambda: [chain(*(one.set(queue=producer.dice.choice(QUEUES)) for one in steps)).apply_async().id]


def _outbox(producer: Producer) -> Plan:
    """A job with its row, in one transaction that takes a while, and is rolled back now and then."""
    job_id, seconds, back = producer.new_id(), producer.dice.uniform(0, 0.05), producer.dice.random() < 0.3

    def act() -> list[str]:
        with transaction.atomic():
            outbox.add("chaos.pause", {"seconds": 0.01}, job_id=job_id)
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO orders (key) VALUES (%s)", [job_id])
            time.sleep(seconds)
            if back:
                raise TakenBack
        return [job_id]

    return [job_id], act


#: What is sent, how often in proportion, and how.
KINDS: dict[str, tuple[int, Callable[[Producer], Plan]]] = {
    "pause": (30, _one("chaos.pause", {"seconds": lambda d: d.uniform(0, 0.05)}, priority=lambda d: d.choice(PRIORITIES))),
    "long": (10, _one("chaos.pause", {"seconds": lambda d: d.uniform(0.3, 1.5)})),
    "later": (10, _one("chaos.pause", {"seconds": 0.01}, delay_ms=lambda d: d.randint(1, 3000))),
    "flaky": (10, _one("chaos.flaky", {"failures": lambda d: d.randint(1, 3)})),
    "snooze": (4, _one("chaos.snooze")),
    "doomed": (3, _one("chaos.doomed")),
    "effect": (15, _one("chaos.effect", {"seconds": lambda d: d.uniform(0, 0.1)})),
    "key": (6, _once_by_key),
    "many": (1, _many),
    "chain": (5, _chain),
    "chord": (4, _chord),
    "replaced": (4, _replaced),
    "outbox": (10, _outbox),
}


def main(name: str, seed: int, folder: Path, rate_per_s: float) -> None:
    """Send until told to end by SIGTERM; while a file `hold` is there, wait."""
    django.setup()
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, _: asked.append(signum))
    chaos_app.app.set_default()
    producer = Producer(name, seed, folder / f"sent-{name}")
    while not asked:
        sent = 0 if (folder / "hold").exists() else producer.send()
        time.sleep(producer.dice.expovariate(rate_per_s / max(1, sent)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
