"""Takes over what stock Celery has left in the lists of this worker's queues, while a project moves; without it a deploy of
several steps would leave behind what older producers still send.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from redis import Redis

from queue_kit.states import RESERVED_QUEUE
from queue_kit.worker.operating.migration import DONE, Migration
from queue_kit.worker.roles.role import Role

logger = logging.getLogger(__name__)

_EVERY_S: Final = 1.0  # what a message from an older producer waits longer than others, at most


class Adopter(Role):
    """Every worker may have one: the script lets each message go to one of them."""

    name = "adopter"

    def __init__(self, open_client: Callable[[], Redis], app: Any) -> None:
        super().__init__(open_client, _EVERY_S)
        self._app = app

    def tick(self) -> None:
        """Take what is there; of what stock workers hold only what is past their own visibility timeout."""
        held = self._app.queue_kit.held
        if held.draining or held.refused:
            return
        migration = Migration(self._app, self.ledger.client)
        queues = [queue for queue in self._app.amqp.queues.consume_from if queue != RESERVED_QUEUE]
        taken = Counter(one.queue for one in migration.take(queues) if one.outcome in DONE)
        late = migration.take_held(queues, migration.visibility_timeout_s)
        taken.update(one.queue for one in late if one.outcome in DONE)
        for queue, number in taken.items():
            logger.info("queue %s: %d messages taken over from stock Celery", queue, number)
