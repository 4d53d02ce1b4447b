"""Dead letters as people read them: found by filter, counted, decoded, redacted, exported and discarded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from queue_kit.errors import DeadLetterNotFound, NoDeadLetterMatches
from queue_kit.rules.payload import Payload
from queue_kit.rules.redaction import Redactor
from queue_kit.store import AT_ONCE, When
from queue_kit.store.dead_letter_moves import bury
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.letters import LetterFilter
from tests.store.desk import Desk
from tests.store.test_replay import failed, trim
from tests.support.redis_server import RedisServer

PARAMETERS: dict[str, Sequence[str]] = {"log-in": ("user", "password")}


@pytest.fixture
def letters(desk: Desk) -> DeadLetters:
    return DeadLetters(desk.client, "qwk", Redactor.of("password,token"), lambda name: PARAMETERS.get(name, ()))


def sent(*args: Any, **kwargs: Any) -> str:
    """A task message with these arguments."""
    message = {
        "body": json.dumps([args, kwargs, {}]), "content-type": "application/json", "content-encoding": "utf-8",
        "headers": {"task": "work"}, "properties": {"body_encoding": "utf-8"},
    }  # fmt: skip
    return json.dumps(message)


def buried(desk: Desk, job_id: str, at_ms: int, **fields: Any) -> str:
    """Write a record as the script does, at a time of its own."""
    queue = str(fields.pop("queue", desk.queue))
    letter_id = f"dlq-{queue}-{job_id}-1"
    record = {
        "version": 1, "queue": queue, "job": job_id, "name": "work", "message": sent(), "reason": "boom",
        "error_class": "ValueError", "stack": "", "cause": "exhausted", "attempts_made": 1, "attempts_started": 1,
        "stalled_count": 0, "correlation_id": "", "added_at": at_ms - 5, "failed_at": at_ms,
    }  # fmt: skip
    pipe = desk.client.pipeline(transaction=False)
    pipe.sadd(desk.keys.queues, queue)
    pipe.zadd(desk.key("dead", queue), {letter_id: at_ms})
    pipe.hset(desk.keys.dead_letter(letter_id), mapping={**record, **fields})
    pipe.execute()
    return letter_id


def test_one_is_read_whole(desk: Desk, letters: DeadLetters) -> None:
    """I1, for people."""
    token = desk.running(body=sent(1, user="ada", password="hunter2"), name="mail", correlation_id="c-1")
    call = desk.moves.fail("job", token, "timeout", "no hunter2", error_class="JobTimeoutError", stack="line\nhunter2")
    desk.run(call)
    letter = letters.get(f"dlq-{desk.queue}-job-1")
    job = desk.record()
    assert (letter.job_id, letter.name, letter.queue, letter.correlation_id) == ("job", "mail", desk.queue, "c-1")
    assert (letter.cause, letter.error_class) == ("timeout", "JobTimeoutError")
    assert (letter.reason, letter.stack) == ("no [redacted]", "line\n[redacted]")
    assert letter.payload == Payload([1], {"user": "ada", "password": "[redacted]"})
    assert (letter.attempts_made, letter.attempts_started, letter.stalled_count) == (1, 1, 0)
    assert (letter.added_at_ms, letter.failed_at_ms) == (int(job["added_at"]), int(job["finished_at"]))
    assert (letter.replayed_at_ms, letter.replayed_by, letter.is_newer) == (None, "", False)


def test_what_is_stored_stays_whole(desk: Desk, letters: DeadLetters) -> None:
    """SPEC 8: a replay needs it."""
    buried(desk, "a", 10, message=sent(password="hunter2"))
    assert "hunter2" not in "".join(letters.export())
    assert "hunter2" in desk.client.hget(desk.keys.dead_letter(f"dlq-{desk.queue}-a-1"), "message")


def test_a_secret_among_positional_arguments_is_known_by_the_tasks_parameters(desk: Desk, letters: DeadLetters) -> None:
    letter = letters.get(buried(desk, "a", 10, name="log-in", message=sent("ada", "hunter2", "x"), reason="no hunter2"))
    assert (letter.payload.args, letter.reason) == (["ada", "[redacted]", "x"], "no [redacted]")


def test_a_payload_that_is_no_json_is_described(desk: Desk, letters: DeadLetters) -> None:
    assert letters.get(buried(desk, "a", 10, message="nonsense token=abcd")).payload == Payload(
        note="no task message, 19 characters: nonsense token=[redacted]"
    )


def test_bytes_that_are_no_text_hide_nothing_else(desk: Desk, redis_server: RedisServer) -> None:
    letter_id = buried(desk, "a", 10, reason=b"no \xff text")
    with redis_server.client(decode_responses=False) as client:
        assert DeadLetters(client, "qwk", Redactor.of("")).get(letter_id).reason == "no \ufffd text"


FILTERED = [
    (LetterFilter(), "edcba"),
    (LetterFilter(queue="other"), "e"),
    (LetterFilter(name="mail"), "b"),
    (LetterFilter(cause="stalled"), "c"),
    (LetterFilter(error_class="KeyError"), "a"),
    (LetterFilter(since_ms=20), "edcb"),
    (LetterFilter(until_ms=20), "a"),
    (LetterFilter(since_ms=20, until_ms=40), "cb"),
    (LetterFilter(since_ms=20, error_class="KeyError"), ""),
    (LetterFilter(text="C-9"), "d"),
    (LetterFilter(text="disk FULL"), "c"),
    (LetterFilter(text="-a-1"), "a"),
    (LetterFilter(text="hunter2"), ""),
    (LetterFilter(replayed=True), "d"),
    (LetterFilter(replayed=False), "ecba"),
    (LetterFilter(replayed=False, cause="exhausted", queue="other"), "e"),
    (LetterFilter(queue="nowhere"), ""),
]


@pytest.fixture
def five(desk: Desk) -> None:
    """Five dead letters, a to e, at 10 to 50 ms."""
    buried(desk, "a", 10, error_class="KeyError", reason="password=hunter2")
    buried(desk, "b", 20, name="mail")
    buried(desk, "c", 30, cause="stalled", reason="Disk full")
    buried(desk, "d", 40, correlation_id="c-9", replayed_at=45, replayed_by="ada")
    buried(desk, "e", 50, queue="other")


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(("wanted", "jobs"), FILTERED, ids=[str(wanted) for wanted, _ in FILTERED])
def test_a_filter_finds_those_it_means_newest_first(letters: DeadLetters, wanted: LetterFilter, jobs: str) -> None:
    """SPEC 8. A secret cannot be found by looking for it."""
    page = letters.page(wanted)
    assert ("".join(letter.job_id for letter in page.letters), page.total) == (jobs, len(jobs))
    assert [letter.id for letter in letters.each(wanted)] == letters.ids(wanted)


@pytest.mark.usefixtures("five")
def test_pages_follow_each_other(letters: DeadLetters) -> None:
    pages = [letters.page(offset=offset, limit=2) for offset in (0, 2, 4, 6)]
    assert ["".join(letter.job_id for letter in page.letters) for page in pages] == ["ed", "cb", "a", ""]
    assert {page.total for page in pages} == {5}


@pytest.mark.usefixtures("five")
def test_counts_by_queue_cause_name_and_class(desk: Desk, letters: DeadLetters) -> None:
    assert letters.tally() == {
        "queue": Counter({desk.queue: 4, "other": 1}), "cause": Counter(exhausted=4, stalled=1),
        "name": Counter(work=4, mail=1), "error_class": Counter(ValueError=4, KeyError=1),
    }  # fmt: skip
    assert letters.tally(LetterFilter(text="full"))["cause"] == Counter(stalled=1)


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize("wanted", [LetterFilter(), LetterFilter(cause="exhausted"), LetterFilter(queue="nowhere")])
def test_a_survey_is_a_page_with_its_counts(letters: DeadLetters, wanted: LetterFilter) -> None:
    assert letters.survey(wanted, offset=1, limit=2) == (letters.page(wanted, offset=1, limit=2), letters.tally(wanted))


@pytest.mark.usefixtures("five")
def test_a_filter_that_matches_nothing_says_so(letters: DeadLetters) -> None:
    with pytest.raises(NoDeadLetterMatches, match="no dead letter matches the filter: name nothing, since_ms 5"):
        letters.require(LetterFilter(name="nothing", since_ms=5))
    assert len(letters.require(LetterFilter())) == 5


@pytest.mark.parametrize(
    ("given", "says"),
    [({"cause": "exausted"}, "cause: did you mean exhausted"), ({"cause": "zzz"}, "cause: one of exhausted, "),
     ({"since_ms": 5, "until_ms": 5}, "since: a time before until")],
)  # fmt: skip
def test_a_filter_that_cannot_be_meant_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LetterFilter(**given)


@pytest.mark.usefixtures("five")
def test_an_export_is_a_line_of_json_each(letters: DeadLetters) -> None:
    lines = [json.loads(line) for line in letters.export(LetterFilter(name="work", until_ms=40))]
    assert [(line["job_id"], line["cause"], line["failed_at_ms"]) for line in lines] == [
        ("c", "stalled", 30), ("a", "exhausted", 10),
    ]  # fmt: skip
    assert lines[0]["payload"] == {"args": [], "kwargs": {}, "note": ""}
    assert lines[1]["reason"] == "password=[redacted]"


def test_one_of_a_later_version_stands_in_lists_and_says_what_it_is(desk: Desk, letters: DeadLetters) -> None:
    """Nothing is hidden, nothing is guessed."""
    buried(desk, "a", 10, version=3, message='{"not": "for us"}')
    (letter,) = letters.page().letters
    assert (letter.is_newer, letter.version, letter.job_id) == (True, 3, "a")
    assert letter.payload == Payload(note="a later version of queue_kit has written this dead letter")


@pytest.mark.parametrize(
    "fields", [{"version": "x"}, {"failed_at": ""}, {"attempts_made": "many"}, {"added_at": "1e999"}]
)
def test_a_damaged_record_is_listed_all_the_same(desk: Desk, letters: DeadLetters, fields: dict[str, str]) -> None:
    buried(desk, "a", 10, **fields)
    assert [letter.job_id for letter in letters.page().letters] == ["a"]
    assert sum(letters.tally()["cause"].values()) == 1


def test_a_discarded_one_is_gone_and_its_job_is_not(desk: Desk, letters: DeadLetters) -> None:
    letter = failed(desk)
    letters.discard(letter)
    assert (letters.ids(), desk.state(), desk.client.keys("qwk:dead:*")) == ([], "failed", [])
    with pytest.raises(DeadLetterNotFound, match=f"there is no dead letter {letter}"):
        letters.discard(letter)


def test_many_are_discarded_in_few_trips(desk: Desk, letters: DeadLetters) -> None:
    ids = [buried(desk, str(n), n) for n in range(250)]
    done = list(letters.discard_each([*ids, "dlq-x"]))
    assert [d.id for d in done if d.error] == ["dlq-x"]
    assert letters.ids() == []


def test_one_whose_record_is_lost_is_skipped_and_can_be_discarded(desk: Desk, letters: DeadLetters) -> None:
    letter = buried(desk, "a", 10)
    desk.client.delete(desk.keys.dead_letter(letter))
    assert (letters.page().letters, list(letters.export()), letters.tally()["cause"]) == ([], [], Counter())
    letters.discard(letter)
    assert letters.ids() == []


def test_five_thousand_are_listed_in_few_round_trips(desk: Desk, letters: DeadLetters) -> None:
    for n in range(5_000):
        buried(desk, str(n), n + 1)
    before = calls(desk)
    page = letters.page(LetterFilter(cause="exhausted", text="boom"))
    assert (len(page.letters), page.total) == (100, 5_000)
    assert calls(desk) - before < 1_000  # one trip a record would be five thousand


def calls(desk: Desk) -> int:
    """Reads of Redis from its clients' sockets so far: one or a few for each round trip, more for a long one."""
    return int(desk.client.info("stats")["total_reads_processed"])


