"""What a worker starts beside Celery's own parts: the registry of leases, then the threads that keep them."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

from celery import bootsteps, signals
from celery.utils.log import get_logger
from celery.worker import state
from redis import Redis

from queue_kit.store import Ledger
from queue_kit.transport.held import Held
from queue_kit.transport.kit import Kit
from queue_kit.worker.janitor import Janitor
from queue_kit.worker.keeper import Keeper
from queue_kit.worker.reaper import Reaper
from queue_kit.worker.role import Role
from queue_kit.worker.server import check_server
from queue_kit.worker.teller import Teller
from queue_kit.worker.trace import prepare_task

logger = get_logger(__name__)


class Roles(bootsteps.StartStopStep):
    """Created before the pool forks and stopped after all else, since leases are renewed to the last running job."""

    label = "queue_kit"

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        worker.queue_kit = self
        self._app = worker.app
        self._kit: Kit = worker.app.queue_kit
        settings = self._kit.settings
        nonce = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._held = Held(nonce, settings.worker_max_stalled_count, settings.worker_max_suspects)
        self._held.ledger = lambda: self._ledger
        self._kit.held = self._held
        self._connection: Any = None
        self._keeper = Keeper(self._open_client, self._kit, self._held)
        self._roles: list[Role] = [
            self._keeper,
            Reaper(self._open_client, self._kit),
            Janitor(self._open_client, self._kit),
            Teller(self._open_client, self._kit, worker.app),
        ]
        self._started = False
        super().__init__(worker, **kwargs)

    def create(self, worker: Any) -> None:
        """Prepare the tasks while there is one process."""
        for task in self._app.tasks.values():
            prepare_task(task)
        signals.worker_shutdown.connect(self._on_worker_shutdown, weak=False)

    def start(self, worker: Any) -> None:
        """Nothing yet: the roles start with the first connection."""
        in_main_loop = type(worker.pool).__module__ in ("celery.concurrency.solo", "celery.concurrency.gevent")
        if in_main_loop:
            self._keeper.busy = lambda: bool(state.active_requests)

    def stop(self, worker: Any) -> None:
        """Nothing yet: the pool may still be running jobs."""

    def connected(self, connection: Any) -> None:
        """The main loop has (re)connected: check the server, then let the roles work on it."""
        self._connection = connection
        self._ledger = Ledger(self._open_client())
        check_server(self._ledger.client, self._kit.settings)
        self._ledger.teach()
        for role in self._roles:
            role.reconnect() if self._started else role.start()
        self._started = True

    def _open_client(self) -> Redis:
        client: Redis = self._connection.open_client(self._kit.settings.redis_timeout_ms)
        return client

    def _on_worker_shutdown(self, sender: Any = None, **kwargs: Any) -> None:
        signals.worker_shutdown.disconnect(self._on_worker_shutdown)
        if self._started:
            for role in reversed(self._roles):
                role.stop()
            self._keeper.flush()
