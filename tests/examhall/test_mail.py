"""Mail jobs: one mail a job, one Message-ID a mail, and what each answer of a mail server means to a retry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.apps import apps

from examhall.mail import SendEmail, compose, deliver, mail_score, message_id, send_email, subject
from examhall.models import Attempt
from queue_kit import InvalidPayload, NonRetryableError, TransientError, install, open_census
from queue_kit.django.conf import celery_app
from tests.support.databases import database, database_url, postgres  # noqa: F401
from tests.support.fixtures import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.smtp_sink import SmtpSink
from tests.support.waiting import wait_until

MAIL = {"to": "ada@example.org", "subject": "Your score", "text": "71 of 100."}


@pytest.fixture
def sink(settings: Any) -> Iterator[SmtpSink]:
    """A mail server, and the site's settings for it."""
    with SmtpSink() as sink:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
        yield sink


def run(job_id: str = "j1", **fields: str) -> None:
    send_email.apply(kwargs={**MAIL, **fields}, task_id=job_id, throw=True).get()


@pytest.mark.django_db(transaction=True)
def test_a_mail_is_sent_with_an_id_that_follows_from_the_job(sink: SmtpSink) -> None:
    run()
    (mail,) = sink.mails
    assert (mail["To"], mail["Subject"], mail["From"]) == ("ada@example.org", "Your score", "ExamHall <exams@examhall.example>")
    assert mail.get_payload().splitlines() == ["71 of 100."]
    assert mail["Message-ID"] == message_id("j1")
    assert message_id("j1").endswith("@examhall.example>")
    assert message_id("j1") != message_id("j2")


@pytest.mark.django_db(transaction=True)
def test_a_second_run_sends_nothing(sink: SmtpSink) -> None:
    """SPEC 6: one a completed job."""
    for job_id in ("j1", "j1", "j2"):
        run(job_id)
    assert [mail["Message-ID"] for mail in sink.mails] == [message_id("j1"), message_id("j2")]


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ("550 no such user", NonRetryableError, "the recipient was refused: the mail server answered 550"),
        ("452 mailbox full", TransientError, "the recipient was refused: the mail server answered 452"),
        ("421 closing", TransientError, "the mail server"),
    ],
)
def test_a_refusal_is_for_good_or_for_now(sink: SmtpSink, answer: str, error: type[Exception], says: str) -> None:
    sink.refuse = [answer]
    with pytest.raises(error, match=says):
        deliver(compose(SendEmail(**MAIL), "<a@b>"))
    assert sink.mails == []


def test_no_mail_server_is_transient(settings: Any, unused_port: int) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", unused_port
    with pytest.raises(TransientError, match="the mail server did not take it"):
        deliver(compose(SendEmail(**MAIL), "<a@b>"))


@pytest.mark.django_db(transaction=True)
def test_what_was_not_sent_is_sent_by_the_next_run(sink: SmtpSink) -> None:
    """SPEC 6: the mark goes with the failure."""
    sink.refuse = ["550 no such user"]
    with pytest.raises(NonRetryableError):
        run()
    run()
    assert len(sink.mails) == 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"to": "nobody"}, "to"), ({"to": "a@example.org\nBcc: b@example.org"}, "to"), ({"subject": ""}, "subject"),
     ({"subject": "a\r\nBcc: b@example.org"}, "subject"), ({"subject": "s" * 201}, "subject"), ({"text": "t" * 10_001}, "text")],
)  # fmt: skip
def test_what_is_no_mail_is_refused_before_it_is_sent(fields: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidPayload, match=rf"email.send: {named}: "):
        send_email.declared.dump({**MAIL, **fields})


@pytest.mark.django_db(transaction=True)
def test_a_score_asked_for_twice_is_one_job_and_one_mail(queue: RedisServer, attempt: Attempt, sink: SmtpSink) -> None:
    attempt.store_score(71)
    first, second = (mail_score(attempt) for _ in range(2))
    assert first == second
    mail = SendEmail(**payload_of(first))
    assert mail.text == f"{attempt.candidate}, your score in {attempt.exam.title} is 71 of 100."
    for _ in range(2):
        send_email.apply(kwargs=mail.model_dump(), task_id=first, throw=True).get()
    attempt.refresh_from_db()
    assert (len(sink.mails), sink.mails[0]["To"], attempt.mailed_at is not None) == (1, "cleo.dunn@example.org", True)


