"""An operator who interferes while everything dies: cancels jobs, and replays dead letters.

Without it no replay would ever meet a crash, nor a cancel a job that is just being lost.
"""

from __future__ import annotations

import random
from contextlib import suppress

from redis.exceptions import RedisError

from queue_kit import QueueKitError, control, dead_letters
from tests.apps import chaos_app
from tests.chaos.follower import Follower
from tests.support.replicated import AnyRedis

AT_ONCE = 3


class Operator:
    """Acts on a few jobs at a time, straight on Redis; where that is away, another time."""

    def __init__(self, server: AnyRedis, follower: Follower, dice: random.Random) -> None:
        self._app = chaos_app.make(server.url())
        self._follower, self._dice = follower, dice

    def cancel(self) -> None:
        """Cancel jobs that have not ended, as far as is known."""
        going = self._follower.going()
        for job_id in self._dice.sample(going, min(AT_ONCE, len(going))):
            with suppress(QueueKitError, RedisError):
                control.cancel(job_id, app=self._app)

    def replay(self) -> None:
        """Replay dead letters; of steps of a canvas none: Celery has given that up when the step had failed."""
        letters = dead_letters(self._app)
        with suppress(QueueKitError, RedisError):
            ids = [letter_id for letter_id in letters.ids() if letter_id.rpartition("-")[0].count("-") == 5]
            list(letters.replay_each(self._dice.sample(ids, min(AT_ONCE, len(ids))), "chaos"))
