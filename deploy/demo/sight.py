"""What the cases can see and do from outside: the site over HTTP, the scoring service's control, the queue's own records."""

from typing import Any

from deploy.demo.http import Site
from deploy.demo.stack import Stack
from deploy.demo.waiting import wait_until
from queue_kit.states import State
from queue_kit.store.census import JobView


class Sight:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def scoring(self, **wanted: Any) -> None:
        """Tell the scoring service what the next calls shall meet: hold=True or False, fail_next=2."""
        answer = self.stack.scoring.post("/control", wanted)
        assert answer.status == 200, answer

    def await_held(self, calls: int) -> None:
        wait_until(lambda: self.stack.scoring.get("/control").body["held"] == calls, f"{calls} calls are held")

    def attempts_made_seen(self, job: str) -> list[str]:
        """Return what each run of a grading job told the scoring service of its attempts."""
        calls = self.stack.scoring.get("/control").body["calls"]
        return [call["attempts_made"] for call in calls if call["job"] == job]

    def job_of_attempt(self, attempt: str) -> str:
        return str(self.stack.web.get(f"/examhall/attempts/{attempt}/status").body["jobId"])

    def hold_seat(self, site: Site, seat: str) -> dict[str, str]:
        """Hold a seat of the demo event; returns the answer with the ids of the two jobs."""
        answer = site.post("/ticketing/events/1/holds", {"seat": seat, "holder": "Ada Birch"})
        assert answer.status == 201, answer
        return dict(answer.body)

    def view(self, job: str) -> JobView:
        seen = self.stack.census.job(job)
        assert seen is not None, f"the queue knows no job {job}"
        return seen

    def finished(self, job: str) -> bool:
        return self.view(job).state.is_final

    def final_state(self, job: str) -> str:
        wait_until(lambda: self.finished(job), f"job {job} has ended", within_s=30)
        return str(self.view(job).state)

    def events(self, job: str) -> str:
        """Return a job's events in order, as the seeds write them."""
        return " ".join(event.kind for event in self.stack.census.timeline(job))

    def slots(self, queue: str) -> str:
        counts = self.stack.census.counts(queue)
        return f"active {counts[State.ACTIVE]} · waiting {counts[State.WAITING]}"

    def kill_holder(self, job: str) -> None:
        """SIGKILL the worker that runs a job, with its pool; the record names it by host and pid."""
        named = self.view(job).worker.split(":")
        [holder] = [worker for worker in self.stack.workers if str(worker.pid) in named]
        holder.kill()

    def spare_worker(self) -> None:
        self.stack.start_worker("spare", 4)
