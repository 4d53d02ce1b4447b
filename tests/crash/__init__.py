"""Crash tests in pytest-celery's vocabulary: its nodes and clusters, on local processes or on containers."""
