"""The four seed cases, each played over HTTP against the running site and compared with the seed's own transcript."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from deploy.demo.sight import Sight
from deploy.demo.stack import Stack
from deploy.demo.transcript import Line
from deploy.demo.waiting import stays, wait_until
from queue_kit import exponential
from queue_kit.rules.backoff import delay_ms

PLAIN = "added waiting active completed"
TWICE_DELAYED = "added waiting active delayed waiting active delayed waiting active completed"
STALLED = "added waiting active waiting stalled active completed"
DELAYED = "added delayed waiting active completed"

# How long a count must last before it is believed, against one seen in passing.
LASTS_S = 0.3


def submit(stack: Stack) -> Iterator[Line]:
    """4.1 ExamHall: submit returns before grading."""
    sight = Sight(stack)
    sight.scoring(hold=True)
    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(stack.web.post, "/examhall/attempts/a-5520/submit?mode=before")
        sight.await_held(1)
        yield Line("before: grading still running, response sent", "false", str(stays(before.done, LASTS_S)).lower())
        after = stack.web.post("/examhall/attempts/a-5521/submit?mode=after")
        job = sight.job_of_attempt("a-5521")
        yield Line("after", '202 {"attemptId":"a-5521","status":"grading"}', str(after))
        yield Line("job finished when 202 arrived", "false", str(sight.finished(job)).lower())
        sight.scoring(hold=False)
        yield Line("before, once grading ends", '200 {"score":71}', str(before.result()))
    yield Line("after: job", "completed", sight.final_state(job))
    yield Line("events", PLAIN, sight.events(job))


def two_failures(stack: Stack) -> Iterator[Line]:
    """4.2 ExamHall: two failures, then a score."""
    sight = Sight(stack)
    sight.scoring(fail_next=2)
    stack.rehearsal.post("/examhall/attempts/a-5522/submit")
    job = sight.job_of_attempt("a-5522")
    state = sight.final_state(job)
    yield Line("events", TWICE_DELAYED, sight.events(job))
    yield Line("attemptsMade seen by each run", "0,1,2", ",".join(sight.attempts_made_seen(job)))
    yield Line("final", "completed", state)
    yield Line("attemptsMade", "3", str(sight.view(job).attempts_made))
    backoff = exponential(100)
    waits = ", ".join(str(delay_ms(backoff, attempts_made)) for attempts_made in (1, 2, 3))
    yield Line("backoff before attempts 2,3,4 (the rule)", "100, 200, 400 ms", f"{waits} ms")


def killed_after_rendering(stack: Stack) -> Iterator[Line]:
    """4.3 Ticketing: a seat map rendered twice.

    The edge cache does not answer, so the run has stored its drawing and has not returned; there its worker is killed, whole.
    """
    sight = Sight(stack)
    stack.edge.answering.clear()
    job = sight.hold_seat(stack.web, "C7")["renderJob"]
    wait_until(lambda: stack.edge.purges_of(job), "the map is stored and the cache has been told")
    sight.kill_holder(job)
    stack.edge.answering.set()
    sight.spare_worker()
    state = sight.final_state(job)
    yield Line("events", STALLED, sight.events(job))
    yield Line("handler starts (killed run + rerun)", "2", str(len(stack.edge.purges_of(job))))
    rerun = stack.edge.purges_of(job)[-1]
    yield Line("the rerun saw attemptsMade", "0", str(rerun.attempts_made))
    yield Line("stalledCounter", "1", str(rerun.stalled_count))
    yield Line("final", "completed", state)


def delayed_release(stack: Stack) -> Iterator[Line]:
    """4.4 Ticketing: a delayed release."""
    sight = Sight(stack)
    job = sight.hold_seat(stack.rehearsal, "D4")["releaseJob"]
    yield Line("release-hold state right after add", "delayed", sight.view(job).state)
    state = sight.final_state(job)
    yield Line("events", DELAYED, sight.events(job))
    yield Line("final", "completed", state)


def full_worker(stack: Stack, concurrency: int = 4, first_attempt: int = 5531) -> Iterator[Line]:
    """4.4 One worker's slots: six jobs held on an unanswered call."""
    sight = Sight(stack)
    sight.scoring(hold=True)
    try:
        for number in range(first_attempt, first_attempt + 6):
            stack.web.post(f"/examhall/attempts/a-{number}/submit")
        sight.await_held(concurrency)
        says = f"one worker, concurrency {concurrency}, 6 jobs held on an unanswered call"
        slots = stays(lambda: sight.slots("grading"), LASTS_S)
        yield Line(says, f"active {concurrency} · waiting {6 - concurrency}", slots)
    finally:
        sight.scoring(hold=False)
    wait_until(lambda: sight.slots("grading") == "active 0 · waiting 0", "the six are graded")


CASES = [
    ("4.1 ExamHall: submit returns before grading", submit),
    ("4.2 ExamHall: two failures, then a score", two_failures),
    ("4.3 Ticketing: a seat map rendered twice", killed_after_rendering),
    ("4.4 Ticketing: a delayed release", delayed_release),
    ("4.4 One worker's slots", full_worker),
]