# -- what no script has written ----------------------------------------------------------------------------------------


def test_a_failure_without_a_record_gets_one_and_keeps_it(desk: Desk, letters: DeadLetters) -> None:
    """I5: what could not be written then is written later; the second time it is there already."""
    letter = failed(desk)
    letters.discard(letter)
    for outcome in ("buried", "known"):
        assert desk.run(bury("qwk", "job", 100, stack="s")).outcome == outcome
    read = letters.get(letter)
    assert (read.cause, read.reason, read.failed_at_ms) == ("exhausted", "boom", int(desk.record()["finished_at"]))


@pytest.mark.parametrize(("asked", "outcome"), [(False, "none"), (True, "buried")])
def test_an_expired_job_is_buried_if_asked(desk: Desk, letters: DeadLetters, asked: bool, outcome: str) -> None:
    """I9, SPEC 2."""
    desk.add(expires_at_ms=1)
    desk.claim()
    assert desk.run(bury("qwk", "job", 100, expired=asked, reason="it has expired")).outcome == outcome
    assert [(letter.cause, letter.reason) for letter in letters.each()] == [("expired", "it has expired")] * asked


@pytest.mark.parametrize("state", ["waiting", "delayed", "active"])
def test_a_job_that_lives_is_not_buried(desk: Desk, state: str) -> None:
    """B12: a run that lost its lease has nothing to say of it."""
    desk.add(when=When(delay_ms=60_000) if state == "delayed" else AT_ONCE)
    if state == "active":
        desk.begin()
    assert desk.run(bury("qwk", "job", 100)).outcome == "live"


