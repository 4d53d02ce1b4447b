"""What an operator or a program may ask of a queue; the limits live in Redis, so they hold for every worker at once.

Nothing here waits for a worker: each call is one script, and what it says survives every restart.
"""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from queue_kit.errors import JobNotFound, QueueUnavailable, WrongState
from queue_kit.store import Call, Ledger
from queue_kit.worker.apps import app_with_queue_kit

_Unset: Any = object()


def pause(queue: str, app: Any = None) -> bool:
    """Give out no job of ``queue`` until :func:`resume`; what runs goes on, due jobs move to waiting.

    Return whether that changed something.
    """
    return bool(_run(app, _moves(app).pause(queue, True)))


def resume(queue: str, app: Any = None) -> bool:
    """Give out jobs of ``queue`` again. Return whether it was paused."""
    return bool(_run(app, _moves(app).pause(queue, False)))


def limit(queue: str, *, concurrency: int | None = _Unset, rate: tuple[int, int] | None = _Unset, app: Any = None) -> None:
    """Set the limits of ``queue`` over all workers; ``None`` lifts one, and what is left out stays.

    :param concurrency: jobs that run at once, 1 or more.
    :param rate: ``(starts, window_ms)``: at most so many starts in each window, which begins with its first start.
    :raises ValueError: for a number out of range, naming it.
    """
    fields: dict[str, int | None] = {}
    if concurrency is not _Unset:
        _check("concurrency", concurrency)
        fields["concurrency"] = concurrency
    if rate is not _Unset:
        starts, window_ms = rate or (None, None)
        _check("rate starts", starts)
        _check("rate window_ms", window_ms)
        fields.update(rate_max=starts, rate_ms=window_ms)
    if fields:
        _run(app, _moves(app).limit(queue, **fields))


def hold_off(queue: str, delay_ms: int, app: Any = None) -> None:
    """Give out no job of ``queue`` for ``delay_ms`` milliseconds, as after a provider's 429. 0 ends it.

    :raises ValueError: for a negative delay.
    """
    if delay_ms:
        _check("delay_ms", delay_ms)
    _run(app, _moves(app).limit(queue, hold_ms=delay_ms or None))


def promote(job_id: str, app: Any = None) -> None:
    """Let a delayed job run now.

    :raises JobNotFound: no job has this id.
    :raises WrongState: it is not delayed; says what it is.
    """
    _expect(job_id, _run(app, _moves(app).promote(job_id)), "promote", "delayed")


def postpone(job_id: str, delay_ms: int, app: Any = None) -> None:
    """Make a delayed job due ``delay_ms`` milliseconds from now, earlier or later than it was.

    :raises ValueError: for a negative delay.
    :raises JobNotFound: no job has this id.
    :raises WrongState: it is not delayed; says what it is.
    """
    if delay_ms:
        _check("delay_ms", delay_ms)
    _expect(job_id, _run(app, _moves(app).postpone(job_id, delay_ms)), "postpone", "delayed")


def remove(job_id: str, app: Any = None) -> None:
    """Remove a job and its history, whatever its state, unless it runs. Its deduplication key is free afterwards.

    :raises JobNotFound: no job has this id.
    :raises WrongState: it runs, or a worker has taken it ahead: cancel it first.
    """
    _expect(job_id, _run(app, _moves(app).remove(job_id)), "remove", "not running")


def drain(queue: str, *, delayed: bool = False, app: Any = None) -> int:
    """Remove the jobs that wait in ``queue``, and with ``delayed`` those that are not due yet; return how many.

    What runs goes on; jobs that arrive meanwhile may stay.
    """
    moves, ledger = _moves(app), Ledger(_kit(app).sender.client)
    parts = ("wait", "delayed") if delayed else ("wait",)
    gone = 0
    for part in parts:
        ids = ledger.members(_kit(app).keys, queue, part)
        for start in range(0, len(ids), 1000):
            gone += ledger.run_all([moves.remove(job_id) for job_id in ids[start : start + 1000]]).count("ok")
    return gone


def _kit(app: Any) -> Any:
    return app_with_queue_kit(app).queue_kit


def _moves(app: Any) -> Any:
    return _kit(app).moves


def _run(app: Any, call: Call[Any]) -> Any:
    try:
        return Ledger(_kit(app).sender.client).run(call)
    except RedisError as error:
        raise QueueUnavailable(f"the queue is not available ({error})") from error


def _expect(job_id: str, answer: str, verb: str, wanted: str) -> None:
    if answer == "gone":
        raise JobNotFound(f"{verb}: no job has the id {job_id}")
    if answer != "ok":
        raise WrongState(f"{verb}: job {job_id} is {answer}; it must be {wanted}", answer)


def _check(name: str, value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name}: a whole number of at least 1 is needed")
