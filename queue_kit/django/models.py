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


class OutboxJob(models.Model):
    """A job on its way from a transaction to the queue. Made by :func:`queue_kit.django.outbox.add`, sent by a relay."""

    class State(models.TextChoices):
        """Where it is. ``failed``: it can never be sent as it is; ``error`` says why."""

        PENDING = "pending"
        SENT = "sent"
        FAILED = "failed"

    job_id: models.CharField[str, str] = models.CharField(max_length=500, db_index=True)
    name: models.CharField[str, str] = models.CharField("job", max_length=255)
    queue: models.CharField[str, str] = models.CharField(max_length=255)
    correlation_id: models.CharField[str, str] = models.CharField(max_length=200, blank=True)
    posting: models.TextField[str, str] = models.TextField(help_text="The message and how it is sent.")
    state: models.CharField[str, str] = models.CharField(max_length=10, choices=State, default=State.PENDING)
    added_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(auto_now_add=True)
    sent_at: models.DateTimeField[datetime | None, datetime | None] = models.DateTimeField(null=True, blank=True)
    sent_as: models.CharField[str, str] = models.CharField(
        max_length=500, blank=True, help_text="The job that was there already under its deduplication key."
    )
    error: models.TextField[str, str] = models.TextField(blank=True)

    class Meta:
        verbose_name = "job in the outbox"
        verbose_name_plural = "outbox"
        default_permissions = ("view",)
        indexes: ClassVar = [
            # What a relay asks for ten times a second: small however many rows were sent.
            models.Index(fields=["id"], condition=models.Q(state="pending"), name="queue_kit_outbox_pending"),
            models.Index(fields=["state", "sent_at"], name="queue_kit_outbox_sent"),
        ]

    def __str__(self) -> str:
        return f"{self.name}[{self.job_id}]"


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