@pytest.mark.parametrize("title", ["x" * 200, "Glass\r\nBcc: all@example.org"])
def test_no_title_of_an_exam_keeps_its_scores_from_being_mailed(title: str) -> None:
    SendEmail(to="ada@example.org", subject=subject(title), text="71")
    assert subject(title).endswith(": your score")


def payload_of(job_id: str) -> dict[str, str]:
    """What a job was sent."""
    view = open_census(celery_app()).job(job_id)
    assert view is not None
    kwargs: dict[str, str] = json.loads(json.loads(view.message)["body"])[1]
    return kwargs


@pytest.mark.crash
def test_a_worker_killed_between_accepted_and_commit_sends_again_under_the_same_id(
    database: str, database_url: str, start_worker: StartWorker, redis_server: RedisServer  # noqa: F811
) -> None:
    """SPEC 6. Given a mail that the server has accepted, killed before the commit; then a second one with its Message-ID,
    and the job completes: a mailbox sees one."""
    with SmtpSink() as sink:
        env = {
            "DJANGO_SETTINGS_MODULE": "deploy.settings", "DATABASE_URL": database_url, "REDIS_URL": redis_server.url(),
            "EMAIL_HOST": "127.0.0.1", "EMAIL_PORT": str(sink.port),
            "WORKER_LOCK_DURATION_MS": "1000", "WORKER_STALLED_INTERVAL_MS": "200",
        }  # fmt: skip
        options: dict[str, Any] = {"queues": ["email"], "env": env, "pool": "solo"}
        sink.holding.set()
        worker = start_worker("deploy", **options)
        app = sender(redis_server)
        job_id = app.send_task("email.send", kwargs=MAIL, queue="email").id
        wait_until(lambda: len(sink.mails) == 1, says="the mail is accepted")
        worker.kill_all()
        sink.holding.clear()
        start_worker("deploy", **options)
        census = open_census(app)
        wait_until(lambda: census.job(job_id).state == "completed", says="the job completes", within_s=20)
        assert [mail["Message-ID"] for mail in sink.mails] == [message_id(job_id)] * 2
        assert census.job(job_id).stalled_count == 1


def sender(server: RedisServer) -> Any:
    """An app that sends to this Redis; the site's own knows another."""
    app = Celery("sender", broker=server.url(), set_as_current=False)
    install(app)
    return app


@pytest.mark.crash
@pytest.mark.django_db(transaction=True)
def test_a_grading_that_was_killed_after_sending_its_mail_mails_once(
    attempt: Attempt, site: Any, site_worker: Any, sink: SmtpSink, tmp_path: Path
) -> None:
    """SPEC 6. Given a score that is stored and its mail sent for, killed before the grading returned; then it runs again, and
    there is one mail, one mark and one mail job."""
    lease = {"WORKER_LOCK_DURATION_MS": "1000", "WORKER_STALLED_INTERVAL_MS": "200"}
    env = {"EMAIL_HOST": "127.0.0.1", "EMAIL_PORT": str(sink.port), "CRASH_FOLDER": str(tmp_path), **lease}
    site.post("/examhall/attempts/a-5521/submit")
    attempt.refresh_from_db()
    victim = site_worker("tests.apps.site_app", **env, CRASH_AT="kill:function left")
    wait_until(lambda: not victim.running, says="the worker is dead", within_s=40)
    site_worker("tests.apps.site_app", **env)
    census = open_census(celery_app())
    job = wait_until(lambda: ended(census, attempt.grading_job), says="the grading ends", within_s=40)
    wait_until(lambda: Attempt.objects.get(pk=attempt.pk).mailed_at, says="the mail is sent", within_s=20)
    assert (job.state, job.attempts_started, job.stalled_count) == ("completed", 2, 1)
    assert [mail["To"] for mail in sink.mails] == ["cleo.dunn@example.org"]
    assert apps.get_model("queue_kit", "Claim").objects.filter(job_name="email.send").count() == 1
    assert sum(census.counts("email").values()) == 1


def ended(census: Any, job_id: str) -> Any:
    job = census.job(job_id)
    return job if job.state.is_final else None
