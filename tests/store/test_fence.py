"""The fence: every move that ends or keeps a lease names its token, and only the holder's is obeyed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queue_kit.store import AT_ONCE, Call, Moves
from tests.store.desk import Desk
from tests.support.redis_server import RedisServer

#: Every move that names a token.
FENCED: dict[str, Callable[[Moves, str], Call[Any]]] = {
    "complete": lambda moves, token: moves.complete("job", token),
    "retry": lambda moves, token: moves.retry("job", token, AT_ONCE),
    "release": lambda moves, token: moves.release("job", token),
    "stall": lambda moves, token: moves.stall("job", token),
    "fail": lambda moves, token: moves.fail("job", token, "exhausted", "no", tell=True),
    "replace": lambda moves, token: moves.replace("job", token),
    "cancel": lambda moves, token: moves.cancel("job", "revoked", token),
    "begin": lambda moves, token: moves.begin("job", token, once=False),
    "renew": lambda moves, token: moves.renew([("job", token)]),
    "progress": lambda moves, token: moves.progress("job", token, "50"),
    "log": lambda moves, token: moves.log("job", token, "half of it is done"),
    "keep": lambda moves, token: moves.keep("job", token, "71"),
}
SETTLES = {verb: move for verb, move in FENCED.items() if verb not in {"begin", "renew", "progress", "log", "keep"}}


def word(answer: Any) -> str:
    """The word in an answer, whatever stands beside it."""
    if isinstance(answer, str):
        return answer
    return getattr(answer, "outcome", None) or answer[0]


def snapshot(desk: Desk) -> dict[str, Any]:
    """Everything that Redis holds."""
    return {key: desk.client.dump(key) for key in sorted(desk.client.keys("*"))}


@pytest.fixture
def raw(desk: Desk, redis_server: RedisServer) -> Iterator[Desk]:
    """The desk with a client that can read dumps."""
    with redis_server.client(decode_responses=False) as client:
        yield Desk(client, desk.queue)


@pytest.mark.parametrize("verb", FENCED)
def test_a_token_that_another_run_replaced_is_lost_and_changes_nothing(desk: Desk, raw: Desk, verb: str) -> None:
    """B8, B12: given a lease that ran out, was reaped and taken by another worker, the first one's outcome is refused."""
    stale = desk.running()
    desk.lease_runs_out("job")
    desk.reap()
    fresh = desk.begin(worker="w2")
    before = snapshot(raw)
    assert word(desk.run(FENCED[verb](desk.moves, stale))) == "lost"
    assert snapshot(raw) == before
    assert desk.run(desk.moves.complete("job", fresh)) == "ok"


@pytest.mark.parametrize("verb", FENCED)
def test_a_token_taken_away_by_the_reaper_is_lost_before_anybody_else_has_the_job(
    desk: Desk, raw: Desk, verb: str
) -> None:
    """B8, H3: nobody moved the job on in this token's name, so its run has to hear that it lost."""
    stale = desk.running()
    desk.lease_runs_out("job")
    desk.reap()
    before = snapshot(raw)
    assert word(desk.run(FENCED[verb](desk.moves, stale))) == "lost"
    assert snapshot(raw) == before


@pytest.mark.parametrize("verb", FENCED)
@pytest.mark.parametrize("first", SETTLES)
def test_a_token_whose_own_move_took_the_job_on_is_moved(desk: Desk, raw: Desk, first: str, verb: str) -> None:
    """SPEC 3, A12: no error and no metric, and a settle sent twice counts once."""
    token = desk.running()
    desk.run(SETTLES[first](desk.moves, token))
    before = snapshot(raw)
    expected = "cancelled" if (first, verb) == ("cancel", "begin") else "moved"
    assert word(desk.run(FENCED[verb](desk.moves, token))) == expected
    assert snapshot(raw) == before


@pytest.mark.parametrize("verb", FENCED)
def test_a_move_sent_again_late_is_still_moved_when_others_have_moved_the_job_since(desk: Desk, verb: str) -> None:
    """A settle whose answer was lost goes again after the reconnect; meanwhile other workers made two attempts."""
    token = desk.running()
    desk.run(desk.moves.retry("job", token, AT_ONCE))
    for worker in ("w2", "w3"):
        desk.run(desk.moves.retry("job", desk.begin(worker=worker), AT_ONCE))
    assert word(desk.run(FENCED[verb](desk.moves, token))) == "moved"


