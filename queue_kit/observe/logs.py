"""The log as JSON, an object a line, with what is known of the job or request that a line is about, and without secrets.

Without it a search for a job would be a search through prose, and the first error that quotes a URL would publish a password.
For Django: ``LOGGING = json_logging()``. For workers and beat: ``json_logging_in_workers()`` beside it, or alone.
"""

from __future__ import annotations

import logging
import logging.config
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

import structlog
from celery import signals
from structlog.typing import EventDict, WrappedLogger

from queue_kit.observe import transitions
from queue_kit.observe.correlation import correlation_id, running_job
from queue_kit.rules.redaction import REDACTED, Redactor
from queue_kit.settings import load


def json_logging(level: int | str = "INFO", redact: str | None = None, logfile: str | None = None) -> dict[str, Any]:
    """A configuration for :func:`logging.config.dictConfig`: all there is to log from this level on, and every job's transitions.

    :param redact: names of fields that are never shown, as in the setting ``DEAD_LETTER_REDACT``, which is what is taken else.
    :param logfile: where to write; standard error without it.
    """
    names = load(None if redact is None else {"DEAD_LETTER_REDACT": redact}).dead_letter_redact
    stream: dict[str, Any] = {"class": "logging.StreamHandler"}
    if logfile:
        stream = {"class": "logging.handlers.WatchedFileHandler", "filename": logfile}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": json_formatter, "redact": names}},
        "handlers": {"json": {**stream, "formatter": "json"}},
        "root": {"handlers": ["json"], "level": level},
        # Django's own has a handler of its own, and would say everything twice.
        "loggers": {"django": {"handlers": [], "level": level}, transitions.logger.name: {"level": logging.INFO}},
    }


def json_logging_in_workers(redact: str | None = None) -> None:
    """Let ``celery worker`` and ``celery beat`` log so, at their ``--loglevel`` and into their ``--logfile``.

    Celery then leaves the log alone: what a task prints goes to standard output as it is. Processes of a pool go on with what
    their parent has set up.
    """

    def set_up(loglevel: int | str | None = None, logfile: str | None = None, **kwargs: Any) -> None:
        logging.config.dictConfig(json_logging(loglevel or "INFO", redact, logfile))

    signals.setup_logging.connect(set_up, weak=False, dispatch_uid="queue_kit.json_logging_in_workers")


def json_formatter(redact: str) -> logging.Formatter:
    """What makes a line of a record; ``redact`` as in the setting ``DEAD_LETTER_REDACT``."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder(), structlog.stdlib.add_logger_name],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            _with_context,
            _without_payload,
            structlog.processors.format_exc_info,
            _Cleaner(Redactor.of(redact)),
            structlog.processors.JSONRenderer(default=repr),
        ],
    )


def _with_context(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """What is known of the job that runs where the line is written, or of the request; the line's own word comes first."""
    known: dict[str, Any] = {"correlation_id": correlation_id.get() or None, **running_job.get()()}
    for name, value in known.items():
        if value is not None:
            event.setdefault(name, value)
    return event


def _without_payload(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Celery puts a task's arguments and result beside each of its lines."""
    if str(event.get("logger", "")).startswith("celery."):
        event.pop("data", None)
    return event


class _Cleaner:
    """Takes the secrets out of a line: fields by their name, and what texts quote."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._hides = lru_cache(1024)(redactor.hides)

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> Mapping[str, Any]:
        return {name: self._clean(name, value) for name, value in event.items()}

    def _clean(self, name: str, value: Any) -> Any:
        if self._hides(name):
            return REDACTED
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
            return value
        if isinstance(value, Mapping):
            return {str(key): self._clean(str(key), inner) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean("", inner) for inner in value]
        return self._text(_spoken(value))

    def _text(self, text: str) -> str:
        # Where neither stands nothing is told of a field, nor of a URL's user; most texts of a line are such.
        return self._redactor.text(text) if "=" in text or ":" in text else text


def _spoken(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - whatever it is, the rest of the line is worth having
        return f"<{type(value).__name__}>"
