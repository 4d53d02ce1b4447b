"""Numbers for Prometheus, made when they are asked for: of all queues from what the scripts have counted in Redis, of one
worker from what it counts itself. Counters of a web process's own would miss what other processes do, and forget at each fork.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from queue_kit.errors import QueueUnavailable
from queue_kit.store.tally import Tally

Value = TypeVar("Value")

#: What every Prometheus reads; no answer depends on what a client says that it takes.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: In place of a job name that is not registered here: anybody may send one, and each would be a series for ever.
UNKNOWN: Final = "unknown"
#: Upper bounds of the histograms, in seconds: from a quick write to the longest deadline.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

#: Counted by the scripts, by queue and job name.
MOVES: Final = {
    "enqueued": "Jobs added to a queue.",
    "deduplicated": "Sends that met a job which holds their deduplication key.",
    "started": "Runs begun.",
    "completed": "Jobs completed.",
    "failed": "Jobs failed for good.",
    "retrying": "Runs that ended in another attempt.",
    "stalled": "Runs whose worker was lost.",
    "dead_lettered": "Dead letters written.",
    "cancelled": "Jobs cancelled or expired.",
}
#: Counted by a worker, by queue and job name.
OWN: Final = {
    "lease_lost": "Runs whose lease was taken over.",
    "lease_renewals_failed": "Renewals of one lease that found no Redis.",
    "dead_letter_write_failures": "Dead letters that could not be written with their failure.",
}
#: Measured by a worker, in seconds.
TIMES: Final = {
    "job_duration": "How long a run took, to whatever end, from its start in the pool to the worker's word on it.",
    "job_wait": "How long a job waited, from when it was due to its start in the pool.",
}
_LABELS: Final = ("queue", "job_name")


def render(collector: Collector) -> bytes:
    """A collector's numbers as Prometheus reads them."""
    return generate_latest(collector)


class QueueCollector(Collector):
    """All queues. Without Redis it says no more than that."""

    def __init__(self, read: Callable[[], Sequence[Tally]], registered: Container[str]) -> None:
        self._read, self._registered = read, registered

    def collect(self) -> Iterator[Metric]:
        try:
            tallies, up = self._read(), 1
        except QueueUnavailable:
            tallies, up = (), 0
        yield GaugeMetricFamily("qwk_redis_up", "Whether Redis has answered; if not, nothing else is here.", up)
        yield from self._counters(tallies)
        yield from _gauges(tallies)

    def _counters(self, tallies: Sequence[Tally]) -> Iterator[Metric]:
        counted: Counter[tuple[str, str, str]] = Counter()
        names = {(tally.queue, self._shown(name)) for tally in tallies for _, name in tally.counted}
        for tally in tallies:
            for (what, name), number in tally.counted.items():
                counted[what, tally.queue, self._shown(name)] += number
        for what, sentence in MOVES.items():
            family = CounterMetricFamily(f"qwk_jobs_{what}", sentence, labels=_LABELS)
            for queue, name in sorted(names):  # also what has not happened yet: a rate needs the nought before the one
                family.add_metric((queue, name), counted[what, queue, name])
            yield family

    def _shown(self, name: str) -> str:
        return name if name in self._registered else UNKNOWN


def _gauges(tallies: Sequence[Tally]) -> Iterator[Metric]:
    evicted = CounterMetricFamily("qwk_dead_letter_evicted", "Dead letters that made room for newer ones.", labels=["queue"])
    jobs = GaugeMetricFamily("qwk_queue_jobs", "Jobs whose records are kept, by state.", labels=["queue", "state"])
    oldest = GaugeMetricFamily(
        "qwk_queue_oldest_waiting_seconds", "How long that job has been due which waits longest; 0: none does.", labels=["queue"]
    )
    letters = GaugeMetricFamily("qwk_dead_letter_records", "Dead letters that are kept.", labels=["queue"])
    for tally in tallies:
        evicted.add_metric([tally.queue], tally.evicted)
        oldest.add_metric([tally.queue], tally.oldest_waiting_ms / 1000)
        letters.add_metric([tally.queue], tally.dead_letters)
        for state, number in tally.jobs.items():
            jobs.add_metric([tally.queue, state], number)
    return iter((evicted, jobs, oldest, letters))


class WorkerCollector(Collector):
    """One worker: ``counted`` by what, queue and job name; ``timed`` likewise, with a number for each bucket and the sum."""

    def __init__(
        self,
        counted: Callable[[], Mapping[tuple[str, str, str], int]],
        timed: Callable[[], Mapping[tuple[str, str, str], tuple[Sequence[int], float]]],
        registered: Container[str],
    ) -> None:
        self._counted, self._timed, self._registered = counted, timed, registered

    def collect(self) -> Iterator[Metric]:
        counted, timed = self._counted(), self._timed()
        for what, sentence in OWN.items():
            counter = CounterMetricFamily(f"qwk_{what}", sentence, labels=_LABELS)
            for labels, numbers in self._of(what, counted):
                counter.add_metric(labels, sum(numbers))
            yield counter
        for what, sentence in TIMES.items():
            histogram = HistogramMetricFamily(f"qwk_{what}_seconds", sentence, labels=_LABELS)
            for labels, times in self._of(what, timed):
                histogram.add_metric(labels, _buckets(numbers for numbers, _ in times), sum(seconds for _, seconds in times))
            yield histogram

    def _of(self, what: str, table: Mapping[tuple[str, str, str], Value]) -> list[tuple[tuple[str, str], list[Value]]]:
        """The values of one kind by queue and job name, those of unknown names together."""
        found: dict[tuple[str, str], list[Value]] = {}
        for (kind, queue, name), value in table.items():
            if kind == what:
                found.setdefault((queue, name if name in self._registered else UNKNOWN), []).append(value)
        return sorted(found.items())


def _buckets(many: Iterable[Sequence[int]]) -> list[tuple[str, float]]:
    """Numbers by bucket as Prometheus has them: each with all below it."""
    numbers = accumulate(map(sum, zip(*many, strict=True)))
    return list(zip((*map(str, BUCKETS), "+Inf"), numbers, strict=True))
