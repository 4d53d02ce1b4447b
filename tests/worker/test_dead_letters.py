"""Dead letters with real workers: what ends for good leaves one record, which says why, and a replay makes it good."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import signals
from kombu import Queue

from queue_kit import AlreadyReplayed, UnsupportedOperation
from queue_kit.errors import NonRetryableError
from queue_kit.rules.outcome import Failure
from queue_kit.states import Cause, State
from queue_kit.store import Ledger, Message, Room, Traits
from queue_kit.store.letters import DeadLetter, LetterFilter
from queue_kit.worker.settling.counts import DEAD_LETTERS_UNWRITTEN, Counts
from queue_kit.worker.settling.dead_letter import DeadLetterHandler
from tests.support.fixtures import OwnRedis, StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import stays_true, wait_until
from tests.worker.letters_stage import LettersStage

#: Signals are looked up half a second after they were sent; a little longer, and nothing more is to come.
LOOKED_UP_S = 1.2


@pytest.fixture
def stage(redis_server: RedisServer, queue_name: str, tmp_path: Path, start_worker: StartWorker) -> LettersStage:
    """A stage on the shared Redis."""
    return LettersStage(redis_server.url(), queue_name, tmp_path, start_worker)


def raw(stage: LettersStage, message: str, job_id: str, name: str = "") -> str:
    """Put a message of any kind into the queue, as a producer of another make would."""
    kit = stage.app.queue_kit
    client = stage.app.connection_for_write().open_client(1_000)
    Ledger(client).run(kit.moves.add(job_id, Message(message, stage.queue, name)))
    client.close()
    return job_id


def written(letter: DeadLetter) -> tuple[str, int]:
    return letter.cause, letter.attempts_made


# -- what the record says -----------------------------------------------------------------------------------------------


def test_the_record_says_what_failed_how_and_when(stage: LettersStage) -> None:
    """I1, A3."""
    stage.worker()
    job_id = stage.post("fail", kwargs={"password": "hunter2", "user": "ada"}, correlation_id="req-7")
    letter = stage.letter_of(job_id)
    job = stage.job(job_id)
    assert (letter.id, letter.queue, letter.name) == (f"dlq-{stage.queue}-{job_id}-2", stage.queue, "letters.fail")
    assert (letter.cause, letter.error_class, letter.correlation_id) == ("exhausted", "ValueError", "req-7")
    assert letter.reason == "ValueError: boom [redacted]"
    assert letter.payload.kwargs == {"password": "[redacted]", "user": "ada"}
    assert (letter.attempts_made, letter.attempts_started, letter.stalled_count) == (2, 2, 0)
    assert (letter.added_at_ms, letter.failed_at_ms) == (job.added_at_ms, job.finished_at_ms)
    assert 'raise ValueError("boom " + str(payload.get("password", "")))\nValueError: boom [redacted]' in letter.stack
    assert stage.trace(job_id)[-3:] == ["failed", "retries-exhausted", "dead-lettered"]


@pytest.fixture(scope="module")
def causes(engine: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LettersStage]:
    """A stage with one worker, shared by the tests of what each cause leaves; no two of their jobs meet."""
    from tests.support.worker_process import WorkerProcess  # noqa: PLC0415 - the fixture of one worker a test is no use here

    folder, workers = tmp_path_factory.mktemp("causes"), list[WorkerProcess]()

    def start(app: str, *, broker_url: str, **options: Any) -> WorkerProcess:
        workers.append(WorkerProcess(app, broker_url, folder=folder, **options))
        return workers[-1].start()

    with RedisServer() as server:
        stage = LettersStage(server.url(), "causes", folder, start)
        stage.worker(concurrency=2, env={"DEAD_LETTER_EXPIRED": "1"})
        yield stage
        for worker in workers:
            worker.kill_all()


PAST = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
NO_HEADER = json.dumps({"body": "[]", "headers": {}, "properties": {"body_encoding": "utf-8"}})


def of_task(name: str, body: str) -> str:
    """A message as Celery writes it; its own sender would find what is wrong with the payload first."""
    return json.dumps(
        {"body": body, "content-type": "application/json", "content-encoding": "utf-8", "headers": {"task": name, "id": name},
         "properties": {"body_encoding": "utf-8"}}
    )  # fmt: skip


NOT_JSON = of_task("letters.quick", "{")
INVALID = of_task("letters.order", '[[], {"number": 0}, {}]')
CAUSES: dict[str, tuple[Any, str, str, int, str]] = {
    # how it is sent; then cause, class, attempts made, and what the reason says
    "exhausted": (lambda s: s.send("fail"), "exhausted", "ValueError", 2, "boom"),
    "plain": (lambda s: s.send("plain"), "exhausted", "KeyError", 2, "plain"),
    "non-retryable": (lambda s: s.send("refuse"), "non_retryable", "NonRetryableError", 1, "never"),
    "invalid": (lambda s: raw(s, INVALID, "letters.order", "letters.order"), "invalid_payload", "InvalidPayload", 1, "number: "),
    "unknown": (lambda s: s.send("nothing"), "unknown_task", "NotRegistered", 1, "letters.nothing"),
    "timeout": (lambda s: s.send("block"), "timeout", "TimeLimitExceeded", 1, "(1"),
    "no header": (lambda s: raw(s, NO_HEADER, "m1"), "malformed", "InvalidTaskError", 1, "`task` header"),
    "no message": (lambda s: raw(s, "nonsense", "m2"), "malformed", "JSONDecodeError", 1, "cannot be read"),
    "no json": (lambda s: raw(s, NOT_JSON, "letters.quick", "letters.quick"), "malformed", "DecodeError", 1, "decoded"),
    "stalled": (lambda s: s.send("die"), "stalled", "JobStalledError", 1, "more than allowable limit"),
    "lost": (lambda s: s.send("once"), "lost", "JobLostError", 1, "at most once"),
    "expired": (lambda s: s.post("quick", expires=PAST), "expired", "", 1, "expired before it ran"),
}


@pytest.mark.crash
@pytest.mark.parametrize("how", CAUSES)
def test_each_way_to_end_leaves_a_record_with_its_own_cause(causes: LettersStage, how: str) -> None:
    """I9, A8, K6: the worker lives and goes on."""
    send, cause, error_class, attempts, says = CAUSES[how]
    letter = causes.letter_of(send(causes))
    assert (letter.cause, letter.error_class, letter.attempts_made) == (cause, error_class, attempts)
    assert says in letter.reason
    after = causes.send("quick")
    assert causes.await_end(after).state is State.COMPLETED
    assert causes.trace(letter.job_id).count("dead-lettered") == 1


# -- once, bounded, never about itself ------------------------------------------------------------------------------------


@pytest.fixture
def handler(stage: LettersStage) -> Iterator[DeadLetterHandler]:
    """A handler of this process, on real signals and the real Redis."""
    connection = stage.app.connection_for_write()
    handler = DeadLetterHandler(lambda: connection.open_client(1_000), stage.app.queue_kit, Counts())
    handler.start()
    yield handler
    handler.stop()
    handler.ledger.client.close()


def fail_by_hand(stage: LettersStage, job_id: str) -> str:
    """Let a job fail as a worker would; return the id of its record."""
    ledger, moves = Ledger(stage.app.connection_for_write().open_client(1_000)), stage.app.queue_kit.moves
    ledger.run(moves.add(job_id, Message("{}", stage.queue, "letters.fail")))
    (job,) = ledger.run(moves.claim("w", f"w.{job_id}", Room(1, 1, 1), Traits(), [stage.queue])).jobs
    ledger.run(moves.fail(job_id, job.token, "exhausted", "boom", stack="the stack"))
    ledger.client.close()
    return f"dlq-{stage.queue}-{job_id}-1"


def tell_by_signal(stage: LettersStage, job_id: str) -> None:
    """Say that a job has failed, as Celery does."""
    try:
        raise ValueError("told")
    except ValueError as error:
        signals.task_failure.send(
            sender=stage.app.tasks["letters.fail"], task_id=job_id, exception=error, args=(), kwargs={}, traceback=None,
            einfo=None,
        )  # fmt: skip


def test_the_same_failure_told_three_times_is_one_record(stage: LettersStage, handler: DeadLetterHandler) -> None:
    """I2: by the script, by a signal and once more by a signal."""
    letter_id = fail_by_hand(stage, "job")
    for _ in range(3):
        tell_by_signal(stage, "job")
    handler.flush()
    assert stage.letters.ids() == [letter_id]
    assert (stage.letters.get(letter_id).reason, stage.trace("job").count("dead-lettered")) == ("boom", 1)


def test_a_failure_that_only_a_signal_tells_of_gets_its_record(stage: LettersStage, handler: DeadLetterHandler) -> None:
    """SPEC 8: at once after it."""
    letter_id = fail_by_hand(stage, "job")
    stage.letters.discard(letter_id)
    tell_by_signal(stage, "job")
    letter = stage.letter_of("job")
    assert (letter.id, letter.cause, letter.reason, letter.error_class) == (letter_id, "exhausted", "boom", "ValueError")


def test_a_signal_about_a_job_that_runs_elsewhere_leaves_nothing(stage: LettersStage, handler: DeadLetterHandler) -> None:
    """B12: a run that lost its lease has failed for nobody."""
    job_id = stage.send("quick")
    tell_by_signal(stage, job_id)
    tell_by_signal(stage, "a job of another broker")
    handler.flush()
    stays_true(lambda: not stage.letters.ids(), says="there is no dead letter", for_s=LOOKED_UP_S)


def test_what_a_child_of_the_pool_hears_is_left_to_its_parent(stage: LettersStage, handler: DeadLetterHandler) -> None:
    pid = os.fork()
    if pid == 0:
        handler.tell("job", Failure("", "", "", Cause.EXHAUSTED, False))
        os._exit(1 if handler._told else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_newest_stay_and_evictions_are_counted(stage: LettersStage, client: Any) -> None:
    """I3: bound 3, six failures; what made room does not come back."""
    stage.worker(concurrency=1, env={"DEAD_LETTER_MAX_ENTRIES": "3"}, pool="threads")
    jobs = [stage.send("refuse") for _ in range(6)]
    stage.await_ends(jobs)
    newest = [f"dlq-{stage.queue}-{job}-1" for job in reversed(jobs[3:])]
    stays_true(lambda: stage.letters.ids() == newest, says="the newest three are there", for_s=LOOKED_UP_S)
    assert client.hget(f"qwk:q:{stage.queue}:counts", "dead_letter_evicted") == "3"
    assert sum(stage.trace(job).count("dead-lettered") for job in jobs) == 6


def test_nothing_is_sent_to_the_queue_that_is_reserved(stage: LettersStage) -> None:
    """I4: said by name, before Redis."""
    task = stage.app.tasks["letters.quick"]
    says = "queue dead-letter: the name is reserved"
    with pytest.raises(UnsupportedOperation, match=says):
        task.apply_async(queue="dead-letter")
    with pytest.raises(UnsupportedOperation, match=says):
        stage.app.send_task("letters.quick", queue=Queue("dead-letter"))
    with pytest.raises(NonRetryableError, match=says):
        (stage.app.signature("letters.quick") | stage.app.signature("letters.quick")).apply_async(queue="dead-letter")
    with pytest.raises(UnsupportedOperation, match=says):
        stage.app.tasks["letters.misplaced"].delay()
    assert stage.census.queues() == []


@pytest.mark.crash
def test_no_worker_takes_a_job_from_the_reserved_queue(stage: LettersStage) -> None:
    """I4: one that got there all the same is left where it is, and never recorded."""
    worker = stage.worker(wait=False, queues=[stage.queue, "dead-letter"])
    assert worker.wait_exit(within_s=40) != 0
    assert "queue dead-letter: leave it out" in worker.logs()
    worker = stage.worker()
    stage.queue, queue = "dead-letter", stage.queue
    raw(stage, "nonsense", "job")
    stage.queue = queue
    stage.app.control.add_consumer("dead-letter")
    worker.wait_for_log("queue dead-letter is not consumed: the name is reserved")
    assert stage.await_end(stage.send("quick")).state is State.COMPLETED
    assert (stage.job("job").state, stage.letters.ids()) == (State.WAITING, [])


# -- when it cannot be written ---------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_written_is_said_counted_and_written_later(stage: LettersStage, client: Any) -> None:
    """I5: never raised; the job is settled, the worker goes on, and the record follows."""
    dead = f"qwk:q:{stage.queue}:dead"
    client.set(dead, "in the way")
    worker = stage.worker()
    job_id = stage.send("refuse")
    assert stage.await_end(job_id).state is State.FAILED
    worker.wait_for_log(f"the dead letter of job letters.refuse[{job_id}] could not be written")
    assert stage.await_end(stage.send("quick")).state is State.COMPLETED
    client.delete(dead)
    assert written(stage.letter_of(job_id)) == ("non_retryable", 1)
    worker.wait_for_log(f"job {job_id} has its dead letter now")


def test_a_record_that_was_not_written_is_counted(stage: LettersStage, handler: DeadLetterHandler) -> None:
    """I5: by what this process alone can count."""
    handler.unwritten(None, "job", "no room")
    assert dict(handler._counts.read()) == {(DEAD_LETTERS_UNWRITTEN, "", ""): 1}


@pytest.mark.crash
def test_records_that_are_due_are_written_before_the_worker_ends(stage: LettersStage, client: Any) -> None:
    """G6: one that could not be written while the worker was ending already, and one that comes last of all."""
    dead = f"qwk:q:{stage.queue}:dead"
    client.set(dead, "in the way")
    worker = stage.worker(concurrency=2)
    first, last = stage.send("gated", gate="first"), stage.send("gated", gate="last")
    stage.await_starts(first)
    stage.await_starts(last)
    worker.sigterm()
    stage.open("first")
    worker.wait_for_log(f"the dead letter of job letters.gated[{first}] could not be written")
    client.delete(dead)
    stage.open("last")
    assert worker.wait_exit() == 0
    assert {letter.job_id for letter in stage.letters.each()} == {first, last}


POINTS = ["settle queued", "settle sending", "settle sent", "settle answered"]


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_no_kill_comes_between_a_failure_and_its_record(stage: LettersStage, point: str) -> None:
    """I6. Given a job that fails for good, killed around its settle; then it is failed with its record, or runs again."""
    worker = stage.worker(pool="solo", at=f"kill:{point}")
    job_id = stage.send("refuse")
    assert worker.wait_exit() == -signal.SIGKILL
    state, recorded = stage.job(job_id).state, len(stage.letters.ids())
    # Its warden may have given it back by now.
    assert (state, recorded) in ((State.FAILED, 1), (State.ACTIVE, 0), (State.WAITING, 0))
    stage.worker(pool="solo")
    assert stage.await_end(job_id).state is State.FAILED
    assert [letter.job_id for letter in stage.letters.each()] == [job_id]


# -- replay ----------------------------------------------------------------------------------------------------------------


def test_a_replayed_job_runs_again_under_the_same_ids_and_once(stage: LettersStage) -> None:
    """I7, I8: fail, replay, fail again, replay: the same job, two records, all attempts each time."""
    stage.worker()
    job_id = stage.post("fail", kwargs={"mended": "now"}, correlation_id="req-7")
    first = stage.letter_of(job_id)
    stage.letters.replay(first.id, "ada")
    stage.await_letters(2)
    with pytest.raises(AlreadyReplayed, match="by ada"):
        stage.letters.replay(first.id, "bob")
    stage.mend("now")
    second = stage.letters.page().letters[0]
    stage.letters.replay(second.id, "ada")
    assert stage.await_end(job_id).state is State.COMPLETED
    assert stage.counters(job_id) == (5, 5, 0)
    assert {second.id, first.id} == {f"dlq-{stage.queue}-{job_id}-2", f"dlq-{stage.queue}-{job_id}-4"}
    assert {letter.correlation_id for letter in (first, second)} | {stage.job(job_id).correlation_id} == {"req-7"}
    assert [start["attempts_made"] for start in stage.book("start", job_id)] == [0, 1, 2, 3, 4]


def test_a_job_whose_record_was_trimmed_is_replayed(stage: LettersStage) -> None:
    """I7."""
    stage.worker(env={"JOB_REMOVE_ON_FAIL_COUNT": "0"})
    job_id = stage.send("fail", mended="now")
    letter = stage.letter_of(job_id)
    wait_until(lambda: stage.job(job_id).trimmed, says="the record is trimmed")
    stage.mend("now")
    stage.letters.replay(letter.id, "ada")
    assert stage.await_end(job_id).state is State.COMPLETED
    assert (stage.counters(job_id), stage.job(job_id).name) == ((3, 3, 0), "letters.fail")


def test_many_are_replayed_by_filter_at_a_rate(stage: LettersStage) -> None:
    """I7: the worker sees them come at that rate."""
    stage.worker()
    jobs = [stage.send("fail", mended="now") for _ in range(5)]
    other = stage.send("refuse")
    stage.await_letters(6)
    stage.mend("now")
    ids = stage.letters.require(LetterFilter(name="letters.fail"))
    assert all(done.error is None for done in stage.letters.replay_each(ids, "ada", rate_per_s=10))
    assert {job.state for job in stage.await_ends(jobs)} == {State.COMPLETED}
    waits = [event.at_ms for event in stage.census.events(stage.queue) if event.fields.get("prev") == "failed"]
    assert all(100 * nth - 5 <= at - waits[0] for nth, at in enumerate(waits))
    assert stage.job(other).state is State.FAILED


@pytest.mark.crash
def test_a_job_that_killed_its_worker_is_replayed_once_that_is_mended(stage: LettersStage) -> None:
    """B5."""
    stage.worker()
    job_id = stage.send("die", mended="now")
    letter = stage.letter_of(job_id)
    assert (letter.cause, stage.counters(job_id)) == ("stalled", (1, 2, 2))
    stage.mend("now")
    stage.letters.replay(letter.id, "ada")
    assert stage.await_end(job_id).state is State.COMPLETED
    assert stage.counters(job_id) == (2, 3, 2)


def test_an_expired_job_is_replayed_on_the_worker_that_saw_it_expire(stage: LettersStage) -> None:
    """K21: seen in the queue by the claim, and after the claim by the worker itself. Both have left a dead letter, since the
    setting asks for it."""
    ahead = ["--without-gossip", "--without-mingle", "--prefetch-multiplier", "4"]
    stage.worker(concurrency=1, options=ahead, env={"DEAD_LETTER_EXPIRED": "1"})
    early = stage.post("quick", expires=PAST)
    assert stage.await_end(early).cause == "expired"
    held = stage.send("gated", gate="g")
    stage.await_starts(held)
    late = stage.post("quick", expires=(datetime.now(UTC) + timedelta(seconds=1)).isoformat())
    wait_until(lambda: stage.job(late).reserved, says="the worker has taken it ahead")
    wait_until(lambda: datetime.now(UTC).timestamp() > stage_expiry(stage, late), says="it has expired")
    stage.open("g")
    assert stage.await_end(late).cause == "expired"
    assert stage.starts(early) + stage.starts(late) == 0
    assert [written(stage.letter_of(job_id)) for job_id in (early, late)] == [("expired", 1)] * 2
    for job_id in (early, late):
        stage.letters.replay_job(job_id, "ada")
        assert stage.await_end(job_id).state is State.COMPLETED
        assert (stage.counters(job_id), stage.starts(job_id)) == ((2, 1, 0), 1)
        assert stage.letter_of(job_id).replayed_by == "ada"


def stage_expiry(stage: LettersStage, job_id: str) -> float:
    """When a job expires, as its message says."""
    return datetime.fromisoformat(json.loads(stage.job(job_id).message)["headers"]["expires"]).timestamp()


@pytest.mark.crash
def test_a_replay_survives_the_loss_of_every_worker(own_redis: OwnRedis, stage: LettersStage) -> None:
    """I7. Given a replayed job, killed before it ran; then the next worker runs it."""
    worker = stage.worker()
    job_id = stage.send("fail", mended="now")
    letter = stage.letter_of(job_id)
    worker.kill_all()
    stage.mend("now")
    stage.letters.replay(letter.id, "ada")
    stage.worker()
    assert stage.await_end(job_id).state is State.COMPLETED
