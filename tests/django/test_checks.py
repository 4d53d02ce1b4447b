"""Django's system checks: each unsafe setting by its name, with why and the fix, and nothing of Redis."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.apps import apps
from django.core import checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from kombu import Queue

from deploy import celery_app
from queue_kit.django import install
from queue_kit.django.checks import IDS, check_deployment, check_project
from tests.worker.sending import current

DOCTOR = Path(__file__).resolve().parents[2] / "queue_kit" / "observe" / "doctor"

Shop = Callable[..., Celery]


@pytest.fixture
def shop() -> Iterator[Shop]:
    """The app of a project, in the place of the site's; nobody listens where its broker should be."""
    with current(celery_app):

        def make(**conf: Any) -> Celery:
            app = Celery("shop", broker="redis://user:hunter2@127.0.0.1:1/0", set_as_current=False)
            app.config_from_object({f"CELERY_{name.upper()}": value for name, value in conf.items()}, namespace="CELERY")
            install(app)
            app.set_current()
            return app

        yield make


def found(*ignored: str) -> list[tuple[str, str]]:
    return [(message.id or "", message.msg) for message in check_project() if message.id not in ignored]


def test_wrong_entries_of_the_dict_are_all_named_and_no_value_is_echoed(settings: Any) -> None:
    settings.QUEUE_KIT = {"JOB_ATEMPTS": 3, "JOB_TIMEOUT_MS": "hunter2"}
    assert found() == [
        ("queue_kit.E001", "QUEUE_KIT: JOB_ATEMPTS: did you mean JOB_ATTEMPTS?."),
        ("queue_kit.E001", "QUEUE_KIT: JOB_TIMEOUT_MS: a whole number from 100 to 3600000 is needed."),
    ]
    assert check_deployment() == []
    with pytest.raises(SystemCheckError, match=r"queue_kit\.E001"):
        call_command("check")


def test_a_project_without_an_app_is_told_what_to_write(settings: Any) -> None:
    settings.QUEUE_KIT = {"CELERY_APP": "deploy.celery.nothing"}
    [message] = check_project()
    assert (message.id, message.is_serious()) == ("queue_kit.E002", True)
    assert "queue_kit.django.install(app)" in str(message.hint)
    with current(Celery("stock", set_as_current=False)):
        settings.QUEUE_KIT = {}
        assert [id_ for id_, _ in found()] == ["queue_kit.E002"]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("task_protocol", 1, "jobs need task protocol 2"),
        ("task_acks_on_failure", False, "on Redis it deletes what fails"),
        ("task_retry_on_worker_lost", True, "a lost worker is a stall here"),
        ("broker_url", "amqp://guest:hunter2@localhost", "queue_kit keeps jobs in Redis"),
    ],
)
def test_what_no_worker_boots_with_is_an_error(shop: Shop, name: str, value: Any, why: str) -> None:
    app = shop(**{name: value})
    if name == "broker_url":
        app.conf.broker_url = value
    [(id_, says)] = [one for one in found("queue_kit.W013") if one[0].startswith("queue_kit.E")]
    assert id_ == "queue_kit.E003"
    assert says.startswith(f"CELERY_{name.upper()}: ")
    assert why in says
    assert "hunter2" not in says


@pytest.mark.parametrize(
    ("conf", "id_", "name"),
    [
        ({"task_always_eager": True}, "W001", "CELERY_TASK_ALWAYS_EAGER"),
        ({"task_acks_late": False}, "W002", "CELERY_TASK_ACKS_LATE"),
        ({"worker_prefetch_multiplier": 0}, "W004", "CELERY_WORKER_PREFETCH_MULTIPLIER"),
        ({"broker_connection_max_retries": 3}, "W005", "CELERY_BROKER_CONNECTION_MAX_RETRIES"),
        ({"broker_connection_retry_on_startup": False}, "W006", "CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP"),
        ({"accept_content": ["pickle"]}, "W007", "CELERY_ACCEPT_CONTENT"),
        ({"task_serializer": "pickle"}, "W008", "CELERY_TASK_SERIALIZER"),
        ({"result_serializer": "pickle"}, "W009", "CELERY_RESULT_SERIALIZER"),
        ({"result_backend": "redis://127.0.0.1:1/1", "result_expires": None}, "W010", "CELERY_RESULT_EXPIRES"),
        ({"task_soft_time_limit": 9, "task_time_limit": 9}, "W011", "CELERY_TASK_SOFT_TIME_LIMIT"),
        ({"task_queues": [Queue("celery")]}, "W013", "CELERY_TASK_QUEUES"),
        ({"task_queues": [Queue("celery")], "task_create_missing_queues": False}, "W023", "CELERY_TASK_CREATE_MISSING_QUEUES"),
        ({"beat_schedule": {"x": {"task": "gone", "schedule": 1}}}, "W014", "CELERY_BEAT_SCHEDULE"),
        ({"task_time_limit": 100}, "W017", "SHUTDOWN_TIMEOUT_MS"),
    ],
)
def test_what_costs_jobs_is_a_warning_with_its_fix(shop: Shop, conf: dict[str, Any], id_: str, name: str) -> None:
    shop(**conf)
    [message] = [one for one in check_project() if one.id == f"queue_kit.{id_}"]
    assert not message.is_serious()
    assert re.match(rf"{name}\b", message.msg)
    assert message.hint


