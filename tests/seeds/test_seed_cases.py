"""The seed cases: both apps over HTTP, with real worker processes, a real Redis and a real SIGKILL.

The demo plays the same cases; here each value is written out once more, so that a change of the demo cannot loosen a case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.demo.cases import delayed_release, full_worker, killed_after_rendering, submit, two_failures
from deploy.demo.stack import Stack
from deploy.demo.transcript import Line
from tests.seeds.conftest import StartSiteWorker

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


def seen_in(lines: Iterator[Line]) -> dict[str, str]:
    return {line.what: line.seen for line in lines}


def test_submit_answers_after_the_grading_before_and_at_once_after(
    stack: Stack, start_site_worker: StartSiteWorker
) -> None:
    """S1 and S2: the old request waits for a held grading, the new one answers 202 while its job is unfinished."""
    start_site_worker(3)
    assert seen_in(submit(stack)) == {
        "before: grading still running, response sent": "false",
        "after": '202 {"attemptId":"a-5521","status":"grading"}',
        "job finished when 202 arrived": "false",
        "before, once grading ends": '200 {"score":71}',
        "after: job": "completed",
        "events": "added waiting active completed",
    }


def test_two_failures_and_a_score_are_three_attempts_of_one_job(
    stack: Stack, start_site_worker: StartSiteWorker
) -> None:
    """S3: the scoring service refuses twice, then answers; four attempts allowed, backoff from 100 ms."""
    start_site_worker(3)
    assert seen_in(two_failures(stack)) == {
        "events": "added waiting active delayed waiting active delayed waiting active completed",
        "attemptsMade seen by each run": "0,1,2",
        "final": "completed",
        "attemptsMade": "3",
        "backoff before attempts 2,3,4 (the rule)": "100, 200, 400 ms",
    }


def test_a_worker_killed_after_rendering_leaves_a_stall_and_one_more_run(
    stack: Stack, start_site_worker: StartSiteWorker
) -> None:
    """S4. Given a map drawn and stored, killed before the run returned; then the job runs once more and completes."""
    start_site_worker(3)
    assert seen_in(killed_after_rendering(stack)) == {
        "events": "added waiting active waiting stalled active completed",
        "handler starts (killed run + rerun)": "2",
        "the rerun saw attemptsMade": "0",
        "stalledCounter": "1",
        "final": "completed",
    }


def test_the_release_of_a_hold_is_delayed_and_then_runs(stack: Stack, start_site_worker: StartSiteWorker) -> None:
    """S5: delayed right after it was added, promoted when due, completed."""
    start_site_worker(1)
    assert seen_in(delayed_release(stack)) == {
        "release-hold state right after add": "delayed",
        "events": "added delayed waiting active completed",
        "final": "completed",
    }


@pytest.mark.parametrize(("concurrency", "first_attempt"), [(4, 5531), (3, 5537)])
def test_a_worker_runs_no_more_jobs_than_it_has_slots(
    stack: Stack, start_site_worker: StartSiteWorker, concurrency: int, first_attempt: int
) -> None:
    """S6: six jobs held on an unanswered call; four slots run four, three run three, the others wait."""
    start_site_worker(concurrency)
    [slots] = seen_in(full_worker(stack, concurrency, first_attempt)).values()
    assert slots == {4: "active 4 · waiting 2", 3: "active 3 · waiting 3"}[concurrency]
