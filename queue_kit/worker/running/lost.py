"""A run whose lease is another's; without one word for it each place that stores something would refuse in its own way."""

from __future__ import annotations

from celery.exceptions import Ignore

from queue_kit.transport.kit import Kit, Run


class LeaseLost(Ignore):
    """The lease of this run is another's: nothing of it may be stored."""


def make_sure(run: Run, kit: Kit) -> None:
    """Ask Redis before something is written that no token guards.

    :raises LeaseLost: the job is another's.
    :raises QueueUnavailable: Redis does not answer.
    """
    if kit.sender.run(kit.moves.check(run.id, run.token)) in ("lost", "gone"):
        raise LeaseLost(f"the lease of {run.id} is lost")
