"""What a worker starts beside Celery's own parts: the registry of leases, then the threads that keep them."""

from __future__ import annotations

import gc
import os
import secrets
import socket
import time
from functools import partial
from typing import Any

from celery import bootsteps, signals
from celery.apps.worker import Worker
from celery.utils.log import get_logger
from celery.worker import state
from redis import Redis

from queue_kit.store import Ledger
from queue_kit.store.roster import Facts
from queue_kit.transport.held import Held, HeldJob
from queue_kit.transport.kit import Kit
from queue_kit.worker.refusals import check_worker
from queue_kit.worker.roles.adopter import Adopter
from queue_kit.worker.roles.janitor import Janitor
from queue_kit.worker.roles.keeper import Keeper
from queue_kit.worker.roles.lookout import Lookout
from queue_kit.worker.roles.reaper import Reaper
from queue_kit.worker.roles.role import Role
from queue_kit.worker.roles.roster import Roster, orders_of_warden
from queue_kit.worker.roles.teller import Teller
from queue_kit.worker.roles.witness import Witness, kernel
from queue_kit.worker.running import deadline
from queue_kit.worker.running.trace import prepare_task
from queue_kit.worker.server import Guard, end_boot, explain
from queue_kit.worker.serving.health import ASK_MS, Health, Pulse
from queue_kit.worker.serving.http import HttpServer
from queue_kit.worker.settling.counts import LEASE_LOST, Counts
from queue_kit.worker.settling.dead_letter import DeadLetterHandler
from queue_kit.worker.shutdown import Shutdown

logger = get_logger(__name__)


