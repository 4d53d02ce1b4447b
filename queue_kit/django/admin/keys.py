"""Deduplication keys in the admin: which job holds one, and to free it.

Without it a key that was sent by mistake would refuse its job for as long as it lives, a day by default.
"""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE
from django.http import HttpRequest, HttpResponse, QueryDict

from queue_kit.django.admin.desk import desk_with
from queue_kit.django.admin.pages import RedisAdmin
from queue_kit.worker.operating import control


class KeyForm(forms.Form):
    """What a key is known by, beside its queue."""

    name = forms.CharField(max_length=300, label="Job name")
    key = forms.CharField(max_length=1000, strip=False, label="Key")


class KeyPages(RedisAdmin):
    """The page that looks keys of a queue up."""

    def key_view(self, request: HttpRequest, queue: str) -> HttpResponse:
        desk = desk_with(queue)
        given: QueryDict = request.POST if request.method == "POST" else request.GET
        form = KeyForm(given or None)
        asked = form.is_valid()
        if request.method == "POST":
            self.require(request, "control")
            if asked:
                return self._free(request, queue, **form.cleaned_data)
        held = control.find_key(**form.cleaned_data, queue=queue, app=desk.app) if asked else None
        return self.show(
            request, "keys.html", f"Deduplication keys of {queue}", status=400 if form.errors else 200, form=form, asked=asked,
            held=held, may_control=self.may(request, "control"),
        )  # fmt: skip

    def _free(self, request: HttpRequest, queue: str, name: str, key: str) -> HttpResponse:
        job_id = control.release_key(name, key, queue=queue, app=desk_with(queue).app)
        if job_id is None:
            self.message_user(request, "No job held this key.", messages.WARNING)
        else:
            self.note(request, [queue], CHANGE, f"Freed the key {key} of {name}, held by {job_id}.")
            self.message_user(request, f"The key is free; job {job_id} held it.", messages.SUCCESS)
        return self.back(self.address("change", queue))
