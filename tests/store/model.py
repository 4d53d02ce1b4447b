"""The store as a few dictionaries: what every move should do and answer, in plain Python, without Redis, time or Lua.

Without it the random test could only say that nothing crashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.store.keys_model import Key, KeysModel, Send

FINAL = ("completed", "failed", "cancelled")
NEVER = 10**18


@dataclass
class Job:
    """One job. ``place``: the list that names it, or none. ``turn``: its place in line. ``due``: when promoted, if it is."""

    id: str
    queue: str
    state: str = "waiting"
    place: str = ""
    priority: int = 0
    made: int = 0
    started: int = 0
    stalls: int = 0
    token: str = ""
    moved: list[str] = field(default_factory=list)
    cancel: str = ""
    nesting: int = 0
    once: bool = False
    turn: int = 0
    lease_end: int = NEVER
    due: int = NEVER
    expired: bool = False
    canvas_failed: int = 0
    replays: int = 0
    rebuilt: bool = False
    trimmed: bool = False
    dedup: Key | None = None

    @property
    def counters(self) -> tuple[int, int, int]:
        return self.made, self.started, self.stalls

    def forget_token(self) -> None:
        """Its holder's own move took it on."""
        if self.token:
            self.moved = [self.token, *self.moved][:3]
        self.token = ""


@dataclass
class Letter:
    """One dead letter. ``doubtful``: it took the place of one that had been replayed, of a job that had the same id before;
    within one millisecond nobody can tell whose mark it bears."""

    job_id: str
    queue: str
    counters: tuple[int, int, int]
    replayed: bool = False
    doubtful: bool = False


@dataclass
class Queue:
    """Switches of one queue, and how many jobs have gone to either end of its line."""

    tail: int = 0
    head: int = 0
    paused: bool = False
    concurrency: int | None = None


Taken = tuple[str, bool, int, int, int]


