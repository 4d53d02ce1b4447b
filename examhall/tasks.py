"""The jobs of ExamHall. They may run more than once, so the attempt's row decides whether there is anything left to do."""

from pydantic import AwareDatetime, BaseModel, Field

from examhall.mail import mail_score
from examhall.models import Attempt
from examhall.scoring import fetch_score
from examhall.submission import collect_paper, left_lying
from queue_kit import ResourceGone, current_job, exponential, job


class GradeAttempt(BaseModel):
    attempt_id: str = Field(pattern=r"^a-[a-z0-9]+$")


@job("grade-attempt", queue="grading", attempts=3, backoff=exponential(1000), payload=GradeAttempt)
def grade_attempt(payload: GradeAttempt) -> int:
    """Fetch the attempt's score, store it and have it mailed; a run before may have come as far as storing it."""
    attempt = Attempt.objects.select_related("exam").filter(public_id=payload.attempt_id).first()
    if attempt is None:
        raise ResourceGone(f"there is no attempt {payload.attempt_id}")
    if attempt.score is None:
        run = current_job()
        headers = {"X-Job-Id": run.id, "X-Job-Attempts-Made": str(run.attempts_made)}
        attempt.store_score(fetch_score(attempt, headers))
    if attempt.email:
        mail_score(attempt)
    return attempt.score


class CollectPapers(BaseModel):
    rung_before: AwareDatetime


@job("papers.collect", queue="maintenance", payload=CollectPapers)
def collect_papers(payload: CollectPapers) -> int:
    """Hand in what lies open after the bell, and return how much that was; a second run finds nothing."""
    run, collected = current_job(), 0
    for attempt in left_lying(payload.rung_before):
        run.raise_if_cancelled()
        collected += collect_paper(attempt)
    return collected
