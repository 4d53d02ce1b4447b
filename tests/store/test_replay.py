"""Replay: the same job runs again, from its dead letter or its own record, and each failure is replayed at most once."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from queue_kit.errors import AlreadyReplayed, DeadLetterNotFound, JobNotFound, NewerDeadLetter, WrongState
from queue_kit.rules.redaction import Redactor
from queue_kit.store import AT_ONCE, When
from queue_kit.store.dead_letter_moves import Fresh
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.letters import LetterFilter
from queue_kit.store.replaying import Done
from tests.store.desk import Desk
from tests.support.waiting import Stopwatch


def task_message(*, priority: int = 0, nesting: int = 0, **headers: Any) -> str:
    """A message as kombu writes it, of a job that has been retried."""
    given = {"task": "work", "retries": 4, "replaced_task_nesting": nesting, **headers}
    return json.dumps({"body": "[[], {}, {}]", "headers": given, "properties": {"priority": priority}})


def failed(desk: Desk, job_id: str = "job", cause: str = "exhausted", **options: Any) -> str:
    """Let a job fail for good; return the id of its dead letter."""
    options = {"body": task_message(), **options}
    desk.run(desk.moves.fail(job_id, desk.running(job_id, **options), cause, "boom"))
    return f"dlq-{options.get('queue') or desk.queue}-{job_id}-{desk.counters(job_id)[0]}"


def trim(desk: Desk, state: str = "failed") -> None:
    """Let the janitor take all records of a state; their ids stay known for a while."""
    assert desk.run(desk.moves.trim(desk.queue, state, 0, 0, 60_000))


def everything(desk: Desk) -> dict[str, Any]:
    """All that Redis holds: hashes in any order, the rest as it is."""
    keys: Any = desk.client.keys("*")
    return {key: desk.client.hgetall(key) if desk.client.type(key) == "hash" else desk.client.dump(key) for key in keys}


@pytest.fixture
def letters(desk: Desk) -> DeadLetters:
    return DeadLetters(desk.client, "qwk", Redactor.of("password"))


def headers(desk: Desk, job_id: str = "job") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(desk.record(job_id)["message"])["headers"]
    return found


def test_the_same_job_waits_again_with_all_its_attempts_and_its_counters(desk: Desk, letters: DeadLetters) -> None:
    """I7, SPEC 2: state, place, correlation id; no retry is counted in its message any more."""
    letter = failed(desk, correlation_id="c-1", priority=3)
    letters.replay(letter, "ada")
    record = desk.record()
    assert (desk.state(), desk.places(), desk.counters()) == ("waiting", ["wait"], (1, 1, 0))
    assert (record["correlation_id"], record["replays"], headers(desk)["retries"]) == ("c-1", "1", 0)
    assert not {"cause", "reason", "error_class", "finished_at", "expires_at"} & record.keys()
    assert desk.trace() == "added waiting active failed dead-lettered waiting"
    job = desk.claim().jobs[0]
    assert (job.id, job.attempts_made, job.attempts_started, job.replays) == ("job", 1, 2, 1)


def test_a_job_that_stalled_out_runs_again_and_completes(desk: Desk, letters: DeadLetters) -> None:
    """B5."""
    desk.stalled()
    desk.run(desk.moves.stall("job", desk.begin()))
    letters.replay(f"dlq-{desk.queue}-job-1", "ada")
    assert desk.run(desk.moves.complete("job", desk.begin())) == "ok"
    assert (desk.state(), desk.counters()) == ("completed", (2, 3, 2))


def test_a_job_that_stalled_out_has_no_new_budget_of_stalls(desk: Desk, letters: DeadLetters) -> None:
    """SPEC 2: it fails at its next stall."""
    desk.stalled()
    desk.run(desk.moves.stall("job", desk.begin()))
    letters.replay(f"dlq-{desk.queue}-job-1", "ada")
    assert desk.run(desk.moves.stall("job", desk.begin())).outcome == "failed"
    assert desk.counters() == (2, 3, 3)


def test_a_record_is_replayed_once_and_says_by_whom_and_when(desk: Desk, letters: DeadLetters) -> None:
    """I7: the second replay of it is refused, also once the job has failed again."""
    letter = failed(desk)
    before = desk.now_ms()
    letters.replay(letter, "ada")
    seen = letters.get(letter)
    assert seen.is_replayed
    assert (seen.replayed_by, before <= (seen.replayed_at_ms or 0) <= desk.now_ms()) == ("ada", True)
    desk.run(desk.moves.fail("job", desk.begin(), "exhausted", "boom"))
    with pytest.raises(AlreadyReplayed, match="replayed already, by ada") as caught:
        letters.replay(letter, "bob")
    assert (caught.value.by, caught.value.at_ms) == ("ada", seen.replayed_at_ms)


def test_fail_replay_fail_again_is_two_records_of_which_the_second_may_be_replayed(
    desk: Desk, letters: DeadLetters
) -> None:
    """I8."""
    first = failed(desk)
    letters.replay(first, "ada")
    desk.run(desk.moves.fail("job", desk.begin(), "exhausted", "again"))
    second = f"dlq-{desk.queue}-job-2"
    assert letters.ids() == [second, first]
    letters.replay(second, "ada")
    assert (desk.state(), desk.record()["replays"]) == ("waiting", "2")


@pytest.mark.parametrize("gone", ["trimmed", "forgotten"])
def test_a_job_whose_record_was_trimmed_is_rebuilt(desk: Desk, letters: DeadLetters, gone: str) -> None:
    """I7: also when its id is no longer known."""
    letter = failed(desk, correlation_id="c-1", body=task_message(priority=7, nesting=2))
    added_at = desk.record()["added_at"]
    trim(desk)
    if gone == "forgotten":
        desk.client.delete(desk.keys.job("job"))
    letters.replay(letter, "ada")
    record = desk.record()
    assert desk.client.ttl(desk.keys.job("job")) == -1
    assert (record["name"], record["correlation_id"], record["added_at"]) == ("work", "c-1", added_at)
    assert (record["priority"], record["nesting"], "trimmed" in record) == ("7", "2", False)
    assert (desk.places(), desk.counters()) == (["wait"], (1, 1, 0))
    assert desk.claimed() == ["job"]


def test_replays_of_rebuilt_jobs_are_told_apart(desk: Desk, letters: DeadLetters) -> None:
    """What a run sends gets ids made from the number of replays: a number used before would be taken for a duplicate."""
    numbers = []
    letter = failed(desk)
    for turn in range(4):
        if turn != 2:
            trim(desk)
        letters.replay(letter, "ada")
        numbers.append(int(desk.record()["replays"]))
        desk.run(desk.moves.fail("job", desk.begin(), "exhausted", "again"))
        letter = letters.ids()[0]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0


@pytest.mark.parametrize("state", ["waiting", "delayed", "active", "reserved", "completed"])
def test_a_job_that_lives_or_has_completed_is_not_replayed(desk: Desk, letters: DeadLetters, state: str) -> None:
    letter = failed(desk)
    letters.replay_job("job", "ada")
    desk.client.hdel(desk.keys.dead_letter(letter), "replayed_at", "replayed_by")
    if state == "reserved":
        desk.reserve()
    elif state != "waiting":
        token = desk.begin()
        if state == "delayed":
            desk.run(desk.moves.retry("job", token, When(delay_ms=60_000)))
        elif state == "completed":
            desk.run(desk.moves.complete("job", token))
    before, places = desk.record(), desk.places()
    shown = "waiting" if state == "reserved" else state
    with pytest.raises(WrongState, match=f"job job is {shown}: only one that failed or was cancelled") as caught:
        letters.replay(letter, "ada")
    assert caught.value.state == shown
    assert (desk.record(), desk.places()) == (before, places)
    assert not letters.get(letter).is_replayed


def test_an_id_that_is_not_there_is_named(desk: Desk, letters: DeadLetters) -> None:
    with pytest.raises(DeadLetterNotFound, match="there is no dead letter dlq-x-1"):
        letters.replay("dlq-x-1", "ada")


def test_a_record_of_a_later_version_is_left_alone(desk: Desk, letters: DeadLetters) -> None:
    """What it means is not known here: nothing half-done."""
    letter = failed(desk)
    desk.client.hset(desk.keys.dead_letter(letter), "version", "3")
    for act in (lambda: letters.replay(letter, "ada"), lambda: letters.get(letter)):
        with pytest.raises(NewerDeadLetter, match="record version 3, known here: up to 2"):
            act()
    assert desk.state() == "failed"


def test_a_mark_left_by_another_job_of_the_same_id_is_none(desk: Desk, letters: DeadLetters) -> None:
    """An id that was forgotten may be sent again, fail after as many attempts, and so get a record of the same id."""
    letter = failed(desk)
    letters.replay(letter, "ada")
    desk.run(desk.moves.complete("job", desk.begin()))
    trim(desk, "completed")
    desk.client.delete(desk.keys.job("job"))
    desk.client.hset(desk.keys.dead_letter(letter), "replayed_at", desk.now_ms() - 1_000)
    assert failed(desk) == letter
    assert not letters.get(letter).is_replayed
    letters.replay(letter, "bob")
    assert letters.get(letter).replayed_by == "bob"


def test_an_expired_job_is_replayed_without_its_expiry(desk: Desk, letters: DeadLetters) -> None:
    """K21, SPEC 2: it left no dead letter; neither field nor header says that it has expired."""
    desk.add(body=task_message(expires="2020-01-01T00:00:00+00:00"), expires_at_ms=1)
    assert desk.claimed() == []
    letters.replay_job("job", "ada")
    assert headers(desk)["expires"] is None
    job = desk.claim().jobs[0]
    assert (job.id, job.expires, job.attempts_made) == ("job", False, 1)


def test_a_cancelled_job_is_replayed_and_not_cancelled_again(desk: Desk, letters: DeadLetters) -> None:
    token = desk.running(body=task_message())
    desk.run(desk.moves.cancel("job", "cancelled"))
    desk.run(desk.moves.release("job", token))
    assert desk.state() == "cancelled"
    letters.replay_job("job", "ada")
    assert desk.run(desk.moves.release("job", desk.begin())) == "waiting"


def test_replaying_a_job_marks_the_dead_letter_that_it_has(desk: Desk, letters: DeadLetters) -> None:
    letter = failed(desk)
    letters.replay_job("job", "ada")
    assert letters.get(letter).replayed_by == "ada"


def test_a_job_that_is_not_known_or_only_by_its_id_is_named(desk: Desk, letters: DeadLetters) -> None:
    failed(desk)
    trim(desk)
    for job_id in ("job", "nobody"):
        with pytest.raises(JobNotFound, match=f"no record of a job {job_id} is kept"):
            letters.replay_job(job_id, "ada")


def test_what_a_canvas_had_failed_with_is_forgotten(desk: Desk, letters: DeadLetters) -> None:
    token = desk.running(body=task_message())
    desk.run(desk.moves.fail("job", "replaced", "exhausted", "a step failed", nesting=1))
    assert desk.run(desk.moves.replace("job", token)) == "failed"
    letters.replay(letters.ids()[0], "ada")
    assert desk.run(desk.moves.replace("job", desk.begin())) == "ok"


def test_nobody_is_told_of_a_failure_that_was_made_good(desk: Desk, letters: DeadLetters) -> None:
    """The note that asks a worker to tell its callers goes with the failure."""
    token = desk.running(body=task_message())
    desk.run(desk.moves.fail("job", token, "malformed", "no", tell=True))
    letters.replay_job("job", "ada")
    assert desk.run(desk.moves.notes()) == []


def test_an_idle_worker_is_woken(desk: Desk, letters: DeadLetters) -> None:
    letter = failed(desk)
    desk.take_mark()
    letters.replay(letter, "ada")
    assert desk.marks() == 1


def test_a_replayed_job_goes_behind_those_that_wait(desk: Desk, letters: DeadLetters) -> None:
    letter = failed(desk)
    desk.add("other")
    letters.replay(letter, "ada")
    assert desk.listed("wait") == ["other", "job"]


def test_a_dry_run_says_what_would_be_and_changes_nothing(desk: Desk, letters: DeadLetters) -> None:
    first, second = failed(desk, "a"), failed(desk, "b")
    letters.replay(first, "ada")
    before = everything(desk)
    found = list(letters.replay_each([first, second, "dlq-x"], "bob", dry_run=True))
    assert [type(done.error) for done in found] == [AlreadyReplayed, type(None), DeadLetterNotFound]
    assert everything(desk) == before


def test_many_are_replayed_and_each_says_what_became_of_it(client: redis.Redis, queue_name: str) -> None:
    """I7: by filter; one that cannot be replayed keeps none of the others."""
    desk, letters = Desk(client, queue_name, dead_letters=1_000), DeadLetters(client, "qwk", Redactor.of(""))
    ids = [failed(desk, f"job-{n}") for n in range(250)]
    letters.replay(ids[7], "ada")
    desk.client.hset(desk.keys.dead_letter(ids[8]), "version", "9")
    done = list(letters.replay_each(letters.ids(LetterFilter(queue=desk.queue)), "ada"))
    assert [d.id for d in done] == ids[::-1]
    assert {d.id: type(d.error).__name__ for d in done if d.error} == {
        ids[7]: "AlreadyReplayed",
        ids[8]: "NewerDeadLetter",
    }
    assert len(desk.listed("wait")) == 249


def test_an_id_given_twice_is_replayed_once(desk: Desk, letters: DeadLetters) -> None:
    letter = failed(desk)
    assert list(letters.replay_each([letter, letter], "ada")) == [Done(letter)]


def test_a_rate_is_kept(desk: Desk, letters: DeadLetters) -> None:
    """I7: the first at once, then one each 50 ms."""
    ids = [failed(desk, f"job-{n}") for n in range(6)]
    watch = Stopwatch()
    assert len(list(letters.replay_each(ids, "ada", rate_per_s=20))) == 6
    assert watch.elapsed_ms >= 245


@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_rate_that_is_none_is_refused(letters: DeadLetters, rate: float) -> None:
    with pytest.raises(ValueError, match="rate: a number above 0"):
        list(letters.replay_each(["x"], "ada", rate_per_s=rate))


def test_a_message_that_is_none_is_replayed_as_it_is(desk: Desk, letters: DeadLetters) -> None:
    """What could not be read the first time cannot be mended here; it fails again by its own name."""
    letter = failed(desk, body="\x00 no message")
    letters.replay(letter, "ada")
    assert desk.record()["message"] == "\x00 no message"


@pytest.mark.parametrize("message", ["", "[]", "{}", '{"headers": [], "properties": {}}', "[" * 5_000])
def test_only_a_task_message_is_reset(message: str) -> None:
    assert Fresh.of(message) == Fresh(message, 0, 0)


def test_a_reset_leaves_body_and_other_headers_alone() -> None:
    message = task_message(
        priority=12, nesting=1, expires="x", eta="y", lang="py", at={"__type__": "date", "__value__": "d"}
    )
    fresh = Fresh.of(message.encode())
    was, now = json.loads(message), json.loads(fresh.body)
    assert (fresh.priority, fresh.nesting) == (9, 1)
    assert now.pop("headers") == {**was.pop("headers"), "retries": 0, "eta": None, "expires": None}
    assert now == was


def test_with_memory_full_replays_and_discards_go_on(own_redis: Any, queue_name: str) -> None:
    """H6: whoever makes room must not be kept from it by the lack of it."""
    server = own_redis(maxmemory="4mb")
    desk = Desk(server.client(), queue_name)
    letters = DeadLetters(desk.client, "qwk", Redactor.of(""))
    first, second = failed(desk, "a"), failed(desk, "b")
    desk.client.config_set("maxmemory", "1")
    with pytest.raises(redis.ResponseError, match="command not allowed when used memory"):
        desk.add("c")
    letters.replay(first, "ada")
    letters.discard(second)
    assert (desk.listed("wait"), letters.ids()) == (["a"], [first])
    desk.client.config_set("maxmemory", "0")


def test_a_job_that_moved_queue_is_replayed_where_it_failed(desk: Desk, letters: DeadLetters) -> None:
    token = desk.running(body=task_message())
    desk.run(desk.moves.retry("job", token, AT_ONCE, message=desk.message(queue="other", body=task_message())))
    desk.run(desk.moves.fail("job", desk.begin(queues=["other"]), "exhausted", "no"))
    letters.replay("dlq-other-job-2", "ada")
    assert desk.listed("wait", "other") == ["job"]
