"""An app that uses Celery and kombu beside its jobs: consumers of its own, broadcasts, exchanges, remote control.

Without it nothing would show that what queue_kit does not take over goes on as kombu does it.
"""

from __future__ import annotations

import json
import os
from typing import Any

from celery import Celery, bootsteps, shared_task
from kombu import Exchange, Queue
from kombu.common import Broadcast

from queue_kit import current_job, fixed, install, job
from tests.apps.traps_app import SHORT, await_gate, note

LETTERS = Queue("letters", Exchange("letters"), routing_key="letters")
NEWS = Broadcast("news", exchange=Exchange("news", type="fanout"))
#: Both queues get what has to do with stock; one of them gets all orders.
ORDERS = Exchange("orders", type="topic")
STOCK, BILLING = Queue("stock", ORDERS, routing_key="order.stock.*"), Queue("billing", ORDERS, routing_key="order.#")
DIRECT = Queue("desk", Exchange("desks", type="direct"), routing_key="desk-1")


class LetterBox(bootsteps.ConsumerStep):
    """A consumer of the project's own, on the worker's connection: letters are no tasks.

    LETTERS_CHANNEL: `own` or `shared` with the tasks'. LETTERS_PREFETCH: 0 for no limit. A letter that says `keep` is never
    acknowledged.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, c: Any) -> None:
        shared = os.environ.get("LETTERS_CHANNEL", "own") == "shared"
        channel = c.task_consumer.channel if shared else c.connection.channel()
        if not shared:
            channel.basic_qos(0, int(os.environ.get("LETTERS_PREFETCH", "0")), False)
        self.consumers = self.get_consumers(channel)
        for consumer in self.consumers:
            consumer.consume()

    def get_consumers(self, channel: Any) -> list[Any]:
        from kombu import Consumer  # noqa: PLC0415 - as in Celery's own documentation

        return [Consumer(channel, queues=[LETTERS], callbacks=[self.read], accept=["json"])]

    def read(self, body: Any, message: Any) -> None:
        note(f"letter {body['text']}")
        if body["text"] != "keep":
            message.ack()


def make(broker_url: str | None = None, **conf: Any) -> Celery:
    """Make an app. A worker's gets settings of Celery, as JSON, from the environment variable TRAPS_CONF."""
    app = Celery("plain", broker=broker_url, set_as_current=False)
    install(app, {name: os.environ.get(name, short) for name, short in SHORT.items()})
    app.conf.update(json.loads(os.environ.get("TRAPS_CONF", "{}")), **conf)
    app.conf.task_queues = [Queue("work"), STOCK, BILLING, DIRECT, NEWS]
    app.conf.task_default_queue = "work"
    app.conf.task_routes = {"plain.hear": {"queue": "news", "exchange": "news"}}
    if "LETTERS_CHANNEL" in os.environ:
        app.steps["consumer"].add(LetterBox)
    return app


@job("plain.hold")
def hold(gate: str) -> str:
    """Wait for a gate."""
    note(f"hold {current_job().id}")
    await_gate(gate)
    return "held"


@job("plain.echo")
def echo(value: Any = None) -> Any:
    """Give back what came, or its length if it is long."""
    run = current_job()
    note(f"echo {run.id} {run.queue}")
    return value if len(str(value)) < 1000 else len(value)


@shared_task(name="plain.long")
def long(text: str) -> int:
    """Measure a text; a task of stock Celery, which knows no limit."""
    return len(text)


@job("plain.twice", attempts=2, backoff=fixed(50))
def twice() -> None:
    """Fail once."""
    run = current_job()
    note(f"twice {run.id} {run.queue} {run.attempts_made}")
    if run.attempts_made == 0:
        raise ValueError("once")


@shared_task(name="plain.hear")
def hear(news: str, gate: str = "") -> None:
    """A broadcast: each worker hears it."""
    note(f"news {news} {os.environ.get('PLAIN_NAME', '')}")
    if gate:
        await_gate(gate)
        note(f"heard {news}")


app = make()
