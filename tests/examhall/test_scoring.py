"""Asking the scoring service: what each of its answers means to a retry. The service is the real one."""

from __future__ import annotations

import pytest

from examhall.models import Attempt, Question
from examhall.scoring import fetch_score, read_score
from examhall.scoring_service import ScoringServer
from queue_kit import NonRetryableError, TransientError


def test_the_demo_attempt_scores_71(scoring: ScoringServer, attempt: Attempt) -> None:
    assert fetch_score(attempt) == 71


def test_a_better_answer_scores_more(scoring: ScoringServer, attempt: Attempt) -> None:
    attempt.answers["6"] = "b"
    assert fetch_score(attempt) == 84


def test_the_service_hears_which_run_of_which_job_asks(scoring: ScoringServer, attempt: Attempt) -> None:
    fetch_score(attempt, {"X-Job-Id": "j1", "X-Job-Attempts-Made": "2"})
    expected = {"attempt": "a-5521", "job": "j1", "attempts_made": "2", "answered": 200}
    assert expected in scoring.rehearsal.report()["calls"]


def test_a_refusal_that_passes_is_transient_and_the_next_call_is_answered(
    scoring: ScoringServer, attempt: Attempt
) -> None:
    scoring.rehearsal.tell(fail_next=1)
    with pytest.raises(TransientError, match="503"):
        fetch_score(attempt)
    assert fetch_score(attempt) == 71


def test_a_request_that_the_service_cannot_use_is_not_asked_again(scoring: ScoringServer, attempt: Attempt) -> None:
    Question.objects.update(right="-")
    with pytest.raises(NonRetryableError, match="400"):
        fetch_score(attempt)


def test_no_answer_in_time_is_transient(scoring: ScoringServer, attempt: Attempt, settings) -> None:
    settings.EXAMHALL_SCORING_TIMEOUT_S = 0.05
    scoring.rehearsal.tell(hold=True)
    with pytest.raises(TransientError, match="did not answer"):
        fetch_score(attempt)


def test_no_service_is_transient(attempt: Attempt, settings, unused_port: int) -> None:
    settings.EXAMHALL_SCORING_URL = f"http://127.0.0.1:{unused_port}"
    with pytest.raises(TransientError, match="did not answer"):
        fetch_score(attempt)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"score": "71"}', b'{"score": 101}', b'{"score": true}', b'{"score": null}']
)
def test_an_answer_that_is_no_score_is_transient(body: bytes) -> None:
    with pytest.raises(TransientError, match="score"):
        read_score(body)


def test_a_score_is_read() -> None:
    assert read_score(b'{"score": 0}') == 0
