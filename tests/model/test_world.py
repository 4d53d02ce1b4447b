"""Every interleaving of two workers, a reaper, an operator and time, up to a bound; paths of it made with the real scripts."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import redis

from tests.model import world as model
from tests.model.explore import Explored, explore, stuck
from tests.model.mirror import Mirror
from tests.model.world import VERBS, Bounds

#: One job with everything that there is.
ONE_JOB = (1, Bounds(tokens=3, replays=1, verbs=frozenset(VERBS)))
#: Two jobs in a queue of one slot.
ONE_SLOT = (2, Bounds(tokens=3, replays=0, verbs=frozenset(VERBS) - {"remove", "replay", "reserve", "begin"}, slots=1))
SAMPLES = 120


@pytest.fixture(scope="module", params=[ONE_JOB, ONE_SLOT], ids=["one job", "two jobs and one slot"])
def explored(request: pytest.FixtureRequest) -> Explored:
    return explore(*request.param)


def test_no_world_and_no_move_breaks_a_rule(explored: Explored) -> None:
    """One final state, one live copy, counters that only go up, no late settle accepted, no more slots than there are."""
    print(f"{len(explored.met)} worlds, {explored.edges} moves")
    assert explored.broken == []
    assert len(explored.met) > 10_000


def test_from_every_world_each_job_can_come_to_an_end(explored: Explored) -> None:
    """Nothing is lost: workers, the reaper and time are enough, whatever has happened before."""
    assert stuck(explored) == []


def _no_fence(job: model.Job, token: int) -> str:
    return "" if job.token else "lost"


def _forgets_the_line(world: model.World, number: int, side: str) -> model.World:
    return world


def _ends_quietly(job: model.Job, state: str, *, made: int = 0) -> model.Job:
    return job._replace(state=state, place="", token=0)


@pytest.mark.parametrize(
    ("name", "broken"), [("_why_not", _no_fence), ("_line_up", _forgets_the_line), ("_ended", _ends_quietly)]
)
def test_a_model_that_is_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., object]) -> None:
    monkeypatch.setattr(model, name, broken)
    assert explore(*ONE_JOB).broken != []


def test_the_scripts_do_what_the_model_says(explored: Explored, client: redis.Redis) -> None:
    """Of each kind of move (verb, answer, state before) one, and some of all others, with the steps that lead there."""
    dice = random.Random(1)
    chosen = [dice.choice(edges) for edges in explored.kinds.values()]
    chosen += dice.sample([edge for edges in explored.kinds.values() for edge in edges], SAMPLES)
    for before, step, after in chosen:
        client.flushall()
        mirror = Mirror(client, explored.bounds.slots, len(before.jobs))
        for taken in (*explored.path(before), step):
            mirror.make(taken)
        mirror.compare(after)
