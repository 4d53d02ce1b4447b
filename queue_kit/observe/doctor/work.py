"""Checks of what lies in the queues and who looks after it: whether jobs are stuck, forgotten or given up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from queue_kit.observe.doctor.facts import Facts, Finding, bad, ok, some, warn

_OLD_WARN_MS, _OLD_BAD_MS = 5 * 60_000, 60 * 60_000
_MANY_LETTERS: Final = 0.9  # of those that are kept


def stock_messages(facts: Facts) -> Iterator[Finding]:
    """What a producer without queue_kit has sent to where no worker of ours looks."""
    left = {queue.name: queue.stock for queue in facts.queues if queue.stock}
    for name, count in left.items():
        says = f"queue {name}: {count} messages wait in its plain Redis list, from a producer without queue_kit.install"
        if facts.settings.take_stock_messages:
            yield warn("stock messages", f"{says}; workers of queue_kit take them over", "install queue_kit in that producer")
        else:
            fix = "set TAKE_STOCK_MESSAGES, or run queue_migrate; then install queue_kit in that producer"
            yield bad("stock messages", f"{says}: no worker of queue_kit takes them", fix)
    if not left:
        yield ok("stock messages", "none in the plain lists of these queues")


def stock_workers(facts: Facts) -> Iterator[Finding]:
    """Workers without queue_kit on this database."""
    stock = [worker.name for worker in facts.workers if not worker.ours]
    if stock:
        says = f"workers without queue_kit on this database take none of its jobs: {some(stock)}"
        yield warn("stock workers", says, "call queue_kit.install(app) in their project, or give them a database of their own")


def unacked(facts: Facts) -> Iterator[Finding]:
    """Messages that stock workers have taken; those of dead ones wait for the visibility timeout."""
    if facts.unacked:
        says = f"stock Celery holds {facts.unacked} messages unacknowledged: they run there now, or their worker is dead"
        yield warn("stock workers", says, "TAKE_STOCK_MESSAGES and queue_migrate take them past the visibility timeout")


def unread_queues(facts: Facts) -> Iterator[Finding]:
    """Jobs that nobody will take."""
    ours = [worker for worker in facts.workers if worker.ours]
    if ours:
        yield ok("workers", f"{len(ours)} of queue_kit: {some(sorted(worker.name for worker in ours))}")
    else:
        yield warn("workers", "no worker of queue_kit runs", "start one: celery -A ... worker")
    if facts.unasked:
        yield warn("workers", f"they could not be asked what they know: {facts.unasked}", "see what is said of the server")
    read = frozenset[str]().union(*(worker.queues for worker in ours))
    for queue in facts.queues:
        if queue.paused:
            says = f"queue {queue.name} is paused: its {queue.waiting} waiting jobs stay"
            yield warn("paused", says, "queue_kit.control.resume, or the button in the admin")
        if queue.name not in read and queue.waiting + queue.delayed:
            says = f"nobody consumes queue {queue.name}: {queue.waiting} jobs wait, {queue.delayed} are delayed"
            yield bad("queues", says, f"start a worker with -Q {queue.name}, or correct the name where they are sent")
    empty = {queue.name for queue in facts.queues if not queue.waiting + queue.delayed}
    idle = sorted(facts.declared_queues & empty - read)
    if ours and idle:
        says = f"nobody consumes these declared queues, which are empty: {some(idle)}"
        yield warn("queues", says, "name them in a worker's -Q")


def unknown_tasks(facts: Facts) -> Iterator[Finding]:
    """Jobs that will end as dead letters, since no worker has their task."""
    ours = [worker for worker in facts.workers if worker.ours]
    for queue in facts.queues:
        theirs = [worker.tasks for worker in ours if queue.name in worker.queues]
        if None in theirs:  # it is busy, and may know what the others do not
            continue
        known = frozenset[str]().union(*(tasks or () for tasks in theirs)) or facts.tasks
        for name in sorted(queue.names.keys() - known):
            says = f"queue {queue.name}: {queue.names[name]} jobs ask for {name or 'no task at all'}, which no worker of it knows"
            yield bad("tasks", says, "deploy workers that have it, with UNKNOWN_TASK_HOLD_MS meanwhile")


def oldest_waiting(facts: Facts) -> Iterator[Finding]:
    """How far behind the queues are."""
    late = [queue for queue in facts.queues if queue.oldest_waiting_ms >= _OLD_WARN_MS]
    for queue in late:
        judge = bad if queue.oldest_waiting_ms >= _OLD_BAD_MS else warn
        says = f"queue {queue.name}: its oldest job waits for {queue.oldest_waiting_ms // 1000} s, {queue.waiting} in all"
        yield judge("backlog", says, "more workers or slots; see what runs so long, and whether a limit or a pause is set")
    if not late:
        waiting = sum(queue.waiting for queue in facts.queues)
        yield ok("backlog", f"nothing has waited for {_OLD_WARN_MS // 60_000} minutes; {waiting} jobs wait in all")


def overdue(facts: Facts) -> Iterator[Finding]:
    """Jobs of dead workers that nobody gives back."""
    behind = {queue.name: queue.overdue for queue in facts.queues if queue.overdue}
    if behind:
        says = f"leases have run out and nobody has given the jobs back: {_counted(behind)}"
        yield warn("leases", says, "any running worker of queue_kit does, within a reap interval and one renewal")


def untold(facts: Facts) -> Iterator[Finding]:
    """Callers that wait for jobs which have ended."""
    if facts.untold:
        says = f"{facts.untold} jobs ended outside their runs, and their callers have not been told for a minute"
        yield warn("callers", says, "a running worker of queue_kit tells them; see its log, and the result backend")


def dead_letters(facts: Facts) -> Iterator[Finding]:
    """What has been given up, and whether the records themselves are being lost."""
    kept = {queue.name: queue.dead for queue in facts.queues if queue.dead}
    gone = {queue.name: queue.evicted for queue in facts.queues if queue.evicted}
    most = facts.settings.dead_letter_max_entries
    near = {name: count for name, count in kept.items() if count >= most * _MANY_LETTERS}
    if near:
        says = f"near the {most} that a queue keeps, then the oldest are lost: {_counted(near)}"
        yield bad("dead letters", says, "replay or discard them, export them first, or raise DEAD_LETTER_MAX_ENTRIES")
    elif gone:
        says = f"older ones were lost, more had failed than are kept: {_counted(gone)}"
        yield warn("dead letters", says, "raise DEAD_LETTER_MAX_ENTRIES, or look more often")
    if kept:
        yield warn("dead letters", f"jobs that failed for good: {_counted(kept)}", "see dlq_list --counts, then dlq_replay")
    else:
        yield ok("dead letters", "none")


def strays(facts: Facts) -> Iterator[Finding]:
    """Keys that nothing will ever clean up, and jobs that stand in no list."""
    found = facts.strays
    seen = f"{found.looked_at} keys looked at" + ("" if found.all_read else ", not all")
    if found.lost:
        says = f"jobs that should run stand in no list, so nobody will run them: {some(found.lost)}"
        yield bad("keys", f"{says} ({seen})", "send them again under another id; see who deletes keys in this database")
    if found.unlisted:
        says = f"records that no list names will never go: {some(found.unlisted)}"
        yield warn("keys", f"{says} ({seen})", "delete those keys; see who deletes others in this database")
    if not found.lost and not found.unlisted:
        yield ok("keys", f"every job and record stands in a list ({seen})")


def _counted(numbers: Mapping[str, int]) -> str:
    return some([f"{name} {numbers[name]}" for name in sorted(numbers, key=lambda name: -numbers[name])])