class Model(KeysModel):
    """Every move, with its answer. ``now`` stands still: what runs out or comes due is said by the test."""

    def __init__(self, queues: Sequence[str], max_stalled: int, grace_from: int) -> None:
        super().__init__()
        self.jobs: dict[str, Job] = {}
        self.queues = {name: Queue() for name in queues}
        self.max_stalled = max_stalled
        self.grace_from = grace_from
        self.notes: set[str] = set()
        self.letters: dict[str, Letter] = {}

    # -- lists --------------------------------------------------------------------------------------------------------

    def listed(self, place: str, queue: str) -> list[Job]:
        """Jobs in one list, in the order in which Redis has them."""
        jobs = [job for job in self.jobs.values() if job.place == place and job.queue == queue]
        return sorted(jobs, key=lambda job: (job.priority, job.turn, job.id))

    def room(self, queue: str) -> int:
        """How many jobs may be taken in a queue now."""
        rules = self.queues[queue]
        if rules.paused:
            return 0
        held = len(self.listed("active", queue)) + len(self.listed("reserved", queue))
        return NEVER if rules.concurrency is None else max(0, rules.concurrency - held)

    def suspect(self, job: Job) -> bool:
        return job.stalls > 0 and job.stalls >= self.max_stalled

    # -- steps that moves share ---------------------------------------------------------------------------------------

    def line_up(self, job: Job, side: str) -> None:
        queue = self.queues[job.queue]
        if side == "tail":
            queue.tail += 1
            job.turn = queue.tail
        else:
            queue.head += 1
            job.turn = -queue.head
        job.state, job.place = "waiting", "wait"

    def put(self, job: Job, side: str, *, delayed: bool) -> str:
        if delayed:
            job.state, job.place, job.due = "delayed", "delayed", NEVER
        else:
            self.line_up(job, side)
        return job.state

    def held(self, job_id: str, token: str) -> tuple[Job | None, str]:
        job = self.jobs.get(job_id)
        if job is None:
            return None, "gone"
        if token and job.token == token:
            return job, ""
        return None, "moved" if token in job.moved else "lost"

    def let_go(self, job: Job) -> bool:
        """Answers whether it had begun."""
        job.forget_token()
        return job.state == "active"

    def end(self, job: Job, state: str) -> str:
        job.state = job.place = state
        self.release_key(job)
        return state

    def new_job(self, sent: Send) -> str:
        job = self.jobs[sent.id] = Job(sent.id, sent.queue, priority=sent.priority, dedup=sent.key)
        return self.put(job, "tail", delayed=sent.delayed)

    def cancelled(self, job: Job, cause: str) -> str:
        job.made += cause == "expired"
        return self.end(job, "cancelled")

    def failed(self, job: Job) -> str:
        job.made += 1
        before = self.letters.get(self.letter_of(job))
        doubtful = before is not None and before.replayed
        self.letters[self.letter_of(job)] = Letter(job.id, job.queue, job.counters, doubtful=doubtful)
        return self.end(job, "failed")

    def letter_of(self, job: Job) -> str:
        return f"{job.queue}-{job.id}-{job.made}"

    # -- moves --------------------------------------------------------------------------------------------------------

    def add(
        self, job_id: str, queue: str, priority: int, nesting: int, *, delayed: bool, expired: bool
    ) -> tuple[str, str]:
        job = self.jobs.get(job_id)
        if job and (job.state in FINAL or nesting <= job.nesting):
            return "duplicated", job.state
        outcome = "continued" if job else "added"
        if job:
            job.forget_token()
            job.canvas_failed = 0
            if job.cancel:
                self.notes.add(job_id)
                return "duplicated", self.cancelled(job, job.cancel)
        else:
            job = self.jobs[job_id] = Job(job_id, queue)
        job.queue, job.priority, job.nesting, job.expired = queue, priority, nesting, expired
        return outcome, self.put(job, "tail", delayed=delayed)

    def claim(self, base: str, queues: Sequence[str], limit: int, begin: int, suspects: int, avoid: Sequence[str],
              *, once: bool) -> list[Taken]:  # fmt: skip
        taken: list[Taken] = []
        for queue in queues:
            if len(taken) < limit:
                self.promote_due(queue)
            room = min(limit - len(taken), self.room(queue))
            if self.queues[queue].concurrency is not None:
                room = min(room, begin)
            seen: set[str] = set()
            while room > 0 and (job := next((j for j in self.listed("wait", queue) if j.id not in seen), None)):
                seen.add(job.id)
                if job.expired:
                    self.notes.add(job.id)
                    self.cancelled(job, "expired")
                elif job.id not in avoid and (suspects > 0 or not self.suspect(job)):
                    suspects -= self.suspect(job)
                    taken.append(self.take(job, f"{base}.{len(taken)}", starts=begin > 0, once=once))
                    begin -= 1
                    room -= 1
        return taken

    def promote_due(self, queue: str) -> None:
        due = [job for job in self.listed("delayed", queue) if job.due < NEVER]
        for job in sorted(due, key=lambda job: job.due):
            self.line_up(job, "tail")

    def take(self, job: Job, token: str, *, starts: bool, once: bool) -> Taken:
        job.token, job.lease_end, job.place = token, NEVER, "reserved"
        if starts:
            self.start(job, once=once)
        return job.id, starts, job.started, job.made, job.stalls

    def start(self, job: Job, *, once: bool) -> None:
        job.state, job.place, job.once = "active", "active", once
        job.started += 1

    def begin(self, job_id: str, token: str, *, once: bool) -> tuple[str, int]:
        job, why = self.held(job_id, token)
        if job is None:
            cancelled = why != "gone" and self.jobs[job_id].state == "cancelled"
            return ("cancelled" if cancelled else why), 0
        if job.state != "active":
            rules = self.queues[job.queue]
            if rules.paused or (rules.concurrency or NEVER) <= len(self.listed("active", job.queue)):
                self.let_go(job)
                self.line_up(job, "head")
                return "closed", 0
            self.start(job, once=once)
        return "ok", job.started

    def renew(self, job_id: str, token: str) -> str:
        job, why = self.held(job_id, token)
        if job is None:
            return why
        if job.lease_end <= self.grace_from:
            return "lost"
        job.lease_end = NEVER
        return f"cancel:{job.cancel}" if job.cancel else "ok"

    def complete(self, job_id: str, token: str) -> str:
        job, why = self.held(job_id, token)
        if job is None:
            return why
        self.let_go(job)
        job.made += 1
        self.end(job, "completed")
        return "ok"

    def retry(self, job_id: str, token: str, *, delayed: bool, counted: bool, queue: str, nesting: int) -> str:
        job, why = self.held(job_id, token)
        if job is None:
            return why
        self.let_go(job)
        job.made += counted
        if job.cancel:
            self.notes.add(job_id)
            return self.cancelled(job, job.cancel)
        if queue:
            job.queue, job.nesting = queue, nesting
        return self.put(job, "tail", delayed=delayed)

    def release(self, job_id: str, token: str, side: str, *, delayed: bool) -> str:
        job, why = self.held(job_id, token)
        if job is None:
            return why
        if not self.let_go(job):
            return self.put(job, "head", delayed=False)
        if job.cancel:
            self.notes.add(job_id)
            return self.cancelled(job, job.cancel)
        return self.put(job, side, delayed=delayed)

    def stall(self, job_id: str, token: str) -> str:
        job, why = self.held(job_id, token)
        if job is None:
            return why
        self.let_go(job)
        return self.lose(job)

    def lose(self, job: Job) -> str:
        """The worker is lost, the lease over."""
        if job.state != "active":
            self.line_up(job, "head")
            return "released"
        job.stalls += 1
        if not job.cancel and not job.once and job.stalls <= self.max_stalled:
            return self.put(job, "head", delayed=False)
        self.notes.add(job.id)
        return self.cancelled(job, job.cancel) if job.cancel else self.failed(job)

    def reap(self) -> set[tuple[str, str]]:
        found = set()
        for queue in self.queues:
            for place in ("active", "reserved"):
                late = [job for job in self.listed(place, queue) if job.lease_end < NEVER]
                for job in sorted(late, key=lambda job: (job.lease_end, job.id), reverse=True):
                    job.token = ""  # taken away, not remembered
                    found.add((job.id, self.lose(job)))
        return found

    def abandon(self, worker: str, leases: Sequence[str]) -> set[tuple[str, str]]:
        """``leases``: ids, those that end last first."""
        found = [self.jobs[job_id] for job_id in leases if self.jobs[job_id].token.startswith(f"{worker}.")]
        for job in found:
            job.token = ""  # as in a sweep
        return {(job.id, self.lose(job)) for job in found}

    def fail(self, job_id: str, token: str, *, tell: bool, nesting: int = 0) -> str:
        job, why = self.held(job_id, token)
        if job is None:
            seen = self.jobs.get(job_id)
            if token == "replaced" and seen and seen.state not in FINAL and nesting == seen.nesting + 1:
                seen.canvas_failed = nesting
                return "later"
            return why
        if token == "replaced" and nesting not in (0, job.nesting + 1):
            return "moved"
        self.let_go(job)
        if tell:
            self.notes.add(job_id)
        if job.cancel:
            job.made += 1
            return self.cancelled(job, job.cancel)
        self.failed(job)
        return "ok"

    def replace(self, job_id: str, token: str) -> str:
        job, why = self.held(job_id, token)
        if job is None:
            return why
        self.let_go(job)
        if job.cancel or job.canvas_failed == job.nesting + 1:
            self.notes.add(job_id)
            return self.cancelled(job, job.cancel) if job.cancel else self.failed(job)
        job.state, job.place, job.token = "waiting", "", "replaced"
        return "ok"

    def cancel(self, job_id: str, cause: str, token: str) -> str:
        if token:
            job, why = self.held(job_id, token)
            if job is None:
                return why
            self.let_go(job)
            return self.cancelled(job, cause)
        job = self.jobs.get(job_id)
        if job is None or job.state in FINAL:
            return job.state if job else "gone"
        if job.state == "active":
            job.cancel = cause
            return "flagged"
        self.notes.add(job_id)
        job.forget_token()
        return self.cancelled(job, cause)

    def promote(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None or job.state != "delayed":
            return job.state if job else "gone"
        self.line_up(job, "tail")
        return "ok"

    def postpone(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None or job.state != "delayed":
            return job.state if job else "gone"
        job.due = NEVER
        return "ok"

    def expire(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None or job.state not in ("waiting", "delayed"):
            return job.state if job else "gone"
        if not job.expired or job.token:
            return "not due"
        self.notes.add(job_id)
        self.cancelled(job, "expired")
        return "expired"

    def replay(self, job_id: str, priority: int) -> str:
        job = self.jobs.get(job_id)
        if job is None or job.state not in ("failed", "cancelled"):
            return job.state if job else "gone"
        if job.trimmed:
            return "gone"
        self.run_again(job, priority)
        return "ok"

    def replay_letter(self, letter_id: str, priority: int) -> str:
        letter = self.letters[letter_id]
        if letter.replayed:
            return "replayed"
        job = self.jobs.get(letter.job_id)
        if job and job.state not in ("failed", "cancelled"):
            return job.state
        if job is None or job.trimmed:
            made, started, stalls = letter.counters
            queue = job.queue if job else letter.queue
            job = self.jobs[letter.job_id] = Job(letter.job_id, queue, made=made, started=started, stalls=stalls, rebuilt=True)
        letter.replayed = True
        self.run_again(job, priority)
        return "ok"

    def run_again(self, job: Job, priority: int) -> None:
        own = self.letters.get(self.letter_of(job))
        if own is not None:
            own.replayed = True
        self.notes.discard(job.id)
        job.cancel, job.canvas_failed, job.expired, job.priority, job.nesting = "", 0, False, priority, 0
        job.replays += 1
        self.line_up(job, "tail")

    def remove(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return "gone"
        if job.place in ("active", "reserved"):
            return "active"
        self.notes.discard(job_id)
        self.forget_holder(job)
        del self.jobs[job_id]
        return "ok"

    def trim(self, queue: str, state: str) -> int:
        """All of a final state but those whose callers have still to be told."""
        going = [job for job in self.listed(state, queue) if job.id not in self.notes]
        for job in going:
            self.forget_holder(job, trimmed_as=state)
            self.jobs[job.id] = Job(job.id, queue, state, trimmed=True, dedup=job.dedup)
        return len(going)

    def recall(self, base: str, leases: Sequence[str]) -> int:
        """``leases``: ids in the order in which their leases end."""
        taken = [self.jobs[job_id] for job_id in leases if self.jobs[job_id].token.rpartition(".")[0] == base]
        for job in taken:
            job.forget_token()
            if job.cancel:
                self.notes.add(job.id)
                self.cancelled(job, job.cancel)
            else:
                self.line_up(job, "head")
        return len(taken)
