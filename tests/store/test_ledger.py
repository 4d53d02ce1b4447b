"""Sending moves: one at a time or many in a trip, to a server that may have forgotten the scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from redis.exceptions import NoScriptError, ResponseError

from queue_kit.store import AT_ONCE, Keys, Ledger
from queue_kit.store.moves import Added
from queue_kit.store.script import script
from tests.store.desk import Desk
from tests.support.processes import ROOT
from tests.support.redis_server import RedisServer

SCRIPTS = ROOT / "queue_kit" / "store" / "lua"


def test_a_move_is_sent_by_its_digest(desk: Desk) -> None:
    call = desk.moves.promote("job")
    assert call.command[:3] == ("EVALSHA", call.script.sha, 0)
    assert desk.client.script_load(call.script.source) == call.script.sha


def test_a_server_that_forgot_the_scripts_gets_the_source_once(desk: Desk) -> None:
    """H8, H9: after SCRIPT FLUSH or a restart."""
    desk.add("before")
    desk.client.script_flush()
    assert desk.add("after") == Added("added", "waiting")
    assert desk.client.script_exists(script("add").sha) == [True]


def test_many_moves_are_answered_in_order(desk: Desk) -> None:
    calls = [desk.moves.add(f"j{n}", desk.message()) for n in range(5)]
    assert desk.ledger.run_all(calls) == [Added("added", "waiting")] * 5
    assert desk.listed("wait") == [f"j{n}" for n in range(5)]


def test_many_moves_to_a_server_that_forgot_the_scripts_are_each_made_once_and_in_order(desk: Desk) -> None:
    desk.client.script_flush()
    calls = [desk.moves.add(f"j{n}", desk.message()) for n in range(5)]
    assert desk.ledger.run_all(calls) == [Added("added", "waiting")] * 5
    assert desk.listed("wait") == [f"j{n}" for n in range(5)]


def test_the_answer_of_a_move_that_failed_is_its_error(desk: Desk) -> None:
    """The others are made all the same."""
    desk.client.set(desk.keys.job("broken"), "no hash")
    answers = desk.ledger.run_all([desk.moves.promote("broken"), desk.moves.add("sound", desk.message())])
    assert isinstance(answers[0], ResponseError)
    assert not isinstance(answers[0], NoScriptError)
    assert answers[1] == Added("added", "waiting")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        desk.run(desk.moves.promote("broken"))
    desk.client.delete(desk.keys.job("broken"))


def test_nothing_to_do_is_no_trip(desk: Desk) -> None:
    assert desk.ledger.run_all([]) == []


def test_answers_are_read_from_a_client_that_gives_bytes(desk: Desk, redis_server: RedisServer) -> None:
    """The transport's connection does."""
    with redis_server.client(decode_responses=False) as client:
        ledger = Ledger(client)
        assert ledger.run(desk.moves.add("job", desk.message(body="ümläut"))) == Added("added", "waiting")
        raw = Desk(client, desk.queue)
        (job,) = raw.claim().jobs
        assert (job.id, job.message, job.begun) == ("job", "ümläut", True)
        assert ledger.run(desk.moves.retry("job", job.token, AT_ONCE)) == "waiting"


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.lua")), ids=lambda path: path.stem)
def test_every_file_is_a_script_or_a_part_of_one(path: Path, client: redis.Redis) -> None:
    """A part alone is loadable too, so that an error is found in the file that has it."""
    source = (SCRIPTS / "prelude.lua").read_text() + "\n" + path.read_text()
    assert client.script_load(source)


def test_keys_of_python_and_of_the_scripts_are_the_same(desk: Desk) -> None:
    """Every key that a job's whole life leaves is one that Keys can spell."""
    token = desk.running()
    desk.run(desk.moves.fail("job", token, "exhausted", "no", tell=True))
    keys = Keys("qwk")
    parts = {keys.queue(desk.queue, part) for part in ("failed", "dead", "events", "meta", "counts", "wake")}
    ours = {keys.job("job"), keys.runs("job"), keys.dead_letter(f"dlq-{desk.queue}-job-1"), keys.queues, keys.notes}
    assert set(desk.client.keys("*")) <= ours | parts
    assert ours <= set(desk.client.keys("*"))


def test_another_prefix_is_another_world(desk: Desk) -> None:
    other = Desk(desk.client, desk.queue)
    other.moves = type(desk.moves)("other")
    desk.add()
    assert other.claimed() == []
    assert other.add() == Added("added", "waiting")
    assert [key for key in desk.client.keys("other:*") if "job" in key] == ["other:job:job"]
    desk.client.delete(*desk.client.keys("other:*"))
