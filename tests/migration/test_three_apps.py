"""A project of stock Celery and Django, canvas, beat, results in the database and Flower, moves here by one line, and back."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import environment_with_project, kill_session, spawn
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for_exit, wait_until

PROJECT = Path(__file__).parent / "project"
THE_LINE = "\n__import__('queue_kit').install(app)\n"


@dataclass
class Shop:
    """A copy of the project on disk, and its processes."""

    folder: Path
    broker_url: str
    taking: bool = False
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        own = {"SHOP_DATABASE": str(self.folder / "db.sqlite3"), "SHOP_BROKER_URL": self.broker_url}
        django = {"DJANGO_SETTINGS_MODULE": "shop.settings", "FLOWER_UNAUTHENTICATED_API": "true"}
        return environment_with_project({**own, **django, "TAKE_STOCK_MESSAGES": str(int(self.taking))})

    @property
    def wiring(self) -> Path:
        return self.folder / "shop" / "celery.py"

    def run(self, *words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def place(self, *orders: int, wait: bool = False, **options: Any) -> None:
        get = ".get(timeout=20)" if wait else ""
        send = f"for n in {orders}: t.place(n, **{options}){get}"
        self.run("-c", f"import django; django.setup(); import orders.tasks as t\n{send}")

    def celery(self, *words: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"{words[0]}.log"
        process = spawn([sys.executable, "-m", "celery", "-A", "shop", *words], log=log, cwd=self.folder, env=self.env)
        self.processes.append(process)
        return process

    def worker(self, kind: str) -> subprocess.Popen[bytes]:
        log = self.folder / "worker.log"
        log.unlink(missing_ok=True)
        started = self.celery("worker", "-Q", "celery,mail", "-c", "2", "-n", f"{kind}@localhost", "-l", "INFO")
        wait_until(lambda: log.exists() and f"{kind}@localhost ready." in log.read_text(), says=f"{kind} is ready", within_s=40)
        return started

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        assert wait_for_exit(process, within_s=30) == 0

    def lines(self, table: str = "orders_line", column: str = "text") -> Counter[str]:
        with closing(sqlite3.connect(self.folder / "db.sqlite3", timeout=20)) as database:
            return Counter(row[0] for row in database.execute(f"select {column} from {table}"))

    def await_orders(self, *orders: int) -> None:
        """Wait until each has been reserved, priced and mailed; once."""
        texts = [text for n in orders for text in (f"order {n}: reserved", f"order {n}: 60", f"mail {n}: 60")]
        wait_until(lambda: self.lines().keys() >= set(texts), says=f"{orders} are done", within_s=30)
        assert [text for text in texts if self.lines()[text] != 1] == []


@pytest.fixture
def shop(tmp_path: Path, engine: Path) -> Iterator[Shop]:
    """The project, stock, with its tables made, on a Redis of its own."""
    with RedisServer() as server:
        made = Shop(tmp_path / "project", server.url())
        shutil.copytree(PROJECT, made.folder, ignore=shutil.ignore_patterns("__pycache__"))
        made.run("manage.py", "migrate", "--run-syncdb", "-v", "0")
        try:
            yield made
        finally:
            for process in made.processes:
                kill_session(process)


@pytest.mark.timeout(240)
def test_a_stock_project_moves_by_one_line_runs_and_moves_back(shop: Shop) -> None:
    """Issue 7: what waits goes along both ways, every step of every order happens once, results stay where they were."""
    stock = shop.worker("stock")
    shop.place(1, wait=True)
    shop.end(stock)
    shop.place(2, 3)
    shop.place(4, countdown=2)

    shop.wiring.write_text(shop.wiring.read_text() + THE_LINE)
    shop.taking = True
    ours = shop.worker("ours")
    shop.place(5)
    shop.await_orders(1, 2, 3, 4, 5)
    flower_and_beat_go_on(shop)
    shop.end(ours)
    assert shop.lines("django_celery_results_taskresult", "status").keys() == {"SUCCESS"}
    shop.place(6)
    shop.place(7, countdown=3)

    shop.taking = False
    assert shop.run("-m", "celery", "-A", "shop", "queue-migrate", "--back").splitlines()[0] == "celery: 2 moved"
    shutil.copy(PROJECT / "shop" / "celery.py", shop.wiring)
    shop.worker("stock")
    shop.await_orders(6, 7)


def flower_and_beat_go_on(shop: Shop) -> None:
    port = free_port()
    shop.celery("beat", "--schedule", str(shop.folder / "schedule"), "--pidfile", "")
    shop.celery("flower", f"--address={LOOPBACK}", f"--port={port}")
    ticks = shop.lines()["tick"]
    wait_until(lambda: shop.lines()["tick"] >= ticks + 2, says="beat's jobs have run", within_s=30)
    away = (urllib.error.URLError, ConnectionError, TimeoutError)
    flower = {"within_s": 30, "ignoring": away}
    wait_until(lambda: "ours@localhost" in ask(port, "workers?refresh=1"), says="Flower knows the worker", **flower)
    ran = wait_until(lambda: ask(port, "tasks?taskname=stats.tasks.tick&state=SUCCESS"), says="Flower sees jobs", **flower)
    assert {task["worker"] for task in ran.values()} == {"ours@localhost"}
    for process in shop.processes[-2:]:
        kill_session(process)


def ask(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/api/{path}", timeout=10) as answer:
        return json.load(answer)
