"""What is refused of Celery's own settings, task options and broker URLs; without a refusal each would break a promise
without a word: delete what fails, run what timed out for ever, keep jobs where no script can reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from celery import Celery
from celery.utils.imports import symbol_by_name
from kombu.utils.url import url_to_parts

from queue_kit.errors import ConfigurationError
from queue_kit.states import RESERVED_QUEUE
from queue_kit.transport.connection import SCHEMES

#: The consumer of our workers, by name: a process that only sends has no need of it.
CONSUMER: Final = "queue_kit.worker.consumer.Consumer"

Refusal = tuple[str, Callable[[Any], bool], str]

#: Options that a task may set too: attribute, what is refused, why. The setting is the same with ``task_`` before it.
_OF_TASKS: Final[tuple[Refusal, ...]] = (
    ("retry_on_worker_lost", bool, "a lost worker is a stall here, counted and limited"),
    ("acks_on_failure_or_timeout", lambda value: value is False, "on Redis it deletes what fails"),
    ("acks_on_failure", lambda value: value is False, "on Redis it deletes what fails"),
    ("acks_on_timeout", lambda value: value is False, "it runs what timed out again without end"),
)
_OF_THE_APP: Final[tuple[Refusal, ...]] = (
    ("task_protocol", lambda value: value == 1, "jobs need task protocol 2"),
    (
        "worker_cancel_long_running_tasks_on_connection_loss", bool,
        "leases outlive a lost connection, so what runs must not be killed for it",
    ),
)  # fmt: skip


def check_sender(app: Celery) -> None:
    """Refuse an app that would bypass or lose jobs: its settings, and the tasks that it knows so far.

    :raises ConfigurationError: names each fault and what would be right.
    """
    _refuse([*_problems_of_settings(app), *_problems_of_tasks(app)])


def check_worker(app: Celery) -> None:
    """Refuse the same to a worker, and broker URLs that no job could be kept behind; connects to none.

    :raises ConfigurationError: names each fault; a URL is not echoed, since it may carry a password.
    """
    problems = [*_problems_of_settings(app), *_problems_of_tasks(app), *_problems_of_brokers(app)]
    if RESERVED_QUEUE in app.amqp.queues.consume_from:
        problems.append(f"queue {RESERVED_QUEUE}: leave it out; the name is reserved, nothing consumes dead letters")
    if not issubclass(symbol_by_name(app.conf.worker_consumer), symbol_by_name(CONSUMER)):
        problems.append(f"worker_consumer: leave it out, or derive it from {CONSUMER}")
    _refuse(problems)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigurationError(problems)


def _problems_of_settings(app: Celery) -> Iterator[str]:
    of_tasks = ((f"task_{option}", refused, why) for option, refused, why in _OF_TASKS)
    for name, refused, why in (*of_tasks, *_OF_THE_APP):
        if refused(app.conf.get(name)):
            yield f"{name}: leave it out; {why}"


def _problems_of_tasks(app: Celery) -> Iterator[str]:
    """A task whose value is merely that of the app is not named again."""
    for task in app._tasks.values():
        for option, refused, why in _OF_TASKS:
            value = getattr(task, option, None)
            if refused(value) and not refused(app.conf.get(f"task_{option}")):
                yield f"task {task.name}: leave out {option}={value!r}; {why}"
                break  # the narrower options follow from the wide one


def _problems_of_brokers(app: Celery) -> Iterator[str]:
    read, write = app.conf.broker_read_url, app.conf.broker_write_url
    urls = [*_split(read), *(_split(write) if write != read else ())]
    yield from dict.fromkeys(problem for url in urls or [""] for problem in _problems_of_url(url))
    yield from dict.fromkeys(_problems_of_sentinels(urls, app.conf.broker_transport_options))
    if read != write:
        yield "broker_write_url: leave it out, as broker_read_url; a retry moves its job where it was claimed"
    if (app.conf.broker_transport_options or {}).get("ack_emulation") is False:
        yield "broker_transport_options: leave out ack_emulation; without it nobody would know what a worker holds"


def _split(urls: Any) -> list[str]:
    if isinstance(urls, str):
        return [url for url in urls.split(";") if url]
    return [one for url in urls or () for one in _split(url)] if isinstance(urls, Iterable) else []


def _problems_of_url(url: str) -> Iterator[str]:
    scheme, found, _ = url.partition("://")
    if not found or scheme not in SCHEMES:
        yield f"broker_url: {scheme if found else 'no'} scheme; queue_kit keeps jobs in Redis: use {', '.join(SCHEMES)}"
    elif not scheme.endswith("socket"):
        try:
            database = url_to_parts(url).path or "0"
        except ValueError as error:  # of the port
            yield f"broker_url: {error}"
        else:
            if not database.isdecimal():
                yield "broker_url: the path must be the number of a database, such as redis://host:6379/0"


def _problems_of_sentinels(urls: list[str], options: Any) -> Iterator[str]:
    sentinels = [url for url in urls if url.startswith("sentinel://")]
    if not sentinels:
        return
    if len(sentinels) < len(urls):
        yield "broker_url: name either Sentinels or Redis servers, not both"
    if not (options or {}).get("master_name"):
        yield 'broker_transport_options: Sentinel needs {"master_name": "..."}, the name that it knows the primary by'
    if len({url.partition("://")[2].partition("/")[2] for url in sentinels}) > 1:
        yield "broker_url: give the URL of every Sentinel the same database"
