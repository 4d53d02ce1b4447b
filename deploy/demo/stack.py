"""All that the demo runs: Redis, the database, two web servers, the scoring service, the edge cache, the workers.

The tests start their processes through this class too; a second way to start them would soon differ from what users see.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from celery import Celery

from deploy.demo.edge import Edge
from deploy.demo.http import Site
from deploy.demo.process import ROOT, Process, free_port
from deploy.demo.waiting import wait_until
from deploy.engine import find_engine
from queue_kit import install, open_census

# Short leases, so that the loss of a worker is seen within two seconds and not within half a minute. Where nothing is killed,
# those of a real site are the better ones.
QUICK = {"WORKER_LOCK_DURATION_MS": "1500", "WORKER_STALLED_INTERVAL_MS": "300"}
# The second case and the delayed release, at the pace of the seeds.
REHEARSAL = {"EXAMHALL_GRADING_ATTEMPTS": "4", "EXAMHALL_GRADING_BACKOFF_MS": "100", "TICKETING_HOLD_MS": "800"}
# Long enough to read the page, short enough to see the seat come back.
EVERYDAY = {"TICKETING_HOLD_MS": "30000"}


class Stack:
    """Start everything on entering, stop everything that was started, by pid, on leaving."""

    def __init__(self, redis_url: str = "", database_url: str = "", leases: dict[str, str] = QUICK) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="queue-demo-"))
        self.database_url = database_url or f"sqlite:///{self.folder / 'db.sqlite3'}"
        self.processes: list[Process] = []
        self.workers: list[Process] = []
        self.redis_url = redis_url
        self.leases = leases
        self.edge = Edge()

    def __enter__(self) -> "Stack":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start all but the workers, side by side, and return when each is ready."""
        self.edge.start()
        self.redis_url = self.redis_url or self.start_redis()
        scoring_port, web_port, rehearsal_port = free_port(), free_port(), free_port()
        self.env = self.environment(scoring_port)
        prepare = self.run("prepare", ["-m", "deploy.demo.prepare"])
        self.run("scoring", ["-m", "examhall.scoring_service", "--port", str(scoring_port)])
        self.web, self.rehearsal = (
            self.start_web("web", web_port, EVERYDAY),
            self.start_web("rehearsal", rehearsal_port, REHEARSAL),
        )
        self.scoring = Site(self.env["EXAMHALL_SCORING_URL"])
        prepare.finish()
        for site, path in ((self.scoring, "/health"), (self.web, "/"), (self.rehearsal, "/")):
            wait_until(lambda site=site, path=path: site.answers(path), f"{site.url} answers")
        # An app of its own: this process, which may be a test run, has others that must not be changed.
        reader = Celery("demo", broker=self.redis_url, set_as_current=False)
        install(reader)
        self.census = open_census(reader)

    def start_redis(self) -> str:
        port = free_port()
        options = [
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
            "--save",
            "",
            "--appendonly",
            "yes",
        ]
        redis = Process("redis", [str(find_engine()), *options], {}, self.folder)
        self.processes.append(redis.start())
        wait_until(lambda: redis.says("eady to accept connections"), "Redis answers")
        return f"redis://127.0.0.1:{port}/0"

    def environment(self, scoring_port: int) -> dict[str, str]:
        """Return what every process of the site is told; nothing of the caller's own databases can get in."""
        urls = {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "EXAMHALL_SCORING_URL": f"http://127.0.0.1:{scoring_port}",
            "TICKETING_EDGE_PURGE_URL": self.edge.url,
            # Reports go by the name of their exam: one of an earlier site would be offered as this one's.
            "EXAMHALL_REPORTS_DIR": str(self.folder / "reports"),
        }
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return {**self.leases, **urls, "DJANGO_SETTINGS_MODULE": "deploy.settings", "DJANGO_DEBUG": "1", "PYTHONPATH": path}

    def start_web(self, name: str, port: int, env: dict[str, str]) -> Site:
        server = ["-m", "gunicorn", "-c", "deploy/gunicorn_conf.py", "--bind", f"127.0.0.1:{port}"]
        self.run(name, server, env)
        return Site(f"http://127.0.0.1:{port}")

    def start_worker(self, name: str, concurrency: int, *options: str) -> Process:
        """Start `celery -A deploy worker -c N`; it takes jobs as soon as it is up."""
        node = ["--hostname", f"{name}@localhost", "--loglevel", "INFO"]
        worker = self.run(name, ["-m", "celery", "-A", "deploy", "worker", "-c", str(concurrency), *node, *options])
        self.workers.append(worker)
        return worker

    def await_worker(self, worker: Process) -> None:
        wait_until(lambda: worker.says(" ready."), f"{worker.name} is ready", within_s=40)

    def run(self, name: str, arguments: list[str], env: dict[str, str] | None = None) -> Process:
        process = Process(name, [sys.executable, *arguments], {**self.env, **(env or {})}, self.folder)
        self.processes.append(process.start())
        return process

    def stop(self) -> None:
        """Stop what was started, the latest first, so that no worker outlives the Redis that it settles with."""
        for process in self.processes[1:]:
            process.ask_to_stop()
        for process in reversed(self.processes):
            process.stop()
        self.edge.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
