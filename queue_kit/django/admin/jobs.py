"""One job in the admin, by its id: what became of it, and what may be done with it.

Without it a job could be seen only once it had failed.
"""

from __future__ import annotations

from django.contrib import messages
from django.contrib.admin.models import CHANGE, DELETION
from django.http import HttpRequest, HttpResponse

from queue_kit.django.admin.desk import Desk
from queue_kit.django.admin.pages import RedisAdmin
from queue_kit.django.admin.timeline import draw
from queue_kit.states import State
from queue_kit.store.census import JobView
from queue_kit.worker.operating import control


class JobPages(RedisAdmin):
    """The page of a job, and its buttons."""

    def find_view(self, request: HttpRequest) -> HttpResponse:
        job_id = request.GET.get("id", "").strip()
        if not job_id:
            return self.back(self.address("changelist"))
        Desk().job(job_id)
        return self.back(self.address("job", job_id))

    def job_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        desk = Desk()
        job = desk.job(job_id)
        events, shown = desk.timeline(job_id), desk.shown(job)
        return self.show(
            request, "job.html", "Job", job=job, payload=shown.payload, reason=shown.reason, runs=desk.runs(job_id, job),
            events=events, timeline=draw(events), can=self._can(request, job), log=desk.log(job_id),
            progress=desk.redactor.tree(job.progress), now_ms=desk.census.now_ms(), history=self.history(job_id),
        )  # fmt: skip

    def _can(self, request: HttpRequest, job: JobView) -> list[str]:
        """What the user may do to a job in this state."""
        if not self.may(request, "control") or job.trimmed:
            return []
        verbs = {
            State.WAITING: ["cancel", "remove"], State.DELAYED: ["promote", "cancel", "remove"], State.ACTIVE: ["cancel"],
            State.COMPLETED: ["remove"], State.FAILED: ["retry", "remove"], State.CANCELLED: ["retry", "remove"],
        }  # fmt: skip
        return verbs[job.state]

    # -- acting -------------------------------------------------------------------------------------------------------

    def job_act_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        self.require(request, "control")
        desk, action = Desk(), request.POST.get("action", "")
        desk.job(job_id)
        acts = {"cancel": self._cancel, "promote": self._promote, "retry": self._retry, "remove": self._remove}
        if action not in acts:
            return self.say(request, 400, "That cannot be done", f"action: one of {', '.join(acts)} is needed")
        if action == "remove" and "sure" not in request.POST:
            text = f"Remove job {job_id} for good, with its history?"
            return self.ask(request, "Remove job", text, [("action", action)], self.address("job", job_id))
        what = acts[action](request, desk, job_id)
        self.note(request, [job_id], DELETION if action == "remove" else CHANGE, what)
        self.message_user(request, what, messages.SUCCESS)
        return self.back(self.address("changelist") if action == "remove" else self.address("job", job_id))

    def _cancel(self, request: HttpRequest, desk: Desk, job_id: str) -> str:
        state = control.cancel(job_id, desk.app)
        if state is State.ACTIVE:
            return "Asked to stop: it is cancelled when its run stops for that."
        return "Cancelled." if state is State.CANCELLED else f"Nothing to cancel: the job is {state}."

    def _promote(self, request: HttpRequest, desk: Desk, job_id: str) -> str:
        control.promote(job_id, desk.app)
        return "Promoted: it waits for the next free worker."

    def _retry(self, request: HttpRequest, desk: Desk, job_id: str) -> str:
        desk.letters.replay_job(job_id, request.user.get_username())
        return "Replayed: it waits again, with all its attempts."

    def _remove(self, request: HttpRequest, desk: Desk, job_id: str) -> str:
        control.remove(job_id, desk.app)
        return f"Removed job {job_id}."
