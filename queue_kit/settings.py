"""One frozen object of settings, read and validated at boot; without it a wrong value would show in the middle of a job."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from queue_kit.errors import ConfigurationError


def _number(default: int, least: int, most: int, sentence: str) -> Any:
    return field(default=default, metadata={"least": least, "most": most, "sentence": sentence})


def _text(default: str, pattern: str, sentence: str) -> Any:
    return field(default=default, metadata={"pattern": pattern, "sentence": sentence})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, with their defaults. The name in upper case is the name of the environment variable."""

    queue_prefix: str = _text("qwk", r"[A-Za-z0-9_.:-]{1,64}", "Prefix of every key in Redis.")
    job_attempts: int = _number(5, 1, 50, "Attempts of a declared job, the first included.")
    job_backoff_delay_ms: int = _number(2_000, 0, 3_600_000, "First wait between attempts; it doubles each time.")
    job_timeout_ms: int = _number(30_000, 100, 3_600_000, "Deadline of one run of a declared job.")
    job_timeout_grace_ms: int = _number(5_000, 0, 3_600_000, "After the deadline: until JobTimeoutError is raised in it.")
    job_timeout_kill_ms: int = _number(10_000, 100, 3_600_000, "After that: until the pool's process is killed.")
    worker_lock_duration_ms: int = _number(30_000, 400, 3_600_000, "How long a lease lasts if nobody renews it.")
    worker_stalled_interval_ms: int = _number(5_000, 50, 600_000, "How often a worker looks for leases that ran out.")
    worker_inferred_death_ms: int = _number(
        0, 0, 60_000, "After how long a silence a worker whose connections have closed is taken for dead; 0: never."
    )
    worker_max_stalled_count: int = _number(1, 0, 100, "How often a job may lose its worker and run again.")
    worker_max_suspects: int = _number(1, 1, 1_000, "Stalled jobs that one worker runs at a time.")
    job_remove_on_complete_count: int = _number(1_000, 0, 10_000_000, "Completed records that a queue keeps.")
    job_remove_on_fail_count: int = _number(5_000, 0, 10_000_000, "Failed and cancelled records that a queue keeps.")
    job_remove_after_s: int = _number(2_592_000, 1, 315_360_000, "Records of ended jobs older than this go.")
    job_known_after_removal_ms: int = _number(300_000, 1, 86_400_000, "How long a trimmed id is still known.")
    dead_letter_max_entries: int = _number(5_000, 1, 1_000_000, "Dead letters that a queue keeps; the oldest go.")
    dead_letter_expired: bool = field(default=False, metadata={"sentence": "A job that expires leaves a dead letter too."})
    dead_letter_redact: str = _text(
        "password,token,secret,authorization,api_key",
        r"[\w.\- ]*(,[\w.\- ]+)*",
        "Names of fields never shown: of each whose name contains one of these, commas between them.",
    )
    janitor_interval_ms: int = _number(10_000, 100, 3_600_000, "How often a worker trims old records.")
    job_payload_size_limit_bytes: int = _number(16_384, 1, 512_000_000, "Most bytes of a declared job's payload.")
    enqueue_timeout_ms: int = _number(1_000, 50, 60_000, "How long sending a job may take in all.")
    enqueue_wait_disk: bool = field(
        default=False, metadata={"sentence": "A send waits until Redis has synced the job to its disk (WAITAOF, Redis 7.2)."}
    )
    enqueue_wait_replicas: int = _number(0, 0, 16, "A send waits until so many replicas have the job.")
    shutdown_timeout_ms: int = _number(30_000, 100, 3_600_000, "How long running jobs may go on after a worker is asked to end.")
    redis_timeout_ms: int = _number(1_000, 50, 60_000, "How long one call to Redis may take.")
    redis_retry_max_ms: int = _number(5_000, 100, 600_000, "Longest wait between attempts to reach Redis again.")
    take_stock_messages: bool = field(
        default=False, metadata={"sentence": "Workers also take what stock Celery has left in the plain lists of their queues."}
    )
    unknown_task_hold_ms: int = _number(
        0, 0, 86_400_000, "How long a job waits for a worker that knows its task, before it is a dead letter; 0: not at all."
    )
    enable_worker_metrics_server: bool = field(
        default=False, metadata={"sentence": "A worker answers /metrics, /health/live and /health/ready over HTTP."}
    )
    worker_metrics_host: str = _text("127.0.0.1", r"[\w.:\-]{1,255}", "The address that it listens on; 0.0.0.0: all there are.")
    worker_metrics_port: int = _number(9_090, 1, 65_535, "Its port; each worker of one machine needs its own.")
    production: bool = field(default=False, metadata={"sentence": "Refuse to start on a Redis that may evict jobs."})
    allow_eviction: bool = field(default=False, metadata={"sentence": "Start all the same, at the risk of lost jobs."})


