"""The backend for Django's own tasks, where there are none."""

from __future__ import annotations

import importlib

import django
import pytest
from django.core.exceptions import ImproperlyConfigured


def test_before_django_6_the_backend_says_what_it_needs() -> None:
    if django.VERSION >= (6,):
        assert importlib.import_module("queue_kit.django.tasks_backend").QueueKitBackend
        return
    with pytest.raises(ImproperlyConfigured, match=r"needs django\.tasks, which comes with Django 6"):
        importlib.import_module("queue_kit.django.tasks_backend")
