"""Moves messages between stock Celery and queue_kit on one Redis; without it a project could only change over with its queues
run empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis import Redis

from queue_kit.errors import ConfigurationError
from queue_kit.observe import transitions
from queue_kit.states import RESERVED_QUEUE, State
from queue_kit.store import Call, Ledger
from queue_kit.store.census import Census
from queue_kit.store.stock import PAGE, Parting, Source, StockKeys, StockMessages, adopt, hand_over, read_partings
from queue_kit.transport.envelope import Posting
from queue_kit.transport.stock import read_held, read_waiting, write_waiting

#: Outcomes of a move that has happened; a message of whose id there is a job is gone as well.
DONE = frozenset({"waiting", "delayed", "duplicated", "ok"})
#: Somebody else was quicker: another of these, a worker of either kind, an operator.
GONE = "gone"
#: What a dry run says.
WOULD = "would move"


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of one message or job. ``outcome``: its new state, or why it stays; ``would move``: a dry run."""

    queue: str
    id: str
    outcome: str


class Migration:
    """Moves what waits, each by one script: a kill in the middle leaves every message on exactly one side."""

    def __init__(self, app: Any, client: Redis) -> None:
        self._app, self._kit = app, app.queue_kit
        self._ledger = Ledger(client)
        self._stock = StockMessages(client, StockKeys.of(app.conf.broker_transport_options))
        self._census = Census(client, self._kit.keys)

    def queues(self) -> list[str]:
        """Every queue that the app knows or that has held a job."""
        return sorted({*self._app.amqp.queues, *self._census.queues()} - {RESERVED_QUEUE})

    def waiting(self, queues: Sequence[str], back: bool) -> int:
        """How many there are to move: of stock Celery's messages, or on the way back of jobs."""
        if not back:
            return sum(map(self._stock.count, queues))
        counts = [self._census.counts(queue) for queue in queues]
        return sum(count[State.WAITING] + count[State.DELAYED] for count in counts)

    def staying(self, queues: Sequence[str], back: bool) -> str:
        """What this does not move, in words; '' for nothing."""
        if not back:
            held = self._stock.held_count()
            return f"stock workers hold {held}, theirs until {self.visibility_timeout_s:g} s have passed" if held else ""
        active = sum(self._census.counts(queue)[State.ACTIVE] for queue in queues)
        dead = sum(map(self._census.dead_letter_count, queues))
        said = [f"{active} run" if active else "", f"{dead} dead letters stay" if dead else ""]
        return ", ".join(filter(None, said))

    # -- to queue_kit -------------------------------------------------------------------------------------------------

    def take(self, queues: Sequence[str], dry_run: bool = False) -> Iterator[Moved]:
        """Make jobs of what waits in the stock lists of these queues, in its order; go on until nothing more is there."""
        for queue in queues:
            for key in self._stock.keys.lists(queue):
                yield from _until_nothing_moves(partial(self._take_list, key, queue, dry_run))

    def _take_list(self, key: str, queue: str, dry_run: bool) -> Iterator[Moved]:
        left = 0
        while page := self._stock.page(key, left):
            found = [(Source(raw, key), read_waiting(raw, queue)) for raw in page]
            for moved in self._adopt(found, queue, dry_run):
                left += moved.outcome not in DONE | {GONE}
                yield moved

    def take_held(self, queues: Sequence[str], held_for_s: float, dry_run: bool = False) -> Iterator[Moved]:
        """Make jobs of what stock workers have held for longer than this: whoever took it is dead, or stock Celery itself
        would run it again."""
        known = {name: self._app.amqp.queues.get(name) for name in queues}
        keys = self._stock.keys
        for page in self._stock.held(self._census.now_ms() / 1000 - held_for_s):
            found = [(Source(raw, keys.unacked, tag, keys.unacked_index), read_held(raw, known)) for tag, raw in page]
            moves = self._adopt([one for one in found if one[1] is not None], "", dry_run)
            yield from (moved for moved in moves if moved.outcome != GONE)

    @property
    def visibility_timeout_s(self) -> float:
        """How long stock Celery itself waits for an acknowledgement."""
        return self._stock.keys.visibility_timeout

    def _adopt(self, found: Sequence[tuple[Source, Posting | None]], queue: str, dry_run: bool) -> Iterator[Moved]:
        tasks = [(source, posting) for source, posting in found if posting is not None]
        answers = iter(self._run([self._adopting(*task) for task in tasks], dry_run))
        for _, posting in found:
            if posting is None:
                yield Moved(queue, "", "no task")
            else:
                moved = Moved(posting.message.queue, posting.id, next(answers))
                if moved.outcome in (State.WAITING, State.DELAYED):
                    transitions.adopted(posting, moved.outcome)
                yield moved

    def _adopting(self, source: Source, posting: Posting) -> Call[str]:
        return adopt(
            self._kit.settings.queue_prefix, source, posting.id, posting.message, posting.when, priority=posting.priority,
            expires_at_ms=posting.expires_at_ms, correlation_id=posting.correlation_id,
        )  # fmt: skip

    # -- back to stock Celery -----------------------------------------------------------------------------------------

    def give_back(self, queues: Sequence[str], dry_run: bool = False) -> Iterator[Moved]:
        """Make messages of stock Celery's of the jobs that wait or are delayed in these queues, in their order.

        :raises ConfigurationError: workers would take them again.
        """
        if self._kit.settings.take_stock_messages:
            raise ConfigurationError("TAKE_STOCK_MESSAGES: turn it off, or workers take again what is given back")
        for queue in queues:
            yield from _until_nothing_moves(partial(self._give, queue, dry_run))

    def _give(self, queue: str, dry_run: bool) -> Iterator[Moved]:
        ids = [job_id for part in ("wait", "delayed") for job_id in self._ledger.members(self._kit.keys, queue, part)]
        for start in range(0, len(ids), PAGE):
            jobs = read_partings(self._ledger.client, self._kit.keys, ids[start : start + PAGE])
            made = [(job, self._handing_over(job, queue)) for job in jobs]
            answers = iter(self._run([call for _, call in made if call is not None], dry_run))
            yield from (Moved(queue, job.id, next(answers) if call else "unreadable") for job, call in made)

    def _handing_over(self, job: Parting, queue: str) -> Call[str] | None:
        try:
            content, priority = write_waiting(job, queue)
        except ValueError:
            return None
        key = self._stock.keys.list_for(queue, priority)
        return hand_over(self._kit.settings.queue_prefix, job.id, job.message, key, content)

    def _run(self, calls: Sequence[Call[str]], dry_run: bool) -> list[str]:
        if dry_run:
            return [WOULD] * len(calls)
        answers = self._ledger.run_all(calls)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    # -- either way ---------------------------------------------------------------------------------------------------

    def move(self, queues: Sequence[str], *, back: bool, dry_run: bool, held_for_s: float | None = None) -> Iterator[Moved]:
        """All that waits in these queues; to queue_kit also what stock workers have held for long, by default for as long as
        their own visibility timeout."""
        if back:
            yield from self.give_back(queues, dry_run)
            return
        yield from self.take(queues, dry_run)
        yield from self.take_held(queues, self.visibility_timeout_s if held_for_s is None else held_for_s, dry_run)


def _until_nothing_moves(once: Callable[[], Iterator[Moved]]) -> Iterator[Moved]:
    """Others send and take meanwhile. What stays is told once, at the end."""
    moving = True
    while moving:
        moving, staying = False, list[Moved]()
        for moved in once():
            if moved.outcome in DONE:
                moving = True
                yield moved
            elif moved.outcome != GONE:
                staying.append(moved)
    yield from staying