def load(
    options: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None,
    defaults: Settings | None = None,
) -> Settings:  # fmt: skip
    """Read settings: ``options`` over the environment over the defaults.

    :param defaults: what is given by neither; its class says which settings there are.
    :raises ConfigurationError: names every setting at fault at once and what would be right; values are not echoed, since
        one may hold a password.
    """
    given = dict(options or {})
    environ = os.environ if environ is None else environ
    defaults = defaults or Settings()
    known = [item.name for item in fields(defaults)]
    wrong = {str(name): _unknown(str(name), known) for name in given if str(name).lower() not in known}
    values: dict[str, Any] = {}
    for item in fields(defaults):
        name = item.name.upper()
        raw = given.get(name, given.get(item.name, environ.get(name)))
        if raw is None:
            continue
        try:
            values[item.name] = _read(item.type, raw, item.metadata)
        except ValueError as problem:
            wrong[name] = f"{name}: {problem}"
    settings = replace(defaults, **values)
    problems = [*wrong.values(), *_contradictions(settings, wrong)]
    if problems:
        raise ConfigurationError(problems)
    return settings


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {close[0].upper()}?" if close else "it is not a setting of queue_kit"
    return f"{name}: {hint}"


def _read(kind: Any, raw: Any, metadata: Mapping[str, Any]) -> Any:
    if kind == "bool":
        return _read_switch(raw)
    if kind == "int":
        return _read_number(raw, metadata["least"], metadata["most"])
    if not isinstance(raw, str) or not re.fullmatch(metadata["pattern"], raw):
        raise ValueError(f"a text that fits {metadata['pattern']} is needed")
    return raw


def _read_switch(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    words = {"true": True, "1": True, "false": False, "0": False, "": False}
    if not isinstance(raw, str) or raw.lower() not in words:
        raise ValueError("true or false is needed")
    return words[raw.lower()]


def _read_number(raw: Any, least: int, most: int) -> int:
    text = str(raw)
    if isinstance(raw, bool) or not re.fullmatch(r"-?\d{1,18}", text) or not least <= int(text) <= most:
        raise ValueError(f"a whole number from {least} to {most} is needed")
    return int(text)


def _contradictions(settings: Settings, wrong: Mapping[str, str]) -> list[str]:
    # Of settings that are wrong by themselves nothing more is said: their defaults stand in for them here.
    lease_ms, inferred_ms, problems = settings.worker_lock_duration_ms, settings.worker_inferred_death_ms, []
    sound = wrong.keys().isdisjoint({"REDIS_TIMEOUT_MS", "WORKER_LOCK_DURATION_MS"})
    if sound and settings.redis_timeout_ms > lease_ms:
        problems.append("REDIS_TIMEOUT_MS: at most WORKER_LOCK_DURATION_MS, or one slow call costs the lease")
    if "WORKER_LOCK_DURATION_MS" not in wrong and inferred_ms and not 1_000 <= inferred_ms <= lease_ms:
        problems.append("WORKER_INFERRED_DEATH_MS: 0, or from 1000 to WORKER_LOCK_DURATION_MS")
    return problems
