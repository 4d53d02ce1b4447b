"""The moves of jobs in one queue, between two workers, a reaper and an operator, as an explicit state model in plain Python.

Without it only such interleavings would have been looked at as somebody has thought of, or chance has met. Time is an actor
like the others: it may let a lease run out whenever one is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

FINAL = ("completed", "failed", "cancelled")
HANDS = (0, 1)
MAX_STALLED = 1


class Job(NamedTuple):
    """One job. place: the list that names it. token: who holds it, 0 nobody. over: its lease has run out, and nobody has
    reaped it yet. ends: how often it has ended since it was added or replayed; it may be 1."""

    state: str = "none"
    place: str = ""
    token: int = 0
    over: bool = False
    moved: tuple[int, ...] = ()
    made: int = 0
    started: int = 0
    stalls: int = 0
    cancel: bool = False
    replays: int = 0
    ends: int = 0


class World(NamedTuple):
    """All there is. wait: jobs in line. hands: for each worker the job and the token it believes to hold. tokens: how many were
    ever given out."""

    jobs: tuple[Job, ...]
    wait: tuple[int, ...] = ()
    hands: tuple[tuple[int, int] | None, ...] = (None, None)
    tokens: int = 0
    paused: bool = False


class Step(NamedTuple):
    """One move: its verb, who makes it (a worker's number; -1: reaper, operator, time), on which job, with which answer."""

    verb: str
    who: int
    job: int
    answer: str


@dataclass(frozen=True)
class Bounds:
    """How far to look: tokens given out, replays of a job; which verbs there are; slots of the queue."""

    tokens: int
    replays: int
    verbs: frozenset[str]
    slots: int = 9


Moved = Iterator[tuple[Step, World]]


def start(jobs: int) -> World:
    """Before anything was added."""
    return World((Job(),) * jobs)


def moves(world: World, bounds: Bounds) -> Moved:
    """Every move that anybody can make now, with its answer and what the world is then."""
    for verb, move in VERBS.items():
        if verb in bounds.verbs:
            yield from move(world, bounds)


# -- steps that moves share -----------------------------------------------------------------------------------------------


def _put(world: World, number: int, job: Job, hand: int | None = None) -> World:
    """The world with this job in it, in line if it waits there; `hand`: a worker that lets go."""
    wait = tuple(one for one in world.wait if one != number or job.place == "wait")
    hands = tuple(None if place == hand else held for place, held in enumerate(world.hands))
    jobs = tuple(job if place == number else one for place, one in enumerate(world.jobs))
    return world._replace(jobs=jobs, wait=wait, hands=hands)


def _line_up(world: World, number: int, side: str) -> World:
    others = tuple(one for one in world.wait if one != number)
    return world._replace(wait=(number, *others) if side == "head" else (*others, number))


def _ended(job: Job, state: str, *, made: int = 0) -> Job:
    return job._replace(state=state, place=state, token=0, over=False, made=job.made + made, ends=job.ends + 1)


def _held_back(job: Job) -> Job:
    """Its holder's own move took it on, and its token is remembered."""
    return job._replace(moved=(job.token, *job.moved)[:3], token=0, over=False)


def _waits(job: Job) -> Job:
    return job._replace(state="waiting", place="wait", token=0, over=False)


def _stalled(world: World, number: int, job: Job, hand: int | None = None) -> tuple[str, World]:
    """A lease is over, its worker lost; a job that had not begun just goes back."""
    if job.state != "active":
        return "released", _line_up(_put(world, number, _waits(job), hand), number, "head")
    job = job._replace(stalls=job.stalls + 1)
    if job.cancel:
        return "cancelled", _put(world, number, _ended(job, "cancelled"), hand)
    if job.stalls > MAX_STALLED:
        return "failed", _put(world, number, _ended(job, "failed", made=1), hand)
    return "waiting", _line_up(_put(world, number, _waits(job), hand), number, "head")


def _why_not(job: Job, token: int) -> str:
    """The fence: '' where the token holds the job."""
    if job.state == "none":
        return "gone"
    if job.token == token:
        return ""
    return "moved" if token in job.moved else "lost"


# -- workers --------------------------------------------------------------------------------------------------------------


def _take(verb: str, *, begins: bool) -> Callable[[World, Bounds], Moved]:
    def move(world: World, bounds: Bounds) -> Moved:
        held = sum(job.place in ("active", "reserved") for job in world.jobs)
        for who in (hand for hand in HANDS if world.hands[hand] is None and world.tokens < bounds.tokens):
            if not world.wait or world.paused or held >= bounds.slots:
                yield Step(verb, who, -1, "nothing"), world
                continue
            number, token = world.wait[0], world.tokens + 1
            job = world.jobs[number]._replace(token=token, place="active" if begins else "reserved")
            if begins:
                job = job._replace(state="active", started=job.started + 1)
            taken = _put(world, number, job)
            hands = tuple((number, token) if hand == who else held for hand, held in enumerate(taken.hands))
            yield Step(verb, who, number, "taken"), taken._replace(tokens=token, hands=hands)

    return move


Act = Callable[[World, int, Job, int, Bounds], tuple[str, World]]


def _by_holder(verb: str, act: Act, *, keeps: bool = False) -> Callable[[World, Bounds], Moved]:
    """A move that names a token: refused where that is not the job's, and the worker lets go either way unless it `keeps`."""

    def move(world: World, bounds: Bounds) -> Moved:
        for who in HANDS:
            held = world.hands[who]
            if held is None:
                continue
            number, token = held
            job = world.jobs[number]
            why = _why_not(job, token)
            if why:
                why = "cancelled" if verb == "begin" and job.state == "cancelled" else why
                yield Step(verb, who, number, why), world if keeps else _put(world, number, job, who)
            elif keeps or job.state == "active" or verb in ("release", "stall"):
                answer, after = act(world, number, job, who, bounds)
                yield Step(verb, who, number, answer), after

    return move


def _complete(world: World, number: int, job: Job, who: int, _: Bounds) -> tuple[str, World]:
    return "ok", _put(world, number, _ended(_held_back(job), "completed", made=1), who)


def _fail(world: World, number: int, job: Job, who: int, _: Bounds) -> tuple[str, World]:
    state = "cancelled" if job.cancel else "failed"
    return "cancelled" if job.cancel else "ok", _put(world, number, _ended(_held_back(job), state, made=1), who)


def _retry(world: World, number: int, job: Job, who: int, _: Bounds) -> tuple[str, World]:
    job = _held_back(job)._replace(made=job.made + 1)
    if job.cancel:
        return "cancelled", _put(world, number, _ended(job, "cancelled"), who)
    return "delayed", _put(world, number, job._replace(state="delayed", place="delayed"), who)


def _release(world: World, number: int, job: Job, who: int, _: Bounds) -> tuple[str, World]:
    begun, job = job.state == "active", _held_back(job)
    if begun and job.cancel:
        return "cancelled", _put(world, number, _ended(job, "cancelled"), who)
    return "waiting", _line_up(_put(world, number, _waits(job), who), number, "head")


def _stall(world: World, number: int, job: Job, who: int, _: Bounds) -> tuple[str, World]:
    return _stalled(world, number, _held_back(job), who)


def _renew(world: World, number: int, job: Job, who: int, _: Bounds) -> tuple[str, World]:
    return "cancel" if job.cancel else "ok", _put(world, number, job._replace(over=False))


def _begin(world: World, number: int, job: Job, who: int, bounds: Bounds) -> tuple[str, World]:
    if job.state == "active":
        return "ok", world
    if world.paused:
        return "closed", _line_up(_put(world, number, _waits(_held_back(job)), who), number, "head")
    return "ok", _put(world, number, job._replace(state="active", place="active", started=job.started + 1))


def _crash(world: World, _: Bounds) -> Moved:
    """A worker dies, and with it what it believed."""
    for who in HANDS:
        held = world.hands[who]
        if held is not None:
            yield Step("crash", who, held[0], ""), _put(world, held[0], world.jobs[held[0]], who)


# -- the reaper, and time -------------------------------------------------------------------------------------------------


def _run_out(world: World, _: Bounds) -> Moved:
    for number, job in enumerate(world.jobs):
        if job.token and not job.over:
            yield Step("run_out", -1, number, ""), _put(world, number, job._replace(over=True))


def _reap(world: World, _: Bounds) -> Moved:
    for number, job in enumerate(world.jobs):
        if job.token and job.over:
            answer, after = _stalled(world, number, job)
            yield Step("reap", -1, number, answer), after


# -- producers and the operator -------------------------------------------------------------------------------------------


def _add(world: World, _: Bounds) -> Moved:
    for number, job in enumerate(world.jobs):
        if job.state == "none":
            yield Step("add", -1, number, "added"), _line_up(_put(world, number, _waits(Job())), number, "tail")
        else:
            yield Step("add", -1, number, "duplicated"), world


def _cancel(world: World, _: Bounds) -> Moved:
    for number, job in enumerate(world.jobs):
        if job.state == "active":
            yield Step("cancel", -1, number, "flagged"), _put(world, number, job._replace(cancel=True))
        elif job.state in ("waiting", "delayed"):
            gone = _held_back(job) if job.token else job
            yield Step("cancel", -1, number, "cancelled"), _put(world, number, _ended(gone, "cancelled"))
        else:
            yield Step("cancel", -1, number, "gone" if job.state == "none" else job.state), world


def _promote(world: World, _: Bounds) -> Moved:
    for number, job in enumerate(world.jobs):
        if job.state == "delayed":
            yield Step("promote", -1, number, "ok"), _line_up(_put(world, number, _waits(job)), number, "tail")
        else:
            yield Step("promote", -1, number, "gone" if job.state == "none" else job.state), world


def _replay(world: World, bounds: Bounds) -> Moved:
    for number, job in enumerate(world.jobs):
        if job.state in ("failed", "cancelled") and job.replays < bounds.replays:
            again = _waits(job)._replace(cancel=False, ends=0, replays=job.replays + 1)
            yield Step("replay", -1, number, "ok"), _line_up(_put(world, number, again), number, "tail")
        elif job.state not in ("failed", "cancelled"):
            yield Step("replay", -1, number, "gone" if job.state == "none" else job.state), world


def _remove(world: World, _: Bounds) -> Moved:
    for number, job in enumerate(world.jobs):
        if job.place in ("active", "reserved"):
            yield Step("remove", -1, number, "active"), world
        elif job.state != "none":
            yield Step("remove", -1, number, "ok"), _put(world, number, Job())


def _pause(world: World, _: Bounds) -> Moved:
    yield Step("pause", -1, -1, "resumed" if world.paused else "paused"), world._replace(paused=not world.paused)


VERBS: dict[str, Callable[[World, Bounds], Moved]] = {
    "add": _add,
    "claim": _take("claim", begins=True),
    "reserve": _take("reserve", begins=False),
    "begin": _by_holder("begin", _begin, keeps=True),
    "renew": _by_holder("renew", _renew, keeps=True),
    "complete": _by_holder("complete", _complete),
    "fail": _by_holder("fail", _fail),
    "retry": _by_holder("retry", _retry),
    "release": _by_holder("release", _release),
    "stall": _by_holder("stall", _stall),
    "crash": _crash,
    "run_out": _run_out,
    "reap": _reap,
    "cancel": _cancel,
    "promote": _promote,
    "replay": _replay,
    "remove": _remove,
    "pause": _pause,
}