def test_completed_cancelled_trimmed_and_unknown_jobs_are_not_buried(desk: Desk, letters: DeadLetters) -> None:
    desk.run(desk.moves.complete("done", desk.running("done")))
    desk.add("stopped")
    desk.run(desk.moves.cancel("stopped", "cancelled"))
    letters.discard(failed(desk, "old"))
    trim(desk)
    outcomes = [
        desk.run(bury("qwk", job_id, 100, expired=True)).outcome for job_id in ("done", "stopped", "old", "who")
    ]
    assert outcomes == ["none"] * 4


def test_one_that_made_room_for_newer_ones_does_not_come_back(desk: Desk, letters: DeadLetters) -> None:
    """I3: nor is it counted twice."""
    ids = [failed(desk, f"job-{n}") for n in range(4)]
    letters.discard_each(ids[:1])
    for letter in ids[:2]:
        letters.discard(letter)
    assert desk.run(bury("qwk", "job-0", 2)).outcome == "none"
    assert letters.ids() == ids[:1:-1]


def test_what_keeps_a_record_from_being_written_is_answered(desk: Desk, letters: DeadLetters) -> None:
    """I5."""
    letters.discard(failed(desk))
    desk.client.set(desk.key("dead"), "in the way")
    answer = desk.run(bury("qwk", "job", 100))
    assert (answer.outcome, "WRONGTYPE" in answer.trouble) == ("unwritten", True)
    desk.client.delete(desk.key("dead"))
