"""Lets a job that may run twice have one effect; without it a worker that dies between commit and settle would do it again.

The mark is a row with a unique key, inserted in the transaction of the effect: both commit, or neither does. A second run at the
same instant waits at the row until the first has committed or rolled back; the database sees to that.
"""

from __future__ import annotations

from datetime import datetime

from django.apps import apps
from django.db import IntegrityError, connections, router, transaction

from queue_kit.errors import NotInTransaction
from queue_kit.worker.running.current import current_job

#: A caller's idempotency key of 200 characters, with the name of its job before it.
_LONGEST_KEY = 300


def once(key: str | None = None, *, using: str | None = None) -> bool:
    """Say whether what follows is to be done: True the first time, False once a transaction that was told True has committed.

    ::

        with transaction.atomic():
            if once(f"welcome:{user.pk}"):
                user.credit += 10
                user.save()

    At most one effect a key, exactly one a completed job. What is outside the database (a mail, a payment) is not undone by a
    rollback: a run killed between that effect and the commit repeats it, so give it an id that stays the same.

    :param key: of its own for each effect, 1 to 300 characters, within the name of the job; without it the job's id is the key.
    :param using: alias of the database whose transaction this is; the one that the effect writes to.
    :raises NotInTransaction: no transaction is open there.
    :raises NoCurrentJob: outside a run.
    :raises ValueError: a key that is empty or too long.
    """
    run = current_job()
    key = run.id if key is None else key
    if not isinstance(key, str) or not 1 <= len(key) <= _LONGEST_KEY:
        raise ValueError(f"key: a text of 1 to {_LONGEST_KEY} characters is needed")
    claims = apps.get_model("queue_kit", "Claim")
    alias = using or router.db_for_write(claims)
    if not connections[alias].in_atomic_block:
        raise NotInTransaction(
            f"once({key!r}): open a transaction on database {alias!r} around it and its effect (transaction.atomic())"
        )
    own = claims._base_manager.using(alias)
    try:
        with transaction.atomic(using=alias):  # a savepoint: the caller's transaction outlives a key that is taken
            own.create(job_name=run.name, key=key, job_id=run.id)
    except IntegrityError:
        if not own.filter(job_name=run.name, key=key).exists():
            raise
        return False
    return True


def forget_claims(before: datetime, *, using: str | None = None) -> int:
    """Delete the marks made before an instant and return how many there were.

    What they stood for may be done again afterwards: keep them for longer than any job may still be replayed.
    """
    claims = apps.get_model("queue_kit", "Claim")
    deleted, _ = claims._base_manager.using(using or router.db_for_write(claims)).filter(claimed_at__lt=before).delete()
    return int(deleted)
