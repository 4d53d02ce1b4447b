"""Canvases give the same on our transport as on the stock one: results, runs, callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from tests.apps import canvas_app
from tests.support.redis_server import RedisServer
from tests.worker.canvas_run import Bench, Outcome, ours_is_busy, stock_is_busy
from tests.worker.canvas_scenarios import CHAINS, CHORDS, GROUPS, Scenario
from tests.worker.canvas_troubles import KILLS, REPLACEMENTS, RETRIES, STAMPS
from tests.worker.stack import Stack, leave, show_logs, stack

MODULE = "tests.apps.canvas_app"
SCENARIOS = [*CHAINS, *GROUPS, *CHORDS, *RETRIES, *REPLACEMENTS, *STAMPS, *KILLS]
# A kill of a process is a kill of the whole worker in the other pools, where the stock stack would wait for an hour.
CASES = [
    pytest.param(pool, scenario, id=f"{pool}-{scenario.name.replace(' ', '-')}")
    for pool in ("prefork", "threads", "gevent", "solo")
    for scenario in SCENARIOS
    if pool == "prefork" or not scenario.kills
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Bench]:
    """The stock stack, whose outcomes ours are held against."""
    with RedisServer() as server:
        stock = Stack(server, tmp_path_factory.mktemp("stock"), MODULE, db=2, env={"CANVAS_STOCK": "1"})
        stock.start_worker(pool="prefork")
        app = canvas_app.make(False, stock.broker_url, stock.backend_url)
        yield Bench(stock, app, stock_is_busy)
        leave(app)
        stock.close()


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Bench]:
    """Our stack, one for each pool."""
    with stack(tmp_path_factory.mktemp(request.param), MODULE) as ours:
        ours.start_worker(pool=request.param)
        app = canvas_app.make(True, ours.broker_url, ours.backend_url)
        yield Bench(ours, app, ours_is_busy)
        leave(app)


@pytest.fixture(scope="module")
def known() -> dict[str, Outcome]:
    """What the stock stack gave, by scenario; each is run there once."""
    return {}


@pytest.mark.parametrize(("bench", "scenario"), CASES, indirect=["bench"], scope="module")
def test_a_canvas_gives_what_it_gives_on_the_stock_transport(
    bench: Bench, scenario: Scenario, reference: Bench, known: dict[str, Outcome], request: pytest.FixtureRequest
) -> None:
    """A13, and canvas as a whole: value or error, every run with its arguments, retries, parent and root, every callback."""
    show_logs(request, *bench.stack.workers, *reference.stack.workers)
    if scenario.name not in known:
        known[scenario.name] = reference.run(scenario.build, **scenario.options)
        if "not within" in known[scenario.name].error and "not within" not in scenario.raises:
            # Stock Celery has lost a message, as it does now and then; what it would have given is still to be known.
            known[scenario.name] = reference.run(scenario.build, **scenario.options)
    ours = bench.run(scenario.build, **scenario.options)
    assert (ours.value, ours.error) == (scenario.gives, scenario.raises)
    assert ours.notes == list(scenario.notes)
    assert ours == known[scenario.name]


def test_the_journal_is_of_canvases_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The signal it is written by is that of every app in a process, and other tests run jobs in this one."""
    monkeypatch.delenv("CELERY_RESULT_BACKEND", raising=False)
    app = Celery("another", set_as_current=False)

    @app.task
    def another() -> str:
        return "done"

    assert another.apply().get() == "done"
    assert caplog.text == ""
