"""Looks at every world that there is, breadth first, and says which rule one breaks.

Without it the model would be a drawing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.world import FINAL, Bounds, Job, Step, World, moves, start

REFUSED = ("moved", "lost", "gone")
SETTLES = ("complete", "fail", "retry", "release", "stall")
#: What workers, the reaper and time do by themselves.
ON_THEIR_OWN = ("claim", "begin", "complete", "run_out", "reap", "promote")


@dataclass
class Explored:
    """Every world, by which step from which other it was first met; how each can be left; the rules that were broken."""

    bounds: Bounds
    met: dict[World, tuple[World, Step] | None] = field(default_factory=dict)
    edges: int = 0
    kinds: dict[tuple[str, str, str], list[tuple[World, Step, World]]] = field(default_factory=lambda: defaultdict(list))
    broken: list[str] = field(default_factory=list)
    into: dict[World, list[World]] = field(default_factory=lambda: defaultdict(list))

    def path(self, world: World) -> list[Step]:
        """The steps that lead to a world from the first."""
        steps = []
        while (met := self.met[world]) is not None:
            world, step = met
            steps.append(step)
        return steps[::-1]


def explore(jobs: int, bounds: Bounds) -> Explored:
    """Make every move in every world that can be reached."""
    first = start(jobs)
    found, front = Explored(bounds, {first: None}), [first]
    while front:
        behind, front = front, []
        for before in behind:
            for step, after in moves(before, bounds):
                found.edges += 1
                found.broken += [f"{step} from {before}: {fault}" for fault in _wrong_move(before, step, after)]
                found.kinds[step.verb, step.answer, _state(before, step)].append((before, step, after))
                if step.verb in ON_THEIR_OWN or step == Step("pause", -1, -1, "resumed"):
                    found.into[after].append(before)
                if after not in found.met:
                    found.met[after] = (before, step)
                    found.broken += [f"{after}: {fault}" for fault in _wrong_world(after, bounds)]
                    front.append(after)
        if found.broken:
            break
    return found


def stuck(found: Explored) -> list[World]:
    """Worlds from which some job can never come to an end, though a worker may still claim."""
    fine = [world for world in found.met if all(job.state in (*FINAL, "none") for job in world.jobs)]
    seen = set(fine)
    while fine:
        fine = [before for world in fine for before in found.into[world] if before not in seen and not seen.add(before)]
    spare = found.bounds.tokens - len(next(iter(found.met)).jobs)
    return [world for world in found.met if world not in seen and world.tokens <= spare]


def _state(world: World, step: Step) -> str:
    return world.jobs[step.job].state + (" flagged" if world.jobs[step.job].cancel else "") if step.job >= 0 else ""


def _wrong_world(world: World, bounds: Bounds) -> Iterator[str]:
    for number, job in enumerate(world.jobs):
        holders = sum(held == (number, job.token) for held in world.hands)
        if (job.place == "wait") != (world.wait.count(number) == 1) or world.wait.count(number) > 1:
            yield "not one live copy: its place and the line differ"
        if job.place not in _places(job):
            yield f"{job.state} in {job.place}"
        if (job.token != 0) != (job.place in ("active", "reserved")) or holders > 1:
            yield "held by none or two"
        if job.ends != (job.state in FINAL):
            yield f"ended {job.ends} times"
        if job.stalls > job.started or job.made > job.started:
            yield "counted what did not begin"
    if sum(job.place in ("active", "reserved") for job in world.jobs) > bounds.slots:
        yield "more slots taken than there are"


def _places(job: Job) -> tuple[str, ...]:
    return {"none": ("",), "waiting": ("wait", "reserved")}.get(job.state, (job.state,))


def _wrong_move(before: World, step: Step, after: World) -> Iterator[str]:
    if step.answer in REFUSED and before.jobs != after.jobs:
        yield "refused, and yet it has changed something"
    for was, now in zip(before.jobs, after.jobs, strict=True):
        if step.verb == "remove" and now == Job():
            continue
        if (now.made, now.started, now.stalls) < (was.made, was.started, was.stalls) or now.started < was.started:
            yield "a counter went down"
        if was.state in FINAL and now.state != was.state and step.verb != "replay":
            yield "left its end"
    if step.verb in SETTLES and step.answer not in REFUSED:
        held = before.hands[step.who]
        if held is None or before.jobs[held[0]].token != held[1] or held[1] != max(_tokens(before, held[0])):
            yield "a late settle was accepted"


def _tokens(world: World, number: int) -> list[int]:
    """Every token of a job that anybody may still have."""
    job = world.jobs[number]
    return [job.token, *job.moved, *(held[1] for held in world.hands if held is not None and held[0] == number)]
