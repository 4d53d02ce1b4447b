"""Reads, replays, discards and exports dead letters; without it a job that failed for good would be a record nobody acts on.

Times are those of Redis; nothing here is needed to run a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from redis import Redis

from queue_kit.errors import DeadLetterNotFound, JobNotFound, NoDeadLetterMatches
from queue_kit.rules.packing import MARK, joined, unpacked
from queue_kit.rules.redaction import Redactor
from queue_kit.store import dead_letter_moves as moves
from queue_kit.store.keys import Keys
from queue_kit.store.ledger import Ledger
from queue_kit.store.letters import DeadLetter, LetterFilter, matches, open_letter
from queue_kit.store.moves import Aside
from queue_kit.store.replaying import Done, Pace, live, newer, refusal, unreadable

ALL: Final = LetterFilter()
#: What :meth:`DeadLetters.tally` counts by.
COUNTED: Final = ("queue", "cause", "name", "error_class")
Tally = dict[str, Counter[str]]
#: Records read in one round trip: by facets, and whole (each may hold 40 kB).
_FACETS_AT_ONCE: Final = 2_500
_WHOLE_AT_ONCE: Final = 200
#: Replays and discards in one round trip where nobody asked for a rate.
_DONE_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the dead letters that a filter means, newest first, and how many it means in all."""

    letters: list[DeadLetter]
    total: int


