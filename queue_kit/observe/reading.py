"""Opens what people read of an app's jobs, on a connection of its own; without it each page would find its own way to Redis."""

from __future__ import annotations

from typing import Any

from queue_kit.store.census import Census


def open_census(app: Any) -> Census:
    """The census of an app that has queue_kit: jobs by id, events and counts by queue.

    :raises AttributeError: the app has no queue_kit: call ``queue_kit.install(app)`` first.
    """
    kit = app.queue_kit
    client = app.connection_for_read().open_client(kit.settings.redis_timeout_ms)
    return Census(client, kit.keys)
