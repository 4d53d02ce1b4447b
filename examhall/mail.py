"""Mail, and how it is safe to send it twice: a mark in the database, and a Message-ID that stays the same.

Without it a grading job that runs again would write to its candidate again. The mark commits with the run's transaction, so a
run after that sends nothing. A run killed between the mail server's "accepted" and the commit sends once more; both mails then
bear one Message-ID, by which a mailbox knows them for one.
"""

import hashlib
import smtplib
from email.utils import parseaddr

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone
from pydantic import BaseModel, Field, field_validator

from examhall.models import Attempt
from queue_kit import NonRetryableError, TransientError, current_job, enqueue, exponential, job
from queue_kit.django import once

# From here on a code of SMTP is about the mail itself, and says no for good (RFC 5321, 4.2.1).
PERMANENT = 500
LONGEST_SUBJECT = 200


class SendEmail(BaseModel):
    to: str = Field(max_length=254)
    # A line break would end the header, and whatever follows would be a header of the sender's own.
    subject: str = Field(min_length=1, max_length=LONGEST_SUBJECT, pattern=r"^[^\r\n]*$")
    text: str = Field(max_length=10_000)
    # The attempt that it tells of, which then shows when it was sent.
    attempt_id: str = Field(default="", max_length=50)

    @field_validator("to")
    @classmethod
    def is_an_address(cls, to: str) -> str:
        try:
            validate_email(to)
        except ValidationError as wrong:
            raise ValueError("an e-mail address is needed") from wrong
        return to


@job("email.send", queue="email", payload=SendEmail)
def send_email(payload: SendEmail) -> None:
    """Send a mail, unless a run of this job, or of another with its idempotency key, has."""
    key = current_job().idempotency_key
    with transaction.atomic():
        if once(key):
            if payload.attempt_id:
                Attempt.objects.filter(public_id=payload.attempt_id).update(mailed_at=timezone.now())
            # The last thing before the commit: the less there is between the two, the less often a kill falls there.
            deliver(compose(payload, message_id(key)))


def mail_score(attempt: Attempt) -> str:
    """Have a candidate told the score of a graded attempt, once a sitting however often it is asked for; return the job's id."""
    sitting = attempt.submitted_at.timestamp() if attempt.submitted_at else 0
    mail = {"to": attempt.email, "subject": subject(attempt.exam.title), "text": score_text(attempt)}
    key = f"score:{attempt.public_id}:{sitting:.0f}"
    return enqueue("email.send", {**mail, "attempt_id": attempt.public_id}, idempotency_key=key, backoff=exponential(5_000)).id


def subject(title: str) -> str:
    """Return the subject for an exam whatever its title: one line, and no longer than a subject may be."""
    says = ": your score"
    return " ".join(title.split())[: LONGEST_SUBJECT - len(says)] + says


def score_text(attempt: Attempt) -> str:
    return f"{attempt.candidate}, your score in {attempt.exam.title} is {attempt.score} of 100."


def message_id(key: str) -> str:
    """Return the Message-ID of a mail: the same for the same key, and telling nobody the key."""
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2]
    return f"<{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}>"


def compose(mail: SendEmail, mail_id: str) -> EmailMessage:
    return EmailMessage(mail.subject, mail.text, to=[mail.to], headers={"Message-ID": mail_id})


def deliver(message: EmailMessage) -> None:
    """Hand a mail to the server.

    Raises NonRetryableError when the server says no for good, TransientError when it may take the mail another time.
    """
    try:
        message.send()
    except smtplib.SMTPRecipientsRefused as refused:
        codes = [code for code, _ in refused.recipients.values()]
        raise refusal(min(codes), "the recipient was refused") from refused
    except smtplib.SMTPResponseException as refused:
        raise refusal(refused.smtp_code, "the mail was refused") from refused
    except (OSError, smtplib.SMTPException) as unreachable:
        raise TransientError(f"the mail server did not take it: {unreachable}") from unreachable


def refusal(code: int, what: str) -> Exception:
    kind = NonRetryableError if code >= PERMANENT else TransientError
    return kind(f"{what}: the mail server answered {code}")
