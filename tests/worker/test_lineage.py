"""Ids that follow from a job and a place: the same canvas, sent by two runs of one job, is the same tasks and groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, canvas, chain, chord, group

from queue_kit.worker.running import lineage

app = Celery("lineage", backend="cache+memory://", set_as_current=False)


@app.task(name="lineage.step")
def step() -> None:
    """Do nothing: it is only named."""


CANVASES = {
    "task": step.si,
    "chain": lambda: chain(step.si(), step.si()),
    "group": lambda: group(step.si(), step.si()),
    "chord": lambda: chord([step.si(), step.si()], step.si()),
    "chord of one": lambda: chord([step.si()], step.si()),
    "chain that ends in a group": lambda: chain(step.si(), group(step.si(), step.si())),
    "chords in a row": lambda: chain(chord([step.si(), step.si()], step.si()), chord([step.si()] * 2, step.si())),
    "chord before a group": lambda: chain(chord([step.si(), step.si()], step.si()), group(step.si(), step.si())),
    "chords in a header": lambda: chord([chord([step.si()] * 2, step.si()), group(step.si(), step.si())], step.si()),
}


@pytest.fixture(autouse=True)
def _attended_canvas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "uuid", canvas.uuid)
    lineage.attend_canvas()


def replacement(name: str) -> Any:
    """A canvas, named and frozen as by a run of the job `j-1` that gives way to it."""
    collect = app.tasks["celery.accumulate"].s(index=0)
    with lineage.naming("j-1", "replace/0/0"):
        named = lineage.name_replacement(CANVASES[name](), "j-1", 0, 0, collect)
        named.freeze("j-1")
    return named


def ids(value: Any) -> Iterator[str]:
    """Every id in a canvas: of tasks, groups and chords, also in the copies of a body that its header carries."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("task_id", "group_id") and inner:
                yield str(inner)
            yield from ids(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from ids(inner)


@pytest.mark.parametrize("name", CANVASES)
def test_two_runs_give_a_canvas_the_same_ids(name: str) -> None:
    """E10: tasks, groups and the headers of chords, however deep."""
    first, second = list(ids(replacement(name))), list(ids(replacement(name)))
    assert first == second
    assert "j-1" in first


def last_step(signature: Any) -> Any:
    """The task that a canvas ends in."""
    kind = signature.get("subtask_type")
    if kind == "chain":
        return last_step(signature.tasks[-1])
    return last_step(signature.body) if kind == "chord" else signature


@pytest.mark.parametrize("name", CANVASES)
def test_the_last_step_of_a_replacement_takes_the_jobs_id_and_shows_that_it_continues_the_job(name: str) -> None:
    """A13: without that sign the store would take it for a second send of the same job."""
    options = last_step(replacement(name)).options
    assert (options["task_id"], options["replaced_task_nesting"]) == ("j-1", 1)


def test_outside_of_a_run_canvas_makes_up_new_ids() -> None:
    """What a job sends from within its function is its own affair."""
    assert len({canvas.uuid() for _ in range(3)}) == 3


def test_jobs_and_places_do_not_share_ids() -> None:
    """E10: two jobs may have the same callbacks, and one job has several."""
    callbacks = [step.si(), step.si()]
    named = [c["options"]["task_id"] for job in ("j-1", "j-2") for c in lineage.name_callbacks(job, callbacks)]
    assert len(set(named)) == 4
    assert "task_id" not in callbacks[0].options
