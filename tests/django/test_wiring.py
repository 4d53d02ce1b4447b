"""One line in a project's celery.py: which settings it reads, in which order, and whose app a thread gets."""

from __future__ import annotations

import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, _state

from queue_kit import ConfigurationError
from queue_kit.django import install
from queue_kit.django.conf import ProjectSettings, celery_app, project_settings
from queue_kit.settings import Settings


@pytest.fixture
def project_app(monkeypatch: pytest.MonkeyPatch) -> Celery:
    """An app as a project's celery.py makes it; afterwards the site's own is that of all threads again."""
    monkeypatch.setattr(_state, "default_app", None)
    return Celery("project", set_as_current=False)


def kept(app: Any) -> ProjectSettings:
    settings: ProjectSettings = app.queue_kit.settings
    return settings


def test_the_dict_wins_over_the_environment_and_that_over_the_default(
    project_app: Celery, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 14."""
    settings.QUEUE_KIT = {"JOB_ATTEMPTS": 7}
    monkeypatch.setenv("JOB_ATTEMPTS", "3")
    monkeypatch.setenv("OUTBOX_POLL_MS", "50")
    install(project_app)
    assert (kept(project_app).job_attempts, kept(project_app).outbox_poll_ms) == (7, 50)
    assert kept(project_app).job_timeout_ms == 30_000


@pytest.mark.parametrize("debug", [True, False])
def test_a_project_that_is_not_in_debug_is_in_production(project_app: Celery, settings: Any, debug: bool) -> None:
    """H7: whether a Redis that may evict jobs is refused."""
    settings.DEBUG = debug
    install(project_app)
    assert kept(project_app).production is not debug


def test_production_may_be_said_outright(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DEBUG = False
    monkeypatch.setenv("PRODUCTION", "0")
    assert project_settings().production is False
    settings.QUEUE_KIT = {"PRODUCTION": True}
    assert project_settings().production is True


def test_wrong_entries_are_all_named_at_once_and_no_value_is_echoed(project_app: Celery, settings: Any) -> None:
    settings.QUEUE_KIT = {"JOB_ATEMPTS": 3, "OUTBOX_POLL_MS": "hunter2", "COLOUR": 1}
    with pytest.raises(ConfigurationError) as refused:
        install(project_app)
    assert refused.value.problems == [
        "JOB_ATEMPTS: did you mean JOB_ATTEMPTS?",
        "COLOUR: it is not a setting of queue_kit",
        "OUTBOX_POLL_MS: a whole number from 10 to 60000 is needed",
    ]
    assert getattr(project_app, "queue_kit", None) is None


def test_what_is_no_dict_is_refused(settings: Any) -> None:
    settings.QUEUE_KIT = ["JOB_ATTEMPTS"]
    with pytest.raises(ConfigurationError, match="QUEUE_KIT: a dict of settings by name is needed"):
        project_settings()


def test_a_thread_of_a_web_server_gets_the_project_s_app(project_app: Celery) -> None:
    """Celery's current app is a thread's own; a send from a view would else go to an app that nobody configured."""
    install(project_app)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(_state._get_current_app()))
    thread.start()
    thread.join()
    assert seen == [project_app]


def test_a_second_app_does_not_take_the_threads_of_the_first(project_app: Celery) -> None:
    install(project_app)
    install(Celery("second", set_as_current=False))
    assert _state.default_app is project_app


@pytest.mark.parametrize("path", ["shop", "shop.", "shop celery", ".shop.celery"])
def test_a_path_that_is_none_is_named(settings: Any, path: str) -> None:
    settings.QUEUE_KIT = {"CELERY_APP": path}
    with pytest.raises(ConfigurationError, match="CELERY_APP: a text that fits"):
        celery_app()


def test_the_page_names_every_setting_that_only_django_has() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "django.md").read_text()
    own = {item.name for item in fields(ProjectSettings)} - {item.name for item in fields(Settings)}
    assert [name for name in own if f"| `{name.upper()}` |" not in page] == []