class DeadLetters:
    """The dead letters under one prefix. What it shows is redacted; what is stored stays whole.

    :param parameters: names of what a task takes by position, by the task's name.
    :param replayed: is told of each job that runs again.
    :raises redis.exceptions.RedisError: from whatever is asked of it, where Redis does not answer.
    """

    def __init__(
        self,
        client: Redis,
        prefix: str,
        redactor: Redactor,
        parameters: Callable[[str], Sequence[str]] = lambda name: (),
        replayed: Callable[[Aside], None] = lambda job: None,
    ) -> None:
        self._client: Any = client
        self._ledger = Ledger(client)
        self._prefix = prefix
        self._keys = Keys(prefix)
        self._redactor = redactor
        self._parameters = parameters
        self._replayed = replayed

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, letter_id: str) -> DeadLetter:
        """Read one dead letter.

        :raises DeadLetterNotFound: there is none (any more).
        :raises NewerDeadLetter: a later version of queue_kit has written it.
        """
        letter = next(self._open([letter_id]), None)
        if letter is None:
            raise DeadLetterNotFound(f"there is no dead letter {letter_id}")
        if letter.is_newer:
            raise newer(letter_id, str(letter.version))
        return letter

    def page(self, wanted: LetterFilter = ALL, *, offset: int = 0, limit: int = 100) -> Page:
        """Read those that a filter means, newest first, ``limit`` of them from ``offset`` on."""
        ids = self.ids(wanted)
        return Page(list(self._open(ids[offset : offset + limit])), len(ids))

    def survey(self, wanted: LetterFilter = ALL, *, offset: int = 0, limit: int = 100) -> tuple[Page, Tally]:
        """Read a page and count all that the filter means, in one pass over the records."""
        found = list(self._found(wanted, COUNTED))
        ids = [letter_id for letter_id, _ in found[offset : offset + limit]]
        return Page(list(self._open(ids)), len(found)), _counted(facts for _, facts in found)

    def ids(self, wanted: LetterFilter = ALL) -> list[str]:
        """Name those that a filter means, newest first."""
        if not wanted.facets:
            return [letter_id for _, letter_id in self._listed(wanted)]
        return [letter_id for letter_id, _ in self._found(wanted)]

    def require(self, wanted: LetterFilter) -> list[str]:
        """Name those that a filter means, newest first, at least one.

        :raises NoDeadLetterMatches: repeats the filter.
        """
        ids = self.ids(wanted)
        if not ids:
            raise NoDeadLetterMatches(f"no dead letter matches the filter: {wanted}")
        return ids

    def each(self, wanted: LetterFilter = ALL) -> Iterator[DeadLetter]:
        """Read all that a filter means, newest first, a batch at a time."""
        return self._open(self.ids(wanted))

    def read(self, ids: Sequence[str]) -> Iterator[DeadLetter]:
        """Read these, in this order, a batch at a time; those that are gone are left out."""
        return self._open(ids)

    def tally(self, wanted: LetterFilter = ALL) -> Tally:
        """Count those that a filter means, by queue, cause, task name and error class."""
        return _counted(facts for _, facts in self._found(wanted, COUNTED))

    def export(self, wanted: LetterFilter = ALL) -> Iterator[str]:
        """Give all that a filter means as lines of JSON, newest first, redacted."""
        return (letter.as_line() for letter in self.each(wanted))

    # -- acting -------------------------------------------------------------------------------------------------------

    def replay(self, letter_id: str, by: str) -> None:
        """Let the job of a dead letter run again: the same job, waiting at the tail of its queue, with all its attempts.

        Its counters go on, so one that stalled out fails at its next stall. A job whose record was trimmed is rebuilt.

        :param by: who asks for it; kept in the dead letter.
        :raises DeadLetterNotFound: there is none (any more).
        :raises AlreadyReplayed: this dead letter was; says by whom and when.
        :raises WrongState: the job waits, is delayed, runs, or has completed meanwhile.
        :raises NewerDeadLetter: a later version of queue_kit has written it.
        """
        (done,) = self.replay_each([letter_id], by)
        if done.error is not None:
            raise done.error

    def replay_each(
        self, letter_ids: Sequence[str], by: str, *, rate_per_s: float | None = None, dry_run: bool = False
    ) -> Iterator[Done]:
        """Replay dead letters in this order and say of each what became of it, as it is done.

        :param rate_per_s: at most so many a second.
        :param dry_run: change nothing; say what would become of each.
        :raises ValueError: a rate that is not above 0.
        """
        if rate_per_s is not None and not rate_per_s > 0:
            raise ValueError("rate: a number above 0 is needed")
        at_once = _DONE_AT_ONCE if rate_per_s is None or dry_run else max(1, min(_DONE_AT_ONCE, int(rate_per_s / 100)))
        pace = Pace(None if dry_run else rate_per_s)
        for batch in _batches(dict.fromkeys(letter_ids), at_once):
            pace.wait(len(batch))
            yield from self._replay_batch(batch, by, dry_run)

    def replay_job(self, job_id: str, by: str) -> None:
        """Let a job that failed, was cancelled or has expired run again, without a dead letter; it may have left none.

        :raises JobNotFound: there is no such job, or only its id is kept: replay its dead letter.
        :raises WrongState: the job waits, is delayed, runs, or has completed.
        """
        record = {_text(name): _text(value) for name, value in self._client.hgetall(self._keys.job(job_id)).items()}
        message = unpacked(joined(record), job_id, record.get("name", ""), record.get("queue", ""))
        answer = self._ledger.run(moves.replay(self._prefix, job_id, moves.Fresh.of(message), by))
        if answer.outcome == "gone":
            raise JobNotFound(f"no record of a job {job_id} is kept")
        if answer.outcome != "ok":
            raise live(job_id, answer.outcome)
        self._tell(answer)

    def discard(self, letter_id: str) -> None:
        """Delete one dead letter. The job's own record stays until it is trimmed.

        :raises DeadLetterNotFound: there is none (any more).
        """
        (done,) = self.discard_each([letter_id])
        if done.error is not None:
            raise done.error

    def discard_each(self, letter_ids: Sequence[str], *, dry_run: bool = False) -> Iterator[Done]:
        """Delete dead letters and say of each what became of it, as it is done; or, with ``dry_run``, what would."""
        for batch in _batches(dict.fromkeys(letter_ids), _DONE_AT_ONCE):
            if dry_run:
                there = [values[0] is not None for _, values in self._fields(batch, ("version",), len(batch))]
            else:
                answers = self._ledger.run(moves.discard(self._prefix, batch))
                there = [gone == 1 for gone in answers]
            for letter_id, found in zip(batch, there, strict=True):
                yield Done(letter_id, None if found else DeadLetterNotFound(f"there is no dead letter {letter_id}"))

    # -- how ----------------------------------------------------------------------------------------------------------

    def _listed(self, wanted: LetterFilter) -> list[tuple[str, str]]:
        """Queue and id of those in the time that a filter asks for, newest first, in one round trip after the queues' names."""
        queues = [wanted.queue] if wanted.queue else self._ledger.queues(self._keys)
        since = "-inf" if wanted.since_ms is None else wanted.since_ms
        until = "+inf" if wanted.until_ms is None else f"({wanted.until_ms}"
        pipe = self._client.pipeline(transaction=False)
        for queue in queues:
            pipe.zrevrangebyscore(self._keys.queue(queue, "dead"), until, since, withscores=True)
        found = [(at, queue, _text(i)) for queue, rows in zip(queues, pipe.execute(), strict=True) for i, at in rows]
        return [(queue, letter_id) for _, queue, letter_id in sorted(found, key=lambda row: row[0], reverse=True)]

    def _found(self, wanted: LetterFilter, names: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, str]]]:
        """Id and these fields of those that a filter means, newest first; of each record no more is read than it takes."""
        queues = {letter_id: queue for queue, letter_id in self._listed(wanted)}
        read = list(dict.fromkeys(("cause", *wanted.facets, *names)))
        for letter_id, values in self._fields(list(queues), read, _FACETS_AT_ONCE):
            if values[0] is None:  # its record is lost
                continue
            facts = dict(zip(read, map(_text, values), strict=True)) | {"queue": queues[letter_id]}
            if matches(letter_id, facts, wanted, self._redactor):
                yield letter_id, facts

    def _fields(self, ids: Sequence[str], names: Sequence[str], at_once: int) -> Iterator[tuple[str, list[Any]]]:
        for batch in _batches(ids, at_once):
            pipe = self._client.pipeline(transaction=False)
            for letter_id in batch:
                pipe.hmget(self._keys.dead_letter(letter_id), names)
            yield from zip(batch, pipe.execute(), strict=True)

    def _open(self, ids: Sequence[str]) -> Iterator[DeadLetter]:
        for batch in _batches(ids, _WHOLE_AT_ONCE):
            pipe = self._client.pipeline(transaction=False)
            for letter_id in batch:
                pipe.hgetall(self._keys.dead_letter(letter_id))
            for letter_id, reply in zip(batch, pipe.execute(), strict=True):
                record = {_text(name): _text(value) for name, value in reply.items()}
                if record:
                    yield open_letter(letter_id, record, self._redactor, self._parameters(record.get("name", "")))

    def _replay_batch(self, ids: Sequence[str], by: str, dry_run: bool) -> Iterator[Done]:
        facts = dict(self._fields(ids, ("version", "job", "message", "name", "queue"), len(ids)))
        refused = {i: unreadable(i, version, job) for i, (version, job, *_) in facts.items()}
        calls = {
            i: moves.replay(self._prefix, _text(job), _fresh(message, job, *more), by, letter_id=i, dry_run=dry_run)
            for i, (_, job, message, *more) in facts.items()
            if refused[i] is None
        }
        answers = dict(zip(calls, self._ledger.run_all(list(calls.values())), strict=True))
        for answer in answers.values():  # before the first is given out: who takes them may stop
            self._tell(answer)
        for letter_id in ids:
            if refused[letter_id] is None:
                yield Done(letter_id, refusal(letter_id, _text(facts[letter_id][1]), answers[letter_id]))
            else:
                yield Done(letter_id, refused[letter_id])

    def _tell(self, answer: Any) -> None:
        aside = getattr(answer, "aside", None)  # a refusal of Redis's has none
        if aside is not None:
            self._replayed(aside)


def _fresh(message: Any, *whose: Any) -> moves.Fresh:
    packed = _text(message).startswith(MARK)  # what is no message at all stays as it is, byte for byte
    return moves.Fresh.of(unpacked(_text(message), *map(_text, whose)) if packed else message)


def _counted(found: Iterable[dict[str, str]]) -> Tally:
    counts: Tally = {name: Counter() for name in COUNTED}
    for facts in found:
        for name in COUNTED:
            counts[name][facts[name]] += 1
    return counts


def _batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _text(value: Any) -> str:
    # What a task wrote into its error may be no text at all; it must not hide the rest.
    return value.decode(errors="replace") if isinstance(value, bytes) else str("" if value is None else value)
