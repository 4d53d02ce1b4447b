"""Names of keys that Python reads; the scripts derive the same names in their prelude. Nothing else may spell a key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one prefix."""

    prefix: str

    def job(self, job_id: str) -> str:
        """Hash: the record of one job."""
        return f"{self.prefix}:job:{job_id}"

    def runs(self, job_id: str) -> str:
        """List of JSON: runs of a job that ended otherwise than by completing, oldest first."""
        return f"{self.prefix}:job:{job_id}:runs"

    def log(self, job_id: str) -> str:
        """List of JSON: what a job's runs have written, oldest first."""
        return f"{self.prefix}:job:{job_id}:log"

    def queue(self, queue: str, part: str) -> str:
        """One part of a queue: wait, reserved, active, delayed, a final state, dead, events, meta, counts or wake."""
        return f"{self.prefix}:q:{queue}:{part}"

    def is_wake_up(self, key: str) -> bool:
        """Whether a key that a blocking read answered with is a queue's wake-up mark."""
        return key.startswith(f"{self.prefix}:q:") and key.endswith(":wake")

    def dead_letter(self, record_id: str) -> str:
        """Hash: one dead letter."""
        return f"{self.prefix}:dead:{record_id}"

    def dedup(self, queue: str, name: str, key: str) -> str:
        """Hash: who holds a deduplication key. Its scope is the job's name and queue; lengths keep the three apart."""
        return f"{self.prefix}:dedup:{len(queue)}.{len(name)}:{queue}:{name}:{key}"

    def unacked(self, part: str) -> str:
        """Hash, and sorted set ``_index`` and lock ``_mutex`` beside it: plain messages of kombu that a worker has taken."""
        return f"{self.prefix}:unacked{part}"

    @property
    def queues(self) -> str:
        """Set: every queue that has ever held a job."""
        return f"{self.prefix}:queues"

    @property
    def notes(self) -> str:
        """Sorted set, by time: ids of jobs that ended outside their run and whose callers have not been told."""
        return f"{self.prefix}:notes"

    @property
    def workers(self) -> str:
        """Hash of JSON: what each worker says of itself, by its nonce."""
        return f"{self.prefix}:workers"

    @property
    def beats(self) -> str:
        """Sorted set, by time: when each worker has last said that it lives."""
        return f"{self.prefix}:workers:beats"
