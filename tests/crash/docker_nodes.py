"""pytest-celery's nodes on containers: its own fixtures, with an image that has what queue_kit needs.

Without it the crash tests could not be run where the kernel really separates a worker from its Redis.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_celery import DEFAULT_WORKER_CONTAINER_TIMEOUT, DEFAULT_WORKER_VOLUME, CeleryWorkerContainer
from pytest_docker_tools import build, container, fxtr

from tests.support.ports import free_port

# Celery's version is this project's and Python is its oldest; pytest-celery's own image takes whatever is newest.
celery_base_worker_image = build(path=str(Path(__file__).parent / "image"), tag="queue-kit/crash-worker")

second_worker_container = container(
    image="{celery_base_worker_image.id}",
    environment=fxtr("default_worker_env"),
    network="{default_pytest_celery_network.name}",
    volumes={"{default_worker_volume.name}": DEFAULT_WORKER_VOLUME},
    wrapper_class=CeleryWorkerContainer,
    timeout=DEFAULT_WORKER_CONTAINER_TIMEOUT,
    command=fxtr("default_worker_command"),
)


@pytest.fixture
def default_redis_broker_ports() -> dict[str, str]:
    """A port that stays over a restart: with one of Docker's choosing the sender's open pool would keep the old one."""
    return {"6379/tcp": str(free_port())}
