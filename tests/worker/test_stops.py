"""How a run is told to stop: slots in shared memory, read by another process; and what this process counts of it."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from queue_kit.states import StopReason
from queue_kit.store import Claimed
from queue_kit.transport import stops
from queue_kit.transport.held import Held
from queue_kit.transport.stops import Stop, Stops
from queue_kit.worker.settling.counts import LEASE_LOST, Counts
from tests.support.waiting import wait_until


@pytest.fixture
def table() -> Stops:
    return Stops()


def test_a_new_slot_asks_nothing(table: Stops) -> None:
    slot = table.assign()
    assert slot is not None
    assert table.read(slot) is None


@pytest.mark.parametrize("reason", StopReason)
def test_a_slot_says_why(table: Stops, reason: StopReason) -> None:
    slot = table.assign()
    assert slot is not None
    table.fire(slot, reason)
    assert table.read(slot) == reason


def test_a_stronger_reason_takes_the_place_of_a_weaker_one_and_never_the_other_way_round(table: Stops) -> None:
    slot = table.assign()
    assert slot is not None
    for said, then in [("shutdown", "shutdown"), ("cancelled", "cancelled"), ("shutdown", "cancelled"),
                       ("lease_lost", "lease_lost"), ("cancelled", "lease_lost")]:  # fmt: skip
        table.fire(slot, StopReason(said))
        assert table.read(slot) == then


def test_slots_are_apart(table: Stops) -> None:
    first, second = table.assign(), table.assign()
    assert first is not None
    assert second is not None
    table.fire(first, StopReason.CANCELLED)
    assert (table.read(first), table.read(second)) == ("cancelled", None)


def test_a_run_that_looks_at_a_slot_given_away_has_lost_its_lease(table: Stops) -> None:
    """B8: its worker has dropped the job, so it is another's."""
    slot = table.assign()
    assert slot is not None
    table.release(slot)
    assert table.read(slot) == "lease_lost"
    table.fire(slot, StopReason.SHUTDOWN)  # too late for it, and not for the next one
    table.release(slot)
    assert table.read(slot) == "lease_lost"


def test_the_next_turn_of_a_slot_begins_clean(table: Stops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "_SLOTS", 1)
    small = Stops()
    first = small.assign()
    small.fire(first, StopReason.CANCELLED)
    assert small.assign() is None, "there is only one"
    small.release(first)
    second = small.assign()
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
    assert (small.read(first), small.read(second)) == ("lease_lost", None)
    small.fire(first, StopReason.SHUTDOWN)
    assert small.read(second) is None


def test_without_a_slot_a_run_knows_its_deadline_all_the_same(table: Stops) -> None:
    table.fire(None, StopReason.CANCELLED)
    table.release(None)
    assert Stop(table, None).reason is None
    assert Stop(None, (3, 1)).reason is None
    assert Stop(table, None, timeout_ms=1).time_left_s in (0, pytest.approx(0.001, abs=0.001))
    late = Stop(table, None, timeout_ms=1)
    wait_until(lambda: late.reason == "timeout", says="its deadline is over", within_s=1)


def test_whatever_else_is_asked_is_said_before_the_deadline_is(table: Stops) -> None:
    slot = table.assign()
    stop = Stop(table, slot, timeout_ms=0)
    assert (stop.reason, stop.time_left_s) == ("timeout", 0)
    table.fire(slot, StopReason.CANCELLED)
    assert stop.reason == "cancelled"


def test_another_process_reads_what_this_one_writes(table: Stops) -> None:
    """Prefork: the child was forked before the job was there."""
    slot = table.assign()
    assert slot is not None
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, b"ready")
        while table.read(slot) is None:
            pass
        os._exit(0 if table.read(slot) == "cancelled" else 1)
    assert os.read(reader, 5) == b"ready"
    table.fire(slot, StopReason.CANCELLED)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(reader)
    os.close(writer)


def test_no_slot_is_given_twice_at_a_time(table: Stops) -> None:
    """The main loop takes and drops jobs, and so does the thread that renews."""
    taken: list[Any] = []

    def take_and_drop() -> None:
        for _ in range(2_000):
            slots = [table.assign() for _ in range(5)]
            taken.append({slot[0] for slot in slots if slot is not None})
            for slot in slots:
                table.release(slot)

    threads = [threading.Thread(target=take_and_drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(indexes) == 5 for indexes in taken)
    assert len(table._free) == stops._SLOTS == len(set(table._free))


# -- lost leases ----------------------------------------------------------------------------------------------------------


def claimed(token: str) -> Claimed:
    return Claimed("job", "mail", token, True, "{}", 1, 0, 0, False, 0, name="mail")


def test_a_lost_lease_is_told_logged_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    """B8: the token, one log line, a metric."""
    held, counts = Held("w", max_stalled=1, max_suspects=1), Counts()
    held.on_lost = lambda job: counts.add(LEASE_LOST, job.claimed.queue, job.name)
    job = held.take(claimed("t.1"), "email.send")
    for how in ("its run is asked to stop", "complete is refused"):
        held.lose(job, how)
    assert job.slot is not None
    assert held.stops.read(job.slot) == "lease_lost"
    assert counts.read() == {(LEASE_LOST, "mail", "email.send"): 1}
    assert [record.getMessage() for record in caplog.records] == [
        "job email.send[job] has lost its lease: its run is asked to stop"
    ]


def test_all_that_run_are_asked_to_stop() -> None:
    held = Held("w", max_stalled=1, max_suspects=1)
    jobs = [held.take(claimed(f"t.{number}"), "email.send") for number in range(3)]
    held.stop_all(StopReason.SHUTDOWN)
    assert [held.stops.read(job.slot) for job in jobs if job.slot] == ["shutdown"] * 3


def test_a_dropped_job_gives_its_slot_back() -> None:
    held = Held("w", max_stalled=1, max_suspects=1)
    free = len(held.stops._free)
    job = held.take(claimed("t.1"), "email.send")
    held.drop(job)
    held.drop(job)
    assert len(held.stops._free) == free
