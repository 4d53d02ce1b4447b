"""Ids that follow from a job's id and a place; without them a rerun would send its callbacks and its canvas twice.

The second send of an id is answered ``duplicated``, so a step that was sent before the worker died runs once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid5

_NAMESPACE = UUID("6f1d3c52-7f0a-4a5e-9a55-0c7d4f9b8e21")


def derived(job_id: str, place: str) -> str:
    """The id of what ``job_id`` sends at ``place``; the same in every run."""
    return str(uuid5(_NAMESPACE, f"{job_id}/{place}"))


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


def name_replacement(signature: Any, job_id: str, turn: str) -> Any:
    """A copy of the signature that replaces ``job_id``: its last step takes the job's own id, the others derived ones."""
    named = name_steps(signature, job_id, f"replace/{turn}")
    _hand_on(named, job_id)
    return named


def replaced_by(embed: Mapping[str, Any] | None) -> list[tuple[str, int]]:
    """Jobs that replaced themselves by the canvas of which this is the ``embed`` of one step, each with its nesting.

    Of the steps still to come, only one that stands for such a job bears a nesting.
    """
    embed = embed or {}
    steps = [*(embed.get("chain") or []), *([embed["chord"]] if embed.get("chord") else [])]
    options = [step.get("options") or {} for step in steps]
    named = [(option.get("task_id"), int(option.get("replaced_task_nesting") or 0)) for option in options]
    return [(str(job_id), nesting) for job_id, nesting in named if job_id and nesting]


def _hand_on(signature: Any, job_id: str) -> None:
    kind = signature.get("subtask_type")
    if kind == "chain" and signature["kwargs"].get("tasks"):
        signature["options"].pop("task_id", None)
        _hand_on(signature["kwargs"]["tasks"][-1], job_id)
    elif kind == "chord":
        signature["options"].pop("task_id", None)
        _hand_on(signature["kwargs"]["body"], job_id)
    elif kind != "group":  # Celery gives a group a body of its own, which takes the id
        signature["options"]["task_id"] = job_id
