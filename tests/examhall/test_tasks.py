"""The grading job in this process: what a second run finds, and what no run can mend. Real workers run it in tests/seeds."""

from __future__ import annotations

import pytest

from examhall.models import Attempt
from examhall.scoring_service import ScoringServer
from examhall.tasks import GradeAttempt, grade_attempt
from queue_kit import InvalidPayload, ResourceGone

pytestmark = pytest.mark.usefixtures("queue")


def run(attempt_id: str) -> int:
    return grade_attempt.apply(kwargs={"attempt_id": attempt_id}, throw=True).get()


def test_a_run_stores_the_score_and_a_second_one_asks_nobody(scoring: ScoringServer, attempt: Attempt) -> None:
    assert [run("a-5521"), run("a-5521")] == [71, 71]
    assert len(scoring.rehearsal.report()["calls"]) == 1
    attempt.refresh_from_db()
    assert (attempt.status, attempt.score) == ("graded", 71)


def test_the_service_hears_the_job_and_its_attempts(scoring: ScoringServer, attempt: Attempt) -> None:
    sent = grade_attempt.apply(kwargs={"attempt_id": "a-5521"}, task_id="j1")
    assert sent.get() == 71
    [call] = scoring.rehearsal.report()["calls"]
    assert (call["job"], call["attempts_made"]) == ("j1", "0")


def test_a_refusal_stores_nothing_and_the_retry_asks_again(scoring: ScoringServer, attempt: Attempt) -> None:
    scoring.rehearsal.tell(fail_next=1)
    grade_attempt.apply(kwargs={"attempt_id": "a-5521"})
    assert [call["answered"] for call in scoring.rehearsal.report()["calls"]] == [503, 200]
    attempt.refresh_from_db()
    assert attempt.score == 71


def test_an_attempt_that_is_gone_is_not_tried_again(attempt: Attempt) -> None:
    attempt.delete()
    with pytest.raises(ResourceGone, match="there is no attempt a-5521"):
        run("a-5521")


@pytest.mark.parametrize("attempt_id", ["", "5521", "a-", "a-5521; drop"])
def test_an_id_that_is_none_is_refused_before_it_is_sent(attempt_id: str) -> None:
    with pytest.raises(InvalidPayload, match="attempt_id"):
        grade_attempt.declared.dump({"attempt_id": attempt_id})


def test_the_ids_that_the_model_makes_are_accepted() -> None:
    made = Attempt._meta.get_field("public_id").get_default()
    assert GradeAttempt(attempt_id=made).attempt_id == made
