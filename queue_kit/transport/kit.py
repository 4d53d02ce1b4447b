"""What one Celery app and its connections share; without it a second app in the process would trip over the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from queue_kit.rules.lease import renewal_interval_ms
from queue_kit.rules.outcome import Cancel, Release
from queue_kit.settings import Settings
from queue_kit.store import Keys, Message, Moves, When
from queue_kit.transport.stops import Stop

if TYPE_CHECKING:
    from queue_kit.transport.held import Held


@dataclass(eq=False, slots=True)
class Run:
    """One execution of a job in this process, under one lease.

    ``inside``: the task's own function is running; ``moved_to``: the state that what it sent under its own id has put it in;
    ``lost``: that was refused; ``exhausted``: it asked for a retry and had none left; ``why``: cause and reason of the attempt
    that failed, for the history; ``late``: what it has come to could not be stored at once.
    """

    id: str
    token: str
    facts: dict[str, Any]
    stop: Stop
    nesting: int = 0
    inside: bool = False
    why: tuple[str, str] = ("retried", "")
    ending: Release | Cancel | None = None
    moved: bool = False
    moved_to: str = ""
    lost: bool = False
    exhausted: bool = False
    replaced: bool = False
    late: bool = False
    unsent: tuple[Message, When] | None = None


@dataclass(eq=False, slots=True)
class Kit:
    """One app's settings, moves and key names, with what this process runs and holds.

    ``running`` maps the id of each job that this very process executes to its run. ``current_id`` says which job the calling
    thread runs, if it runs one. ``turn``: which of several broker URLs has answered last; reads go where sends go.
    ``sender`` sends the app's jobs. ``held`` is the worker's registry of leases; ``None`` in a process that only sends.
    """

    settings: Settings
    is_task_queue: Callable[[str], bool]
    moves: Moves
    keys: Keys
    held: Held | None = None
    sender: Any = None
    turn: int = 0
    running: dict[str, Run] = field(default_factory=dict)
    current_id: Callable[[], str | None] = lambda: None

    def sending_run(self, job_id: str) -> Run | None:
        """The run whose own job it is that is being sent, and so moved: sent by itself, or from a thread that it started.

        What another job of this process sends under that id, the last step of a canvas, comes after that run, also while that
        has not quite ended.
        """
        run = self.running.get(job_id)
        return run if run is not None and self.current_id() in (None, job_id) else None

    @classmethod
    def of(cls, settings: Settings, is_task_queue: Callable[[str], bool]) -> Kit:
        """Make the kit of an app from its settings."""
        moves = Moves(
            prefix=settings.queue_prefix,
            lease_ms=settings.worker_lock_duration_ms,
            renewal_ms=renewal_interval_ms(settings.worker_lock_duration_ms),
            reap_ms=settings.worker_stalled_interval_ms,
            max_stalled=settings.worker_max_stalled_count,
            dead_letters=settings.dead_letter_max_entries,
        )
        return cls(settings, is_task_queue, moves, Keys(settings.queue_prefix))
