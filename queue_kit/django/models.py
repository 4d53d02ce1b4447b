"""Rows that commit with the project's own; without them an effect and the mark that it was done could part in a crash."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.db import models


class Claim(models.Model):
    """That a job has done something once. Made by :func:`queue_kit.django.once`, in the transaction of the effect itself."""

    job_name: models.CharField[str, str] = models.CharField(max_length=255)
    key: models.CharField[str, str] = models.CharField(max_length=300)
    job_id: models.CharField[str, str] = models.CharField(max_length=255, help_text="The job whose run did it.")
    claimed_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        verbose_name = "claim of once()"
        verbose_name_plural = "claims of once()"
        constraints: ClassVar = [models.UniqueConstraint(fields=["job_name", "key"], name="queue_kit_one_claim_a_key")]

    def __str__(self) -> str:
        return f"{self.job_name}: {self.key}"


class DeadLetter(models.Model):
    """A job that failed for good. It lives in Redis: here are only its name for the admin and who may do what with it."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions: ClassVar = [
            ("replay_deadletter", "Can replay dead letter"),
            ("discard_deadletter", "Can discard dead letter"),
            ("export_deadletter", "Can export dead letter"),
        ]
        verbose_name = "dead letter"


class Queue(models.Model):
    """A queue and its jobs, likewise in Redis."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions: ClassVar = [("control_queue", "Can control queue and its jobs")]
        verbose_name = "queue"