@pytest.mark.parametrize(
    ("setting", "value", "id_"),
    [
        ("WORKER_LOCK_DURATION_MS", 2000, "W015"),
        ("WORKER_STALLED_INTERVAL_MS", 60_000, "W016"),
        ("SHUTDOWN_TIMEOUT_MS", 1000, "W017"),
        ("ENQUEUE_TIMEOUT_MS", 30_000, "W018"),
        ("JOB_KNOWN_AFTER_REMOVAL_MS", 1000, "W019"),
        ("WORKER_INFERRED_DEATH_MS", 1250, "W025"),
    ],
)
def test_settings_of_queue_kit_that_cost_jobs_are_warnings(
    shop: Shop, settings: Any, setting: str, value: int, id_: str
) -> None:
    settings.QUEUE_KIT = {setting: value}
    shop()
    assert [says for found_id, says in found() if found_id == f"queue_kit.{id_}" and says.startswith(setting)]


def test_tasks_that_may_be_lost_or_go_round_for_ever_are_named(shop: Shop) -> None:
    app = shop()

    def charge() -> None: ...

    app.task(name="a.charge", acks_late=False, shared=False)(charge)
    app.task(name="a.forever", autoretry_for=(Exception,), max_retries=None, shared=False)(charge)
    assert {("queue_kit.W003", True), ("queue_kit.W012", True)} <= {(id_, "a." in says) for id_, says in found()}


def test_tasks_that_cannot_be_imported_keep_no_project_from_its_commands(shop: Shop) -> None:
    """Such as from `migrate`, which makes the table that they ask for."""
    shop(imports=["no.such.module"])
    [message] = check_project()
    assert (message.id, message.is_serious()) == ("queue_kit.W024", False)
    assert "ModuleNotFoundError: No module named 'no'" in message.msg


@pytest.mark.parametrize(
    ("given", "ids"),
    [({"PRODUCTION": True}, []), ({"PRODUCTION": False}, ["W021"]), ({"PRODUCTION": True, "ALLOW_EVICTION": True}, ["W022"])],
)
def test_for_a_deployment_eviction_is_a_warning(settings: Any, given: dict[str, Any], ids: list[str]) -> None:
    """H7."""
    settings.QUEUE_KIT = given
    assert [message.id for message in check_deployment()] == [f"queue_kit.{id_}" for id_ in ids]


@pytest.mark.usefixtures("own_tasks_alone")
def test_a_finding_can_be_silenced_by_its_id(shop: Shop, settings: Any) -> None:
    shop(task_acks_late=False)
    settings.SILENCED_SYSTEM_CHECKS = ["queue_kit.W002", "queue_kit.W013"]
    serious = [one for one in check_project() if not one.is_silenced()]
    assert [one.id for one in serious] == []


def test_django_runs_them() -> None:
    """That the site has nothing to be told stands in `tests/deploy/test_production.py`."""
    registered = {check.__name__ for check in checks.registry.registry.get_checks(include_deployment_checks=True)}
    assert {"check_project", "check_deployment"} <= registered
    assert apps.is_installed("queue_kit.django")


def test_every_finding_of_the_doctor_about_the_project_has_an_id() -> None:
    """A rule that is added gets one."""
    source = "".join((DOCTOR / name).read_text() for name in ("project.py", "tasks.py"))
    rules = re.findall(r'^        "(\w+)", (?:bool|lambda)', source, re.MULTILINE)
    named = {*rules, *re.findall(r'says = f?"(\w+)', source)}
    assert named - IDS.keys() == set()
    assert len(named) > 15
