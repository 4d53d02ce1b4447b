"""Ids that follow from a job's id and a place; without them a rerun would send its callbacks and its canvas twice.

The second send of an id is answered ``duplicated``, so a step that was sent before the worker died runs once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID, uuid5

from celery import canvas
from kombu.utils.uuid import uuid

_NAMESPACE = UUID("6f1d3c52-7f0a-4a5e-9a55-0c7d4f9b8e21")


def derived(job_id: str, place: str) -> str:
    """The id of what ``job_id`` sends at ``place``; the same in every run."""
    return str(uuid5(_NAMESPACE, f"{job_id}/{place}"))


_new_ids: ContextVar[Iterator[str] | None] = ContextVar("_new_ids", default=None)


def _new_id() -> str:
    source = _new_ids.get()
    return uuid() if source is None else next(source)


def attend_canvas() -> None:
    """Let Celery's canvas ask here when it makes up an id; outside of :func:`naming` it gets a new one, as ever."""
    canvas.uuid = _new_id


@contextmanager
def naming(job_id: str, place: str) -> Iterator[None]:
    """While this lasts, ids that Celery's canvas makes up follow from a job and a place.

    Ids of tasks can be given beforehand; that of a chord's header, by which its parts are counted, is lost at each copy.
    """
    token = _new_ids.set(derived(job_id, f"{place}/new/{number}") for number in itertools.count())
    try:
        yield
    finally:
        _new_ids.reset(token)


def name_sent(publish: Any, job_id: str) -> AbstractContextManager[None]:
    """:func:`naming` for what a finished run sends on; ``publish`` is the bound method of a signature."""
    signature = getattr(publish, "__self__", None) or {}
    parts = (signature.get("kwargs") or {}).get("tasks") or ()
    ids = [str((part.get("options") or {}).get("task_id")) for part in (signature, *parts)]
    return naming(job_id, "sent/" + "/".join(ids))


def name_callbacks(job_id: str, callbacks: Iterable[Any]) -> list[Any]:
    """Copies of a job's callbacks in which every task has an id."""
    return [name_steps(callback, job_id, f"link/{place}") for place, callback in enumerate(callbacks)]


def name_steps(signature: Any, job_id: str, place: str) -> Any:
    """A copy of a signature in which every task and group that had no id has one, down through chains, groups and chords."""
    named = signature.clone() if hasattr(signature, "clone") else dict(signature)
    options = named["options"] = dict(named.get("options") or {})
    options.setdefault("task_id", derived(job_id, place))
    kwargs = named.get("kwargs")
    if named.get("subtask_type") in ("chain", "group", "chord") and kwargs:
        named["kwargs"] = _name_parts(dict(kwargs), job_id, place)
    return named


def _name_parts(kwargs: dict[str, Any], job_id: str, place: str) -> dict[str, Any]:
    for part in ("tasks", "header"):
        inner = kwargs.get(part)
        if isinstance(inner, dict):
            kwargs[part] = name_steps(inner, job_id, f"{place}/{part}")
        elif inner is not None:
            kwargs[part] = [name_steps(step, job_id, f"{place}/{part}/{index}") for index, step in enumerate(inner)]
    if kwargs.get("body") is not None:
        kwargs["body"] = name_steps(kwargs["body"], job_id, f"{place}/body")
    return kwargs


def name_replacement(signature: Any, job_id: str, nesting: int, replays: int, collect: Any) -> Any:
    """A copy of the signature that replaces ``job_id``: its last step takes the job's own id, the others derived ones.

    ``nesting`` is how often the job has replaced itself before. ``collect`` is the task that Celery puts behind a group, to make
    one result of many.
    """
    named = name_steps(_with_one_end(signature, collect), job_id, f"replace/{nesting}/{replays}")
    _hand_on(named, job_id, nesting + 1)
    return named


def _with_one_end(signature: Any, collect: Any) -> Any:
    """A copy that ends in one task. Celery sees to it where a group is last in a chain, not where a chord stands before it."""
    kind = signature.get("subtask_type")
    if kind == "group" and "chord" not in signature["options"]:  # that one Celery refuses
        return signature | collect
    if kind == "chain" and signature.tasks:
        signature = signature.clone()
        signature.tasks = [*signature.tasks[:-1], _with_one_end(signature.tasks[-1], collect)]
    elif kind == "chord":
        signature = signature.clone()
        signature.body = _with_one_end(signature.body, collect)
    return signature


def replaced_by(embed: Mapping[str, Any] | None) -> list[tuple[str, int]]:
    """Jobs that replaced themselves by the canvas of which this is the ``embed`` of one step, each with its nesting.

    Of the steps still to come, only one that stands for such a job bears a nesting.
    """
    embed = embed or {}
    steps = [*(embed.get("chain") or []), *([embed["chord"]] if embed.get("chord") else [])]
    options = [step.get("options") for step in steps if isinstance(step, Mapping)]  # a message may hold anything
    named = [(each.get("task_id"), each.get("replaced_task_nesting")) for each in options if isinstance(each, Mapping)]
    return [(str(job_id), nesting) for job_id, nesting in named if job_id and nesting and isinstance(nesting, int)]


def _hand_on(signature: Any, job_id: str, nesting: int) -> None:
    """Give the last step the job's id, and the sign by which it is known as what replaces the job, and not as a duplicate."""
    kind, kwargs, options = signature.get("subtask_type"), signature["kwargs"], signature["options"]
    if kind == "chain" and kwargs.get("tasks"):
        options.pop("task_id", None)
        _hand_on(kwargs["tasks"][-1], job_id, nesting)
    elif kind == "chord":
        options.pop("task_id", None)
        _hand_on(kwargs["body"], job_id, nesting)
    else:
        options.update(task_id=job_id, replaced_task_nesting=nesting)
