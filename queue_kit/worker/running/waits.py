"""How long a failed job waits, by its policy and by its error; a function of the project's own is asked here, and nowhere else,
so that one that fails cannot take the error of the job with it.
"""

from __future__ import annotations

import logging
import random
from typing import Any

from queue_kit.policy import BackoffFunction, RetryPolicy, exponential
from queue_kit.rules.backoff import LONGEST_MS, delay_ms
from queue_kit.settings import Settings

logger = logging.getLogger(__name__)


def wait_ms(policy: RetryPolicy, attempts_made: int, error: BaseException | None, settings: Settings) -> int | None:
    """Milliseconds until the next attempt; ``None`` when the policy's own function says that there shall be none.

    An error that names a ``retry_after_ms`` is waited for at least so long.
    """
    if not callable(policy.backoff):
        return max(delay_ms(policy.backoff, attempts_made, random.random()), _asked_for(error))
    answer = _ask(policy.backoff, error or Exception("no error is known"), attempts_made)
    if answer == "stop":
        return None
    if answer is not None:
        return min(round(answer), LONGEST_MS)
    return delay_ms(exponential(settings.job_backoff_delay_ms), attempts_made)


def _asked_for(error: BaseException | None) -> int:
    asked = getattr(error, "retry_after_ms", None)
    return min(int(asked), LONGEST_MS) if isinstance(asked, int | float) and asked > 0 else 0


def _ask(function: BackoffFunction, error: BaseException, attempts_made: int) -> Any:
    """What the function answers; ``None`` for what is no answer, so that the job still waits as the settings say."""
    try:
        answer: Any = function(error, attempts_made)
    except Exception:
        logger.exception("the backoff function %r failed; the job waits as the settings say", function)
        return None
    if answer == "stop" or (isinstance(answer, int | float) and not isinstance(answer, bool) and 0 <= answer < float("inf")):
        return answer
    logger.error("the backoff function %r must answer milliseconds or 'stop', not %r", function, answer)
    return None
