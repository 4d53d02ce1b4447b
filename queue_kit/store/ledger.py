"""Runs moves on Redis; without it every caller would need its own answer to a server that forgot the scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from redis import Redis
from redis.exceptions import NoScriptError

from queue_kit.store.keys import Keys
from queue_kit.store.script import Call, all_scripts, text

Answer = TypeVar("Answer")


class Ledger:
    """Sends calls of scripts on one client."""

    def __init__(self, client: Redis) -> None:
        self.client = client

    def run(self, call: Call[Answer]) -> Answer:
        """Make one move and return its answer.

        :raises redis.exceptions.RedisError: whatever Redis or the connection says.
        """
        try:
            reply = self.client.execute_command(*call.command)
        except NoScriptError:
            reply = self.client.execute_command(*call.full_command)
        return call.read(reply)

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Make several moves in one round trip; the answer of a move that failed is its error.

        :raises redis.exceptions.ConnectionError: when the connection broke; which of the moves were made is then unknown.
        """
        replies = self._pipeline([call.command for call in calls])
        again = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if again:
            for index, reply in zip(again, self._pipeline([calls[i].full_command for i in again]), strict=True):
                replies[index] = reply
        return [
            reply if isinstance(reply, Exception) else call.read(reply) for call, reply in zip(calls, replies, strict=True)
        ]

    def teach(self) -> None:
        """Let the server know every script. One that it did not know would be made after those that it was sent before."""
        self._pipeline([("SCRIPT LOAD", known.source) for known in all_scripts()])

    def queues(self, keys: Keys) -> list[str]:
        """Names of all queues that have ever held a job."""
        return sorted(text(name) for name in self.client.execute_command("SMEMBERS", keys.queues))

    def length(self, keys: Keys, queue: str) -> int:
        """How many jobs wait in a queue."""
        return int(self.client.execute_command("ZCARD", keys.queue(queue, "wait")))

    def lists(self, keys: Iterable[str]) -> int:
        """How many messages of stock Celery's lie in these lists; a key that is no list, or forbidden, has none.

        Not in a transaction, which a full server refuses even for reading.
        """
        replies = self._pipeline([("LLEN", key) for key in keys])
        return sum(reply for reply in replies if isinstance(reply, int))

    def members(self, keys: Keys, queue: str, part: str) -> list[str]:
        """Ids of the jobs in one part of a queue, such as ``wait`` (the next first) or ``delayed`` (the soonest first)."""
        return [text(job_id) for job_id in self.client.execute_command("ZRANGE", keys.queue(queue, part), 0, -1)]

    def _pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        pipe = self.client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        replies: list[Any] = pipe.execute(raise_on_error=False)
        return replies
