"""The books of a chaos run, on evidence that is made up: what balances, what does not, and what each job's recovery took."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.books import faults
from tests.chaos.evidence import Event, Evidence, Kill, Look, Send, Start, Undone, read_sends
from tests.chaos.planting import PLANTS, leaks_not_seen, not_refused
from tests.chaos.recovery import Recovery, recoveries
from tests.chaos.report import picture, table
from tests.support.redis_server import RedisServer

PLAIN = ["added", "waiting", "active", "completed"]
REPLACED = ["added", "waiting", "active", "waiting", "active", "completed"]
STALLED = ["added", "waiting", "active", "waiting", "stalled", "active", "completed"]


def trace(*kinds: str, at_ms: int = 1000) -> list[Event]:
    """Events 100 ms apart; starts counted as Redis does."""
    runs = 0
    told = []
    for place, kind in enumerate(kinds):
        runs += kind == "active"
        told.append(Event(kind, at_ms + 100 * place, runs if kind == "active" else 0))
    return told


@pytest.fixture
def evidence() -> Evidence:
    """A run in which one job has stalled, and all is well."""
    chain = [f"chain-{place}" for place in range(3)]
    canvas = ["before", "replaced", "after", "inner"]
    fired = [f"schedule:{name}:{at_ms}" for name, at_ms in (("quick", 0), ("quick", 500), ("quick", 1000), ("slow", 0))]
    plain = ("pause", "effect", "outbox", *chain, "before", "after", "inner", *fired)
    traces = {job_id: trace(*PLAIN) for job_id in plain} | {"hit": trace(*STALLED), "replaced": trace(*REPLACED)}
    sends = [Send(kind, [kind], "accepted", [kind]) for kind in ("pause", "effect", "outbox")]
    sends += [Send("long", ["hit"]), Send("chain", chain, "accepted", chain[-1:]), Send("pause", ["nowhere"], "refused")]
    sends += [Send("replaced", canvas, "accepted", ["after"]), Send("outbox", ["taken back"], "refused")]
    starts = [Start(job_id, run, 7 if job_id == "hit" else 8, 1.25) for job_id in traces for run in (1,)]
    starts += [Start("hit", 2, 9, 1.5), Start("replaced", 2, 9, 1.5)]
    killed = [Kill("prefork", "child", 1.27, frozenset({7}))]
    return Evidence(
        sends, traces, starts, Counter(effect=1), frozenset([*chain, *canvas]), frozenset(["outbox"]),
        [Look("a1", 1001, 1002)], kills=killed,
    )  # fmt: skip


def test_the_books_of_a_sound_run_balance(evidence: Evidence) -> None:
    assert faults(evidence) == []


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_each_planted_fault_is_refused(evidence: Evidence, plant: object) -> None:
    plant(evidence)  # type: ignore[operator]
    assert len(faults(evidence)) >= 1


def test_a_check_that_sees_nothing_is_told(evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.books.CHECKS", ())
    assert not_refused(evidence) == [plant.__name__ for plant in PLANTS]


def test_a_lease_and_a_record_left_in_redis_are_seen(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        assert leaks_not_seen(client) == []


def test_a_killed_jobs_recovery_is_timed_from_the_kill(evidence: Evidence) -> None:
    assert recoveries(evidence) == {"prefork child": [Recovery(pytest.approx(30), pytest.approx(230))]}


def test_the_table_and_the_picture_tell_of_the_kill(evidence: Evidence) -> None:
    told = table(evidence, {"pool child killed": 1}, 60)
    assert "unexplained extra runs      0" in told
    assert "prefork child              1         1        30" in told
    assert picture(evidence, [1.3], "a run").count("<line") == 3


def test_a_send_that_was_cut_short_is_unclear(tmp_path: Path) -> None:
    (tmp_path / "sent-a").write_text('{"send": "a-1", "kind": "pause", "ids": ["x"]}\n{"send": "a-1", "verd')
    assert read_sends(tmp_path) == [Send("pause", ["x"], "unclear")]


def test_a_job_that_was_replayed_has_an_end_for_each_of_its_lives(evidence: Evidence) -> None:
    evidence.traces["pause"] = trace("added", "waiting", "active", "failed", "dead-lettered", "replayed", "active", "completed")
    evidence.starts.append(Start("pause", 2, 8, 1.6))
    assert faults(evidence) == []
    del evidence.traces["pause"][-1]
    assert [fault.partition(":")[0] for fault in faults(evidence)] == ["lost"]


def test_what_no_replica_had_may_be_gone_unless_that_was_waited_for(evidence: Evidence) -> None:
    del evidence.traces["pause"]
    evidence.starts.append(Start("effect", 1, 9, 1.6))
    evidence.undone = Undone({"pause"}, Counter({("effect", 1): 1, ("pause", 1): 1}))
    assert faults(evidence) == []
    evidence.waited = True
    assert [fault.partition(":")[0] for fault in faults(evidence)] == ["lost"]
