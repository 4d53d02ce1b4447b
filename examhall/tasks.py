"""The job of ExamHall. It may run more than once, so the attempt's row decides whether there is anything left to do."""

from pydantic import BaseModel, Field

from examhall.models import Attempt
from examhall.scoring import fetch_score
from queue_kit import ResourceGone, current_job, exponential, job


class GradeAttempt(BaseModel):
    attempt_id: str = Field(pattern=r"^a-[a-z0-9]+$")


@job("grade-attempt", queue="grading", attempts=3, backoff=exponential(1000), payload=GradeAttempt)
def grade_attempt(payload: GradeAttempt) -> int:
    """Fetch the attempt's score and store it; where one is stored already, return that."""
    attempt = Attempt.objects.select_related("exam").filter(public_id=payload.attempt_id).first()
    if attempt is None:
        raise ResourceGone(f"there is no attempt {payload.attempt_id}")
    if attempt.score is None:
        run = current_job()
        headers = {"X-Job-Id": run.id, "X-Job-Attempts-Made": str(run.attempts_made)}
        attempt.store_score(fetch_score(attempt, headers))
    return attempt.score
