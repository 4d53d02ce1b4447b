"""Dead letters and queues in Django's admin; without it whoever is on call would need a shell on the server."""

from queue_kit.django.admin.dead_letters import DeadLetterAdmin
from queue_kit.django.admin.queues import QueueAdmin

__all__ = ["DeadLetterAdmin", "QueueAdmin"]
