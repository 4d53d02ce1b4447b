"""What a monitor reads of all queues, in two round trips; without it two hundred queues would cost a scrape two thousand."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from redis import Redis

from queue_kit.states import State
from queue_kit.store.keys import Keys
from queue_kit.store.ledger import Ledger
from queue_kit.store.script import Call, script, text

logger = logging.getLogger(__name__)

#: The one count that is a queue's own, and no job name's.
_EVICTED: Final = "dead_letter_evicted"


@dataclass(frozen=True, slots=True)
class Tally:
    """One queue as it was when it was read. ``counted``: how often each move was made, by the word that the scripts count it
    under and the job's name; since Redis was empty last."""

    queue: str
    jobs: Mapping[State, int]
    dead_letters: int
    oldest_waiting_ms: int
    counted: Mapping[tuple[str, str], int]
    evicted: int


def read_tallies(client: Redis, keys: Keys) -> list[Tally]:
    """Read every queue, in order of their names. One that cannot be read is left out, and logged.

    :raises redis.exceptions.RedisError: Redis does not answer.
    """
    ledger = Ledger(client)
    answers = ledger.run_all([_tally(keys.prefix, queue) for queue in ledger.queues(keys)])
    for trouble in (answer for answer in answers if isinstance(answer, Exception)):
        logger.warning("a queue cannot be counted: %s", trouble)
    return [answer for answer in answers if isinstance(answer, Tally)]


def read_tally(client: Redis, keys: Keys, queue: str) -> Tally:
    """Read one queue. A script, not a transaction of commands: those a full Redis refuses, whatever is in them.

    :raises redis.exceptions.RedisError: Redis does not answer.
    """
    return Ledger(client).run(_tally(keys.prefix, queue))


def _tally(prefix: str, queue: str) -> Call[Tally]:
    return Call(script("tally"), (prefix, queue), partial(_read, queue))


def _read(queue: str, reply: list[Any]) -> Tally:
    *sizes, dead_letters, oldest_waiting_ms, counts = reply
    fields = dict(zip(map(text, counts[::2]), map(int, counts[1::2]), strict=True))
    evicted = fields.pop(_EVICTED, 0)
    counted = {(what, name): number for field, number in fields.items() for what, _, name in [field.partition(" ")]}
    return Tally(queue, dict(zip(State, sizes, strict=True)), dead_letters, int(oldest_waiting_ms), counted, evicted)
