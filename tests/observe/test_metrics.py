"""The names of the metrics, and the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queue_kit.errors import QueueUnavailable
from queue_kit.observe.metrics import BUCKETS, MOVES, OWN, TIMES, QueueCollector, WorkerCollector, render
from queue_kit.states import State
from queue_kit.store.tally import Tally
from tests.support.probes import series

PAGE = Path(__file__).resolve().parents[2] / "docs" / "observe.md"
KEY = ("job_duration", "q", "known")


def tally(queue: str = "q", **counted: int) -> Tally:
    return Tally(queue, dict.fromkeys(State, 0), 0, 0, {("enqueued", name): number for name, number in counted.items()}, 0)


def away() -> list[Tally]:
    raise QueueUnavailable()


def families(text: str) -> dict[str, str]:
    """Sentence by name."""
    return dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))


def test_the_page_names_every_metric_in_the_codes_own_words() -> None:
    listed = dict(re.findall(r"^\| `(qwk_\w+)` \| [^|]* \| \w+ \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    web = families(render(QueueCollector(lambda: [tally()], ())).decode())
    worker = families(render(WorkerCollector(dict, dict, ())).decode())
    assert listed == web | worker


def test_the_names_are_those_of_the_contract() -> None:
    """SPEC 11."""
    assert list(MOVES) == [
        "enqueued", "deduplicated", "started", "completed", "failed", "retrying", "stalled", "dead_lettered", "cancelled",
    ]  # fmt: skip
    assert list(OWN) == ["lease_lost", "lease_renewals_failed", "dead_letter_write_failures"]
    assert list(TIMES) == ["job_duration", "job_wait"]


def test_unknown_names_of_one_queue_are_added_up_and_queues_kept_apart() -> None:
    seen = series(render(QueueCollector(lambda: [tally("a", x=1, y=2, known=4), tally("b", z=8)], {"known"})).decode())
    assert {key[1:]: value for key, value in seen.items() if key[0] == "qwk_jobs_enqueued_total"} == {
        ("known", "a"): 4, ("unknown", "a"): 3, ("unknown", "b"): 8,
    }  # fmt: skip


def test_without_redis_there_is_one_number() -> None:
    assert series(render(QueueCollector(away, ())).decode()) == {("qwk_redis_up",): 0}


@pytest.mark.parametrize("name", ['q"uo\\te', "new\nline", "ü", ""])
def test_a_name_with_odd_characters_does_not_break_the_text(name: str) -> None:
    seen = series(render(QueueCollector(lambda: [tally(name, **{name: 1})], {name})).decode())
    assert seen["qwk_jobs_enqueued_total", name, name] == 1


def test_a_histogram_adds_up_by_bucket_and_over_unknown_names() -> None:
    numbers = [0] * (len(BUCKETS) + 1)
    numbers[0], numbers[2], numbers[-1] = 1, 2, 4
    times = {("job_duration", "q", "known"): (numbers, 5.0), ("job_duration", "q", "x"): (numbers, 1.0),
             ("job_duration", "q", "y"): (numbers, 2.0)}  # fmt: skip
    seen = series(render(WorkerCollector(dict, lambda: times, {"known"})).decode())
    bucket = "qwk_job_duration_seconds_bucket"
    assert [seen[bucket, "known", str(bound), "q"] for bound in (0.005, 0.01, 0.025, 1800.0, "+Inf")] == [1, 1, 3, 3, 7]
    assert (seen[bucket, "unknown", "+Inf", "q"], seen["qwk_job_duration_seconds_sum", "unknown", "q"]) == (14, 3.0)
    assert seen["qwk_job_duration_seconds_count", "known", "q"] == 7
