"""Dead letters, queues and the outbox in Django's admin; without it whoever is on call would need a shell on the server."""

from queue_kit.django.admin.dead_letters import DeadLetterAdmin
from queue_kit.django.admin.outbox import OutboxAdmin
from queue_kit.django.admin.queues import QueueAdmin

__all__ = ["DeadLetterAdmin", "OutboxAdmin", "QueueAdmin"]