@pytest.mark.parametrize("verb", FENCED)
def test_both_tokens_of_a_job_whose_record_is_gone_are_gone(desk: Desk, verb: str) -> None:
    """H9: FLUSHALL while a job runs; nothing is written by what comes late."""
    earlier = desk.running()
    desk.run(desk.moves.retry("job", earlier, AT_ONCE))
    token = desk.begin()
    desk.client.flushall()
    for held in (earlier, token):
        assert word(desk.run(FENCED[verb](desk.moves, held))) == "gone"
    assert desk.client.keys("*") == []


@pytest.mark.parametrize("verb", SETTLES)
@pytest.mark.parametrize("nobody", ["", " ", "w1"])
def test_no_token_holds_no_job(desk: Desk, raw: Desk, verb: str, nobody: str) -> None:
    """A waiting job has an empty token, which must not open the fence."""
    desk.add()
    desk.run(desk.moves.release("job", desk.begin()))
    if verb == "cancel" and not nobody:
        return  # without a token it is anybody's cancel, which is not fenced
    before = snapshot(raw)
    assert word(desk.run(SETTLES[verb](desk.moves, nobody))) == "lost"
    assert snapshot(raw) == before


def test_the_tokens_remembered_are_few(desk: Desk) -> None:
    """A job that is retried for ever does not grow."""
    for _ in range(20):
        desk.add()
        desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE))
    assert len(desk.record()["moved"].split()) == 3


def test_an_expired_lease_that_nobody_reaped_still_settles(desk: Desk) -> None:
    """SPEC 12: in between, either; nobody else has the job."""
    token = desk.running()
    desk.lease_runs_out("job", ago_ms=60_000)
    assert desk.run(desk.moves.complete("job", token)) == "ok"
    assert desk.counters() == (1, 1, 0)


# -- renew ------------------------------------------------------------------------------------------------------------


def test_renewing_makes_leases_last_a_whole_term_from_now(desk: Desk) -> None:
    desk.add("begun")
    begun = desk.begin("begun")
    desk.add("reserved")
    reserved = desk.reserve("reserved")
    desk.client.zadd(desk.key("active"), {"begun": desk.now_ms() + 5})
    desk.client.zadd(desk.key("reserved"), {"reserved": desk.now_ms() + 5})
    before = desk.now_ms()
    assert desk.run(desk.moves.renew([("begun", begun), ("reserved", reserved)])) == ["ok", "ok"]
    for part, job_id in (("active", "begun"), ("reserved", "reserved")):
        assert before + 10_000 <= desk.client.zscore(desk.key(part), job_id) <= desk.now_ms() + 10_000
    assert desk.trace("begun") == "added waiting active"


def test_a_lease_that_ran_out_lately_is_taken_back(desk: Desk) -> None:
    """H2, SPEC 4: unreaped, and less than one renewal interval (2,500 ms here) ago."""
    token = desk.running()
    desk.lease_runs_out("job", ago_ms=2_000)
    assert desk.run(desk.moves.renew([("job", token)])) == ["ok"]
    assert desk.reap() == []


def test_an_older_one_is_refused(desk: Desk) -> None:
    """H3: after an outage longer than the lease and one renewal interval the run is told; then the reaper comes."""
    token = desk.running()
    desk.lease_runs_out("job", ago_ms=2_600)
    assert desk.run(desk.moves.renew([("job", token)])) == ["lost"]
    assert [row.outcome for row in desk.reap()] == ["waiting"]


def test_one_renewal_answers_for_each_lease(desk: Desk) -> None:
    held = desk.running("held")
    flagged = desk.running("flagged")
    desk.run(desk.moves.cancel("flagged", "revoked"))
    moved = desk.running("moved")
    desk.run(desk.moves.complete("moved", moved))
    lost = desk.running("lost")
    desk.lease_runs_out("lost")
    desk.reap()
    pairs = [("held", held), ("flagged", flagged), ("moved", moved), ("lost", lost), ("never", "w1.1.0")]
    assert desk.run(desk.moves.renew(pairs)) == ["ok", "cancel:revoked", "moved", "lost", "gone"]


def test_nothing_to_renew_is_no_error(desk: Desk) -> None:
    assert desk.run(desk.moves.renew([])) == []


@pytest.mark.parametrize("cause", [["a", "list"], {"a": 1}, None, True, "half a pair: \ud83d"])
def test_a_move_whose_argument_redis_cannot_carry_is_made_all_the_same(desk: Desk, cause: Any) -> None:
    """What a hostile message had in the place of a text; a settle that cannot be sent would hold up all others of its worker."""
    assert desk.run(desk.moves.fail("job", desk.running(), cause, "boom")).outcome == "ok"
    assert desk.state() == "failed"
