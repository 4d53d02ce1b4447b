"""What anybody may ask of jobs, queues and keys: nothing here waits for a worker. Each call is one script, and what it says
survives every restart; limits live in Redis, so they hold for every worker at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from redis.exceptions import RedisError

from queue_kit.errors import JobNotFound, QueueUnavailable, WrongState
from queue_kit.observe import transitions
from queue_kit.rules.backoff import LONGEST_MS
from queue_kit.states import Cause, State
from queue_kit.store import Call, Keys, Ledger
from queue_kit.store.switches import KeyView, QueueLimits, read_key, read_limits
from queue_kit.worker.apps import app_with_queue_kit

_UNSET: Any = object()
_PAGE: Final = 1000

# -- jobs -----------------------------------------------------------------------------------------------------------------


def cancel(job_id: str, app: Any = None) -> State:
    """Ask that a job does not run, or stops. Return its state after that.

    ``cancelled``: it waited or was delayed, and never runs; whoever waits for its result is told that it was revoked.
    ``active``: it runs; its token fires within a quarter of a lease. If its run stops for that, raises anything, or loses its
    worker, it ends ``cancelled`` and is not retried; a run that returns all the same completes. The request outlives every
    worker. Another state: it has ended already, and nothing happens.

    :raises JobNotFound: no job has this id.
    :raises QueueUnavailable: Redis could not be asked.
    """
    word = _run(app, _moves(app).cancel(job_id, Cause.CANCELLED), job_id)
    if word == "gone":
        raise JobNotFound(f"cancel: no job has the id {job_id}")
    return State.ACTIVE if word == "flagged" else State(word)


def promote(job_id: str, app: Any = None) -> None:
    """Let a delayed job run now.

    :raises JobNotFound: no job has this id.
    :raises WrongState: it is not delayed; says what it is.
    :raises QueueUnavailable: Redis could not be asked.
    """
    _expect(job_id, _run(app, _moves(app).promote(job_id), job_id), "promote", "delayed")


def postpone(job_id: str, delay_ms: int, app: Any = None) -> None:
    """Make a delayed job due ``delay_ms`` milliseconds from now, earlier or later than it was.

    :raises ValueError: for a negative delay, or one of more than a year.
    :raises JobNotFound: no job has this id.
    :raises WrongState: it is not delayed; says what it is.
    :raises QueueUnavailable: Redis could not be asked.
    """
    _check("delay_ms", delay_ms, least=0)
    _expect(job_id, _run(app, _moves(app).postpone(job_id, delay_ms), job_id), "postpone", "delayed")


def remove(job_id: str, app: Any = None) -> None:
    """Remove a job and its history, whatever its state, unless it runs. Its deduplication key is free afterwards.

    :raises JobNotFound: no job has this id.
    :raises WrongState: it runs, or a worker has taken it ahead: cancel it first.
    :raises QueueUnavailable: Redis could not be asked.
    """
    _expect(job_id, _run(app, _moves(app).remove(job_id), job_id), "remove", "not running")


# -- queues ---------------------------------------------------------------------------------------------------------------


def pause(queue: str, app: Any = None) -> bool:
    """Give out no job of ``queue`` until :func:`resume`; what runs goes on, due jobs move to waiting.

    Return whether that changed something.

    :raises QueueUnavailable: Redis could not be asked.
    """
    return bool(_run(app, _moves(app).pause(_named(queue), True)))


def resume(queue: str, app: Any = None) -> bool:
    """Give out jobs of ``queue`` again. Return whether it was paused.

    :raises QueueUnavailable: Redis could not be asked.
    """
    return bool(_run(app, _moves(app).pause(_named(queue), False)))


def limit(queue: str, *, concurrency: int | None = _UNSET, rate: tuple[int, int] | None = _UNSET, app: Any = None) -> None:
    """Set the limits of ``queue`` over all workers; ``None`` lifts one, and what is left out stays.

    :param concurrency: jobs that run at once, 1 or more. What runs already is not stopped.
    :param rate: ``(starts, window_ms)``: at most so many starts in each window, which begins with its first start.
    :raises ValueError: for a number out of range, naming it.
    :raises QueueUnavailable: Redis could not be asked.
    """
    fields: dict[str, int | None] = {}
    if concurrency is not _UNSET:
        _check("concurrency", concurrency)
        fields["concurrency"] = concurrency
    if rate is not _UNSET:
        starts, window_ms = (None, None) if rate is None else rate
        for name, value in (("rate starts", starts), ("rate window_ms", window_ms)):
            if rate is not None and value is None:
                raise ValueError(f"{name}: a whole number of at least 1 is needed")
            _check(name, value)
        fields.update(rate_max=starts, rate_ms=window_ms)
    if fields:
        _run(app, _moves(app).limit(_named(queue), **fields))


def limits(queue: str, app: Any = None) -> QueueLimits:
    """Read what limits ``queue`` now.

    :raises QueueUnavailable: Redis could not be asked.
    """
    kit = _kit(app)
    return _reading(lambda: read_limits(kit.sender.client, kit.keys, _named(queue)))


def hold_off(queue: str, delay_ms: int, app: Any = None) -> None:
    """Give out no job of ``queue`` for ``delay_ms`` milliseconds, as after a provider's 429. 0 ends it.

    :raises ValueError: for a negative delay, or one of more than a year.
    :raises QueueUnavailable: Redis could not be asked.
    """
    _check("delay_ms", delay_ms, least=0)
    _run(app, _moves(app).limit(_named(queue), hold_ms=delay_ms or None))


def drain(queue: str, *, delayed: bool = False, app: Any = None) -> int:
    """Remove the jobs that wait in ``queue``, and with ``delayed`` those that are not due yet; return how many.

    What runs goes on, and so does what a worker has taken ahead; jobs that arrive meanwhile may stay. A thousand go in one
    trip, so that others are served in between.

    :raises QueueUnavailable: Redis could not be asked; some may be gone.
    """
    parts = ("wait", "delayed") if delayed else ("wait",)
    return sum(_removed(app, ids) for part in parts for ids in _pages(app, _named(queue), part))


def _pages(app: Any, queue: str, part: str) -> Iterator[list[str]]:
    kit = _kit(app)
    ids = _reading(lambda: Ledger(kit.sender.client).members(kit.keys, queue, part))
    for start in range(0, len(ids), _PAGE):
        yield ids[start : start + _PAGE]


def _removed(app: Any, ids: list[str]) -> int:
    moves = _moves(app)
    answers = _kit(app).sender.run_all([moves.remove(job_id) for job_id in ids])
    for job_id, answer in zip(ids, answers, strict=True):
        transitions.asked("remove", job_id, answer)
    return int(answers.count("ok"))


# -- deduplication keys ---------------------------------------------------------------------------------------------------


def find_key(name: str, key: str, *, queue: str | None = None, app: Any = None) -> KeyView | None:
    """Read which job holds the deduplication key ``key`` of the jobs called ``name``; ``None`` if none does.

    :param queue: where they are sent; by default where a send without any options would go.
    :raises QueueUnavailable: Redis could not be asked.
    """
    kit, held = _kit(app), _key(name, key, queue, app)
    return _reading(lambda: read_key(kit.sender.client, kit.keys, held))


def release_key(name: str, key: str, *, queue: str | None = None, app: Any = None) -> str | None:
    """Free a deduplication key: the next send of it makes a new job. Return the id of the job that held it, if one did.

    That job goes on. A payload that was kept to run after it (``keep_last``) becomes a job at once.

    :raises QueueUnavailable: Redis could not be asked.
    """
    return _run(app, _moves(app).free(_key(name, key, queue, app), name)) or None


def _key(name: str, key: str, queue: str | None, app: Any) -> str:
    chosen = app_with_queue_kit(app)
    if queue is None:
        queue = str(chosen.amqp.router.route({}, name, (), {}, chosen.tasks.get(name))["queue"].name)
    return Keys(_kit(app).settings.queue_prefix).dedup(queue, name, key)


# -- what all of them do --------------------------------------------------------------------------------------------------


def _kit(app: Any) -> Any:
    return app_with_queue_kit(app).queue_kit


def _moves(app: Any) -> Any:
    return _kit(app).moves


def _run(app: Any, call: Call[Any], job_id: str = "") -> Any:
    answer = _kit(app).sender.run(call, job_id)
    if job_id:
        transitions.asked(call.script.name, job_id, answer)
    return answer


def _reading(read: Any) -> Any:
    try:
        return read()
    except RedisError as error:
        raise QueueUnavailable(f"the queue is not available ({error})") from error


def _expect(job_id: str, answer: str, verb: str, wanted: str) -> None:
    if answer == "gone":
        raise JobNotFound(f"{verb}: no job has the id {job_id}")
    if answer != "ok":
        raise WrongState(f"{verb}: job {job_id} is {answer}; it must be {wanted}", answer)


def _named(queue: str) -> str:
    if not isinstance(queue, str) or not queue:
        raise ValueError("queue: the name of a queue is needed")
    return queue


def _check(name: str, value: int | None, least: int = 1) -> None:
    if value is None and least:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LONGEST_MS:
        raise ValueError(f"{name}: a whole number of at least {least} is needed")