class Roles(bootsteps.StartStopStep):
    """Created before the pool forks and stopped after all else, since leases are renewed to the last running job."""

    label = "queue_kit"

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        worker.queue_kit = self
        self._worker, self._app = worker, worker.app
        check_worker(self._app)
        self._kit: Kit = worker.app.queue_kit
        settings = self._kit.settings
        nonce = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        self._held = Held(nonce, settings.worker_max_stalled_count, settings.worker_max_suspects)
        self._held.ledger = self._own_ledger
        self.counts = Counts()
        self._held.on_lost = self._count_lost
        self._kit.held = self._held
        self._connection: Any = None
        self._ledger: Ledger | None = None
        self._keeper = Keeper(self._open_client, self._kit, self._held, self.counts)
        self._burials = DeadLetterHandler(self._open_client, self._kit, self.counts)
        self._held.on_unwritten = self._burials.unwritten
        self.shutdown = Shutdown(self._open_client, self._kit, self._held, worker, self._burials.flush)
        self._witness = Witness(nonce)
        self._roster = Roster(self._kit, self._witness, partial(_describe, worker, nonce, round(time.time() * 1000)))
        self._guard = Guard(self._open_client, settings, self._held)
        reaper = Reaper(self._open_client, self._kit, self._roster)
        inferred = settings.worker_inferred_death_ms > 0
        self._roles: list[Role] = [
            self._keeper,
            reaper,
            *([Lookout(self._open_client, self._kit, nonce, reaper.tell)] if inferred else []),
            Janitor(self._open_client, self._kit),
            Teller(self._open_client, self._kit, worker.app, self._burials),
            self._burials,
            self._guard,
            *([Adopter(self._open_client, self._app)] if settings.take_stock_messages else []),
        ]
        self._http = self._server()
        self._started = False
        super().__init__(worker, **kwargs)

    def create(self, worker: Any) -> None:
        """Prepare the tasks while there is one process."""
        for task in self._app.tasks.values():
            prepare_task(task)
        if isinstance(worker, Worker):
            _keep_what_is_loaded()
        if worker.pool_start_method == "fork":  # a process that is spawned would outlive the lock
            self._witness.begin()
        self._witness.post_warden(partial(orders_of_warden, self._app, self._held.worker))
        signals.beat_embedded_init.connect(self._witness.let_go)
        signals.worker_shutdown.connect(self._on_worker_shutdown, weak=False)

    def start(self, worker: Any) -> None:
        """Be ready to end; the other roles start with the first connection."""
        if self._http is not None:
            self._http.start()
        self.shutdown.listen()
        self.shutdown.start()
        in_main_loop = type(worker.pool).__module__ in ("celery.concurrency.solo", "celery.concurrency.gevent")
        if in_main_loop:
            self._keeper.busy = lambda: any(_is_within_its_limit(request) for request in list(state.active_requests))
        if getattr(worker.pool, "is_green", False):
            worker.pool.spawn_n(_stay_awake)

    def _server(self) -> HttpServer | None:
        """What answers probes and scrapers, if it is asked for; and with it what they are told."""
        settings = self._kit.settings
        if not settings.enable_worker_metrics_server:
            return None
        self._held.on_timed = lambda what, job, seconds: self.counts.observe(what, job.claimed.queue, job.name, seconds)
        pulse = Pulse(lambda: self._open_client(min(ASK_MS, settings.redis_timeout_ms)))
        self._roles.append(pulse)
        health = Health(self._app, self._held, self._keeper, self.counts, pulse)
        return HttpServer(settings.worker_metrics_host, settings.worker_metrics_port, health.pages)

    def _count_lost(self, job: HeldJob) -> None:
        self.counts.add(LEASE_LOST, job.claimed.queue, job.name)

    def close(self, worker: Any) -> None:
        """The worker ends, by whichever of Celery's ways."""
        self.shutdown.begin()

    def terminate(self, worker: Any) -> None:
        """It ends without waiting for the pool."""
        self.shutdown.hurry()
        self._on_worker_shutdown()  # Celery sends no signal at this end

    def stop(self, worker: Any) -> None:
        """Nothing yet: the pool may still be running jobs."""

    def connected(self, connection: Any) -> None:
        """The main loop has (re)connected: check the server, then let the roles work on it."""
        self._connection = connection
        self._worker.pool._does_debug = False  # it would write each job's message, arguments and all, at the level of debug
        if self._ledger is not None:
            self._ledger.client.close()
        self._ledger = Ledger(self._open_client())
        self._guard.admit(self._ledger.client, booting=not self._started)
        self._ledger.teach()
        if not self._started:
            self._tell_of_stock_messages(connection.default_channel)
        for role in self._roles:
            role.reconnect() if self._started else role.start()
        self._started = True

    def unreachable(self, error: Exception) -> None:
        """The main loop cannot connect; it tries again, unless the worker boots and its broker URL is wrong."""
        problem = explain(error)
        if problem and not self._started:
            end_boot(problem)

    def _tell_of_stock_messages(self, channel: Any) -> None:
        """Say what a producer without `install` has sent to where no worker of ours looks."""
        if self._kit.settings.take_stock_messages:
            return
        for queue in self._app.amqp.queues.consume_from:
            left = channel.left_in_lists(queue)
            if left:
                logger.warning(
                    "queue %s: %d messages wait in its plain Redis list, where a producer without queue_kit.install has put "
                    "them: no worker of queue_kit takes them", queue, left,
                )  # fmt: skip

    def _own_ledger(self) -> Ledger:
        assert self._ledger is not None, "the worker has not connected yet"
        return self._ledger

    def _open_client(self, timeout_ms: int | None = None) -> Redis:
        client: Redis = self._connection.open_client(timeout_ms or self._kit.settings.redis_timeout_ms)
        return client

    def _on_worker_shutdown(self, sender: Any = None, **kwargs: Any) -> None:
        signals.worker_shutdown.disconnect(self._on_worker_shutdown)
        self.shutdown.finish()
        if self._started:
            for role in reversed(self._roles):
                role.stop()
            self._keeper.flush()
            self._burials.flush()
            self._roster.leave(self._own_ledger())
            for role in self._roles:
                role.leave()
            self._own_ledger().client.close()
            self._started = False
        self._witness.leave()
        if self._http is not None:
            self._http.stop()


def _describe(worker: Any, nonce: str, started_at_ms: int) -> Facts:
    """What a worker is now: its queues and the size of its pool change by remote control."""
    pool = worker.pool
    return Facts(
        nonce, worker.hostname, socket.gethostname(), kernel(), os.getpid(), type(pool).__module__.rpartition(".")[2],
        _size(pool), sorted(worker.app.amqp.queues.consume_from), started_at_ms,
    )  # fmt: skip


def _size(pool: Any) -> int:
    """How many slots a pool has; one of prefork that has ended does not know any more."""
    return pool.num_processes if getattr(pool, "_pool", pool) is not None else 0


def _keep_what_is_loaded() -> None:
    """Spare this process and its children from looking for garbage among modules, tasks and settings; not where the process is
    another's, such as that of a test, whose own garbage it would keep for ever.
    """
    gc.collect()
    gc.freeze()


def _stay_awake() -> None:
    """A greenlet that always has a next step. Without one, a main greenlet that waits for a lock which a thread of ours holds
    for a moment (that of the log, say) would be told that it waits for ever, and end the worker."""
    while True:
        time.sleep(1)


def _is_within_its_limit(request: Any) -> bool:
    """A run in the main loop shows that the loop lives, but no longer than its own hard limit."""
    limits = getattr(request, "limits", None)
    return limits is None or deadline.within(limits[0], request.time_start)
