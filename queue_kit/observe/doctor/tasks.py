"""Checks of the project's own tasks: whether one goes round for ever, is never taken, or is not there."""

from __future__ import annotations

from collections.abc import Iterator

from queue_kit.observe.doctor.facts import Facts, Finding, bad, some, warn


def endless(facts: Facts) -> Iterator[Finding]:
    """Plain tasks that are retried however often they fail."""
    if facts.endless:
        says = "max_retries=None: a failure that does not pass is retried for ever, and never a dead letter"
        yield warn("tasks", f"{says}: {some(facts.endless)}", "give them a max_retries, or declare them with @job and attempts")


def limits(facts: Facts) -> Iterator[Finding]:
    """Whether a task hears of its end before it is ended."""
    soft_s, hard_s = facts.conf.get("task_soft_time_limit"), facts.conf.get("task_time_limit")
    if soft_s and hard_s and soft_s >= hard_s:
        says = f"task_soft_time_limit {soft_s}: at task_time_limit {hard_s} the run is killed before it hears of it"
        yield warn("deadlines", says, "set it below task_time_limit")


def queues(facts: Facts) -> Iterator[Finding]:
    """Jobs whose queue no worker takes from unless it is told to by name."""
    if not facts.conf.get("task_queues"):
        return
    strange = sorted(f"{name} ({queue})" for name, queue in facts.queue_of.items() if queue not in facts.declared_queues)
    if strange and facts.conf.get("task_create_missing_queues") is False:
        says = "task_create_missing_queues is off, and nothing can be sent to a queue that is not in task_queues"
        yield bad("tasks", f"{says}: {some(strange)}", "name their queues in task_queues")
    elif strange:
        says = f"task_queues: a worker without -Q takes from these alone, and never the jobs {some(strange)}"
        yield warn("tasks", says, "name their queues in task_queues")


def schedule(facts: Facts) -> Iterator[Finding]:
    """Times at which nothing but a dead letter can come of a job."""
    unknown = sorted(f"{entry} ({name})" for entry, name in facts.beat.items() if name not in facts.tasks)
    if unknown:
        says = f"beat_schedule: of these entries no task is known here, and each time would be a dead letter: {some(unknown)}"
        yield warn("tasks", says, "correct the name, or import the task's module")
