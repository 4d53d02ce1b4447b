"""Goes through all checks; without it a command could leave one out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Final

from queue_kit.observe.doctor import project, server, tasks, work
from queue_kit.observe.doctor.facts import Facts, Finding, Verdict, bad, warn
from queue_kit.rules.printing import printable

Check = Callable[[Facts], Iterable[Finding]]

_OF_THE_SERVER: Final[tuple[Check, ...]] = (
    server.fitness, server.eviction, server.persistence, server.replicas, server.memory, server.connections, server.clock,
)  # fmt: skip
_OF_THE_PROJECT: Final[tuple[Check, ...]] = (
    project.refused, project.celery_settings, project.results, project.at_most_once, project.leases, project.deadlines,
    project.known_ids, tasks.endless, tasks.limits, tasks.queues, tasks.schedule,
)  # fmt: skip
_OF_THE_WORK: Final[tuple[Check, ...]] = (
    work.stock_messages, work.stock_workers, work.unacked, work.unread_queues, work.unknown_tasks, work.oldest_waiting,
    work.overdue, work.untold, work.dead_letters, work.strays,
)  # fmt: skip


def examine(facts: Facts) -> list[Finding]:
    """Judge everything, in the order in which it is put right: the server, the project's settings, the work itself."""
    return list(_findings(facts))


def examine_project(facts: Facts) -> list[Finding]:
    """Judge what needs no Redis: the settings and the tasks."""
    return [finding for check in _OF_THE_PROJECT for finding in check(facts)]


def _findings(facts: Facts) -> Iterator[Finding]:
    checks: tuple[Check, ...] = (*_OF_THE_SERVER, *_OF_THE_PROJECT, *_OF_THE_WORK)
    if facts.trouble:
        yield bad("server", f"Redis cannot be read: {facts.trouble}", "see broker_url, and whether that server runs")
        checks = _OF_THE_PROJECT
    elif not facts.server.info:
        says = "this user may not ask for INFO: version, policy, persistence and memory are unchecked"
        yield warn("server", says, "allow it +info and +config|get")
        checks = (server.clock, *_OF_THE_PROJECT, *_OF_THE_WORK)
    elif facts.unfit:
        checks = (*_OF_THE_SERVER, *_OF_THE_PROJECT)
    for check in checks:
        yield from check(facts)


def exit_status(findings: Sequence[Finding]) -> int:
    """For scripts: 0 all is well, 1 something to look at, 2 work is lost, doubled or stuck."""
    return max((list(Verdict).index(finding.verdict) for finding in findings), default=0)


def as_line(finding: Finding) -> str:
    """Verdict, check, what is so and why, and the fix. Names in it were chosen by whoever sent a job."""
    fix = f". Fix: {finding.fix}" if finding.fix else ""
    return printable(f"{finding.verdict:<5} {finding.check}: {finding.says}{fix}")


def as_json(findings: Sequence[Finding]) -> str:
    """One JSON document: the exit status, and every finding."""
    document = {"status": exit_status(findings), "findings": [asdict(finding) for finding in findings]}
    return json.dumps(document, ensure_ascii=False, indent=2)
