"""Follows the event streams of a run from outside, as it goes on: what is trimmed later has been seen.

Without it a long run could only be judged by what Redis still keeps at its end.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, cast

import redis

from tests.chaos.evidence import FINAL, REPLAYED, Event
from tests.support.events import stream_key
from tests.support.replicated import AnyRedis

AT_ONCE = 5000


class Follower:
    """A thread that reads all streams of a server, over every restart; `traces` has each job's events in order. After a fail-over
    `start` it anew: what the next primary does not have has not been."""

    def __init__(self, server: AnyRedis, queues: Sequence[str]) -> None:
        self._server, self._queues = server, queues
        self._turn = threading.Lock()  # a dict that grows must not be looked through
        self._stop = threading.Event()

    def start(self) -> Follower:
        """Begin to follow, from the beginning."""
        self.traces: dict[str, list[Event]] = defaultdict(list)
        self.seen: Counter[str] = Counter()
        self.added = self.ended = 0
        self._places = {stream_key(queue): "0" for queue in self._queues}
        self._stop.clear()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End, once all has been read that is there now, or its server is not."""
        self._stop.set()
        self._thread.join()

    @property
    def open(self) -> int:
        """How many of the jobs that were added have not ended."""
        return self.added - self.ended

    def going(self) -> list[str]:
        """Return the ids of the jobs that have not ended, as far as is known."""
        with self._turn:
            return [job_id for job_id, trace in self.traces.items() if trace[-1].kind not in FINAL]

    def gaps(self) -> list[str]:
        """Return a line for each stream of which the follower has not seen every entry that was ever added."""
        with self._server.client() as client:
            written = {key: self._written(client, key) for key in self._places}
        return [
            f"followed {self.seen[key]} of {count} events of {key}"
            for key, count in written.items() if count != self.seen[key]
        ]  # fmt: skip

    @staticmethod
    def _written(client: redis.Redis, key: str) -> int:
        """How many entries a stream has ever had (Redis 7; an older one says how many it keeps)."""
        if not client.exists(key):
            return 0
        facts = cast(dict[str, Any], client.xinfo_stream(key))
        return int(facts.get("entries-added", facts["length"]))

    def _follow(self) -> None:
        client = self._server.client(retry=None)
        while True:
            last = self._stop.is_set()
            try:
                found = cast(list[Any], client.xread(self._places, count=AT_ONCE, block=100))
            except (redis.RedisError, OSError):
                with contextlib.suppress(redis.RedisError, OSError):
                    client.close()
                if last and not self._server.running:
                    return
                self._stop.wait(0.02)
                continue
            for key, entries in found:
                self._take(key, entries)
            if last and not found:
                return

    def _take(self, key: str, entries: list[tuple[str, dict[str, str]]]) -> None:
        for entry, fields in entries:
            kind, job_id = fields["event"], fields["id"]
            if kind == "waiting" and fields.get("prev") in FINAL:
                kind = REPLAYED
                self.ended -= 1
            self.seen[key] += 1
            self.added += kind == "added"
            self.ended += kind in FINAL
            if job_id:
                event = Event(kind, int(entry.split("-")[0]), int(fields.get("attempts_started", 0)))
                with self._turn:
                    trace = self.traces[job_id]
                    trace.append(event)
                    if len(trace) > 1 and event.at_ms < trace[-2].at_ms:  # a job that was replaced may change its queue
                        trace.sort(key=lambda told: told.at_ms)
        if entries:
            self._places[key] = entries[-1][0]
