"""How often and when a job runs again, as values; without them every task would carry its own arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

#: A backoff of the project's own: given the error and the attempts made (1 or more), it answers the milliseconds to wait, or
#: ``"stop"`` to fail the job now. It travels with the task, never with a message.
BackoffFunction = Callable[[BaseException, int], int | Literal["stop"]]


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before the next attempt. Made with :func:`fixed` or :func:`exponential`.

    ``delay_ms`` is the wait after the first attempt; ``cap_ms`` bounds every wait; ``jitter`` is the fraction of a wait
    that chance may take off (0: none, 1: all), as in BullMQ.

    :raises ValueError: for a value out of range, naming the field.
    """

    kind: Literal["fixed", "exponential"]
    delay_ms: int
    jitter: float = 0.0
    cap_ms: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "exponential"):
            raise ValueError("backoff kind: use 'fixed' or 'exponential'")
        _whole("backoff delay_ms", self.delay_ms)
        if isinstance(self.jitter, bool) or not isinstance(self.jitter, int | float) or not 0 <= self.jitter <= 1:
            raise ValueError("backoff jitter: a fraction from 0 to 1 is needed")
        if self.cap_ms is not None:
            _whole("backoff cap_ms", self.cap_ms)

    def __json__(self) -> dict[str, Any]:
        """How kombu sends it with a signature, such as a chain's later step."""
        return self.as_dict()

    def as_dict(self) -> dict[str, Any]:
        """The plain form that travels with a job."""
        return {"kind": self.kind, "delay_ms": self.delay_ms, "jitter": self.jitter, "cap_ms": self.cap_ms}


def fixed(delay_ms: int, *, jitter: float = 0.0) -> Backoff:
    """Wait ``delay_ms`` before every further attempt.

    :raises ValueError: for a negative delay or a jitter outside 0..1, naming the field.
    """
    return Backoff("fixed", delay_ms, jitter)


def exponential(delay_ms: int, *, jitter: float = 0.0, cap_ms: int | None = None) -> Backoff:
    """Wait ``delay_ms``, then twice that, then four times, and so on, at most ``cap_ms``.

    :raises ValueError: for a negative delay or cap, or a jitter outside 0..1, naming the field.
    """
    return Backoff("exponential", delay_ms, jitter, cap_ms)


@dataclass(frozen=True, slots=True)
class DedupPolicy:
    """Which sends of one key are one job.

    Modes: ``ttl`` (one job until the key's life is over, whatever became of it); ``until_finished`` (until the job has
    ended); ``extend`` (as ttl, each hit prolongs it); ``replace`` (as extend, and while the job is delayed the last payload
    wins); ``keep_last`` (until it has ended, and what was sent last while it ran runs once more after it).
    """

    key: str
    mode: Literal["ttl", "until_finished", "extend", "replace", "keep_last"] = "ttl"
    ttl_ms: int = 86_400_000

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not 1 <= len(self.key) <= 200 or not is_text(self.key):
            raise ValueError("idempotency_key: a text of 1 to 200 characters is needed")
        if self.mode not in ("ttl", "until_finished", "extend", "replace", "keep_last"):
            raise ValueError("dedup: use 'ttl', 'until_finished', 'extend', 'replace' or 'keep_last'")
        _whole("idempotency_ttl_ms", self.ttl_ms)
        if self.ttl_ms == 0:
            raise ValueError("idempotency_ttl_ms: a whole number of at least 1 is needed")

    @property
    def has_ttl(self) -> bool:
        """Whether the key dies by the clock rather than with its job."""
        return self.mode in ("ttl", "extend", "replace")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How many attempts a job has, the first included, and the waits between them.

    :raises ValueError: for fewer than one attempt, or a backoff that is none.
    """

    attempts: int
    backoff: Backoff | BackoffFunction

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValueError("attempts: a whole number of at least 1 is needed (the first attempt counts)")
        if not isinstance(self.backoff, Backoff) and not callable(self.backoff):
            raise ValueError("backoff: use fixed(delay_ms) or exponential(delay_ms), or a function of error and attempts_made")


def check_timeout(timeout_ms: int | None) -> int | None:
    """The deadline of a run as it was given; ``None``: nothing was.

    :raises ValueError: for what is no whole number of milliseconds, 1 or more.
    """
    if timeout_ms is None:
        return None
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 1:
        raise ValueError("timeout_ms: a whole number of milliseconds, 1 or more, is needed")
    return timeout_ms


def is_text(value: str) -> bool:
    """Whether it can be written down: half of a surrogate pair, which JSON from elsewhere may hold, cannot."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}: a whole number of milliseconds, 0 or more, is needed")
