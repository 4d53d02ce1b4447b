"""Makes the steps of the model with the real scripts on a real Redis, and compares.

Without it the model could be right about a queue that nobody has built.
"""

from __future__ import annotations

from typing import Any

import redis

from queue_kit.store import When
from queue_kit.store.dead_letter_moves import Fresh, replay
from tests.model.world import Step, World
from tests.store.desk import HOUR_MS, Desk
from tests.support.events import PREFIX


class Mirror:
    """One queue in Redis; `make` a step and its answer is checked, `compare` it with a world."""

    def __init__(self, client: redis.Redis, slots: int, jobs: int) -> None:
        self.desk = Desk(client, "mirror", max_stalled=1)
        self.jobs = [f"job-{number}" for number in range(jobs)]
        self._hands: list[tuple[str, str] | None] = [None, None]
        self._tokens: dict[str, int] = {}
        if slots < len(self.jobs):
            self.desk.rules(concurrency=slots)

    def make(self, step: Step) -> None:
        """Make one step; its answer must be the model's."""
        job_id = self.jobs[step.job] if step.job >= 0 else ""
        answer = getattr(self, f"_{step.verb}")(step.who, job_id)
        assert answer == step.answer, f"{step}: Redis says {answer!r}"

    def compare(self, world: World) -> None:
        """Everything of the model that Redis has, too."""
        for job_id, job in zip(self.jobs, world.jobs, strict=True):
            record = self.desk.record(job_id)
            assert record.get("state", "none") == job.state
            assert self.desk.places(job_id) == ([job.place] if job.place else [])
            assert self.desk.counters(job_id) == (job.made, job.started, job.stalls)
            assert self._tokens.get(record.get("token", ""), 0) == job.token
            assert [self._tokens[token] for token in record.get("moved", "").split()] == list(job.moved)
            assert ("cancel" in record) == job.cancel
        assert self.desk.listed("wait") == [self.jobs[number] for number in world.wait]

    # -- one for each verb --------------------------------------------------------------------------------------------

    def _add(self, who: int, job_id: str) -> str:
        return self.desk.add(job_id).outcome

    def _claim(self, who: int, job_id: str, begin: int = 1) -> str:
        jobs = self.desk.claim(1, begin=begin, worker=f"w{who}").jobs
        for job in jobs:
            assert job.id == job_id
            self._hands[who] = (job.id, job.token)
            self._tokens[job.token] = len(self._tokens) + 1
        return "taken" if jobs else "nothing"

    def _reserve(self, who: int, job_id: str) -> str:
        return self._claim(who, job_id, begin=0)

    def _begin(self, who: int, job_id: str) -> str:
        return self._by_token(who, lambda held: self.desk.moves.begin(*held, once=False), keeps=True)[0]

    def _renew(self, who: int, job_id: str) -> str:
        (answer,) = self._by_token(who, lambda held: self.desk.moves.renew([held]), keeps=True)
        return str(answer).partition(":")[0]

    def _complete(self, who: int, job_id: str) -> str:
        return self._by_token(who, lambda held: self.desk.moves.complete(*held))

    def _fail(self, who: int, job_id: str) -> str:
        return self._by_token(who, lambda held: self.desk.moves.fail(*held, "exhausted", "boom")).outcome

    def _retry(self, who: int, job_id: str) -> str:
        return self._by_token(who, lambda held: self.desk.moves.retry(*held, When(delay_ms=HOUR_MS)))

    def _release(self, who: int, job_id: str) -> str:
        return self._by_token(who, lambda held: self.desk.moves.release(*held, side="head"))

    def _stall(self, who: int, job_id: str) -> str:
        return self._by_token(who, lambda held: self.desk.moves.stall(*held)).outcome

    def _by_token(self, who: int, call: Any, *, keeps: bool = False) -> Any:
        held = self._hands[who]
        assert held is not None
        answer = self.desk.run(call(held))
        if not keeps or answer == ("closed", 0):
            self._hands[who] = None
        return answer

    def _crash(self, who: int, job_id: str) -> str:
        self._hands[who] = None
        return ""

    def _run_out(self, who: int, job_id: str) -> str:
        for part in ("active", "reserved"):
            self.desk.lease_runs_out(job_id, part=part)
        return ""

    def _reap(self, who: int, job_id: str) -> str:
        (found,) = self.desk.reap()
        assert found.id == job_id
        return found.outcome

    def _cancel(self, who: int, job_id: str) -> str:
        return self.desk.run(self.desk.moves.cancel(job_id, "cancelled"))

    def _promote(self, who: int, job_id: str) -> str:
        return self.desk.run(self.desk.moves.promote(job_id))

    def _replay(self, who: int, job_id: str) -> str:
        return self.desk.run(replay(PREFIX, job_id, Fresh("body", 0, 0), "operator")).outcome

    def _remove(self, who: int, job_id: str) -> str:
        return self.desk.run(self.desk.moves.remove(job_id))

    def _pause(self, who: int, job_id: str) -> str:
        paused = bool(self.desk.client.hget(self.desk.key("meta"), "paused") == "1")
        self.desk.run(self.desk.moves.pause(self.desk.queue, not paused))
        return "resumed" if paused else "paused"
