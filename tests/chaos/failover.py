"""Fail-overs of a chaos run: the primary is lost, with what it had not told its replicas, and that is written down.

Without it a job that a fail-over may take could not be told from one that nobody may.
"""

from __future__ import annotations

from typing import cast

import redis

from tests.apps.chaos_app import QUEUES
from tests.chaos.evidence import Undone
from tests.chaos.follower import Follower
from tests.support.events import stream_key
from tests.support.redis_server import RedisServer
from tests.support.replicated import Replicated, post_mortem
from tests.support.waiting import let_pass

#: By queue and entry id: all that a server's streams tell.
Told = dict[tuple[str, str], dict[str, str]]


class FailOvers:
    """Loses one primary after the other; `undone` has what only they had."""

    def __init__(self, server: Replicated, follower: Follower) -> None:
        self._server, self._follower = server, follower
        self._carried: Told = {}
        self.undone = Undone()

    def lose(self, lag_s: float = 0.0) -> None:
        """Kill the primary; its replicas are that far behind."""
        if lag_s:
            self._server.cut_replicas()
            let_pass(lag_s, because="the primary takes what its replicas never see")
        self._carried = _told(self._server.lose_primary())
        self._follower.stop()

    def finish(self) -> None:
        """Wait for the next primary, follow that, and open the lost one: what it had, and no replica."""
        lost = self._server.primary
        self._server.await_next()
        self._follower.start()
        opened = post_mortem(lost)
        for place, fields in _told(opened).items():
            if place not in self._carried:
                self._note(fields)
        opened.close()
        self._server.rejoin()

    def _note(self, fields: dict[str, str]) -> None:
        if fields["event"] == "added":
            self.undone.added.add(fields["id"])
        elif fields["event"] == "active":
            self.undone.starts[fields["id"], int(fields["attempts_started"])] += 1


def _told(server: RedisServer) -> Told:
    with server.client() as client:
        return {
            (queue, entry): fields
            for queue in QUEUES for entry, fields in _entries(client, queue)
        }  # fmt: skip


def _entries(client: redis.Redis, queue: str) -> list[tuple[str, dict[str, str]]]:
    return cast(list[tuple[str, dict[str, str]]], client.xrange(stream_key(queue)))
