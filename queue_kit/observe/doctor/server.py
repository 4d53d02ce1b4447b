"""Checks of the Redis server: whether it keeps what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from queue_kit.observe.doctor.facts import Facts, Finding, bad, ok, warn

_TIGHT, _FULL = 0.8, 0.95  # of the memory that there is
_WRITES: Final = ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
_MANY_CONNECTIONS: Final = 0.8
_SKEW_WARN_MS, _SKEW_BAD_MS = 1_000, 30_000


def fitness(facts: Facts) -> Iterator[Finding]:
    """Version, mode and role."""
    info = facts.server.info
    if facts.unfit:
        yield bad("server", f"workers refuse it. {facts.unfit}", "use a single Redis 6.2 or newer, or Valkey, or Sentinel")
    else:
        name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
        version = info.get("valkey_version", info.get("redis_version", "of an unknown version"))
        yield ok("server", f"{name} {version}, a primary")


def eviction(facts: Facts) -> Iterator[Finding]:
    """Whether Redis deletes jobs when memory is full."""
    policy = facts.server.info.get("maxmemory_policy")
    if policy is None:
        yield warn("eviction", "this server does not say what it deletes when memory is full", "ask whoever runs it")
    elif policy == "noeviction":
        yield ok("eviction", "noeviction: a full Redis refuses new jobs and deletes none")
    else:
        judge = warn if facts.settings.allow_eviction else bad
        yield judge("eviction", f"{policy}: Redis deletes jobs when memory is full", "set maxmemory-policy noeviction")


def persistence(facts: Facts) -> Iterator[Finding]:
    """What a restart of Redis, or of its machine, loses."""
    info, config = facts.server.info, facts.server.config
    failing = [key for key in _WRITES if info.get(key, "ok") != "ok"]
    if failing:
        yield bad("persistence", f"the last write to disk failed: {', '.join(failing)}", "see the log of Redis and its disk")
    if info.get("aof_enabled"):
        yield _append_only(config.get("appendfsync", ""))
    elif config.get("save"):
        lost = "a restart loses every job since the last snapshot, and runs again what has ended since"
        yield warn("persistence", f"snapshots alone: {lost}", "set appendonly yes")
    else:
        says = "no append-only file" + (", no snapshots" if "save" in config else "")
        yield bad("persistence", f"{says}: a restart of Redis loses every job", "set appendonly yes")


def _append_only(fsync: str) -> Finding:
    if fsync == "no":
        says = "appendfsync no: the kernel decides when jobs reach the disk, so a lost machine may lose half a minute of them"
        return warn("persistence", says, "set appendfsync everysec")
    losses = {"always": "nothing that was answered", "everysec": "up to a second of jobs"}
    return ok("persistence", f"append-only file; a lost machine loses {losses.get(fsync, 'what appendfsync allows')}")


def replicas(facts: Facts) -> Iterator[Finding]:
    """Whether a primary that is cut off goes on taking jobs that a fail-over throws away."""
    connected = int(facts.server.info.get("connected_slaves", 0))
    if not connected:
        return
    if facts.server.config.get("min-replicas-to-write", "0") == "0":
        says = f"{connected} replicas, min-replicas-to-write 0: a primary that is cut off takes jobs that the fail-over loses"
        yield warn("replicas", says, "set min-replicas-to-write 1, or ENQUEUE_WAIT_REPLICAS=1 where it matters")
    else:
        yield ok("replicas", f"{connected} replicas; a primary without one refuses jobs")


def memory(facts: Facts) -> Iterator[Finding]:
    """How much room there is for jobs."""
    info = facts.server.info
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    most, what = (limit, "maxmemory") if limit else (int(info.get("total_system_memory", 0)), "the machine's memory")
    if not most:
        return
    share = used / most
    says = f"{used / 2**20:.0f} MiB, {share:.0%} of {what}"
    more_room = "raise maxmemory, or keep fewer records and results"
    if share >= _FULL:
        yield bad("memory", f"{says}: new jobs are refused, or soon will be", more_room)
    elif share >= _TIGHT:
        yield warn("memory", f"{says}: little room for a rush", more_room)
    elif not limit and facts.settings.production:
        says += ", without a limit: the kernel would kill Redis where it could have refused jobs"
        yield warn("memory", says, "set maxmemory below what the machine has")
    else:
        yield ok("memory", says)


def connections(facts: Facts) -> Iterator[Finding]:
    """Whether workers and senders will be let in."""
    used, most = int(facts.server.info.get("connected_clients", 0)), _number(facts.server.config.get("maxclients"))
    if most and used >= most * _MANY_CONNECTIONS:
        yield warn("connections", f"{used} of {most}: the next ones are refused", "raise maxclients, or run fewer processes")
    elif most:
        yield ok("connections", f"{used} of {most}")


def clock(facts: Facts) -> Iterator[Finding]:
    """Leases go by the clock of Redis alone; `eta` and `expires` trust ours."""
    skew_ms = facts.our_now_ms - facts.server.now_ms
    says = f"this machine is {abs(skew_ms) / 1000:.1f} s {'ahead of' if skew_ms > 0 else 'behind'} Redis"
    if abs(skew_ms) < _SKEW_WARN_MS:
        yield ok("clock", says)
    else:
        judge = bad if abs(skew_ms) >= _SKEW_BAD_MS else warn
        yield judge("clock", f"{says}: eta and expires are off by that; countdown is not", "let NTP set both clocks")


def _number(value: Any) -> int:
    return int(value) if str(value or "").isdecimal() else 0
