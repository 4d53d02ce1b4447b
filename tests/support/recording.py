"""What web and workers have told a scraper, as series for promtool's unit tests of rules.

Without it the rules would be tried on series that somebody has imagined: with other names, or with noughts that no process tells.

Time is stretched. One scrape counts as a minute after the one before, however soon it was taken, and a second that a process has
measured counts as a minute: figures of `..._seconds`, and the bounds of their buckets, are taken sixty times.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.ports import LOOPBACK
from tests.support.probes import ask
from tests.support.programs import program, said_by

STRETCH: Final = 60
_SCRAPE_S: Final = 10.0  # what Prometheus gives a scrape unless it is told otherwise
_FIRING: Final = 'count by (alertname, queue, instance) (ALERTS{alertstate="firing"})'

Labels = frozenset[tuple[str, str]]


class Recording:
    """Scrapes, a minute each, of processes by their port; ``targets``: the scraper's job of each."""

    def __init__(self, targets: Mapping[int, str]) -> None:
        self._targets = dict(targets)
        self._minutes: list[dict[Labels, float]] = []
        self._tests: list[dict[str, Any]] = []

    def minute(self, count: int = 1) -> None:
        """Scrape all processes, so often."""
        for _ in range(count):
            self._minutes.append({key: value for port in self._targets for key, value in self._scraped(port).items()})

    def expect(self, *alerts: tuple[str, str]) -> None:
        """At the last minute these alerts fire and no others: name, and queue or instance."""
        samples = []
        for alert, where in alerts:
            labels = {"alertname": alert, "instance" if ":" in where else "queue": where}
            shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items() if value)
            samples.append({"labels": f"{{{shown}}}", "value": 1})
        self._tests.append({"expr": _FIRING, "eval_time": f"{len(self._minutes) - 1}m", "exp_samples": samples})

    def check(self, rules: Path, folder: Path) -> None:
        """Let promtool say whether all that is expected is so."""
        tests = [{"interval": "1m", "input_series": self.series(), "promql_expr_test": self._tests}]
        # In any order, what promtool takes for none said, an alert may be looked at a minute before what it is made from.
        order = [group["name"] for group in yaml.safe_load(rules.read_text())["groups"]]
        said = {"rule_files": [str(rules)], "evaluation_interval": "1m", "group_eval_order": order, "tests": tests}
        (folder / "test.yml").write_text(yaml.safe_dump(said))
        assert "SUCCESS" in said_by(program("promtool", "prometheus"), "test", "rules", folder / "test.yml")

    def series(self) -> list[dict[str, str]]:
        """All series, as promtool writes them. One that is missing is stale, as it is for Prometheus."""
        values: dict[Labels, list[str]] = defaultdict(list)
        for number, told in enumerate(self._minutes):
            for key in {**told, **values}:
                before = values[key] or ["_"] * number
                values[key] = [*before, f"{told[key]:.17g}" if key in told else _missing(before)]
        return [{"series": _written(key), "values": " ".join(told)} for key, told in values.items()]

    def _scraped(self, port: int) -> dict[Labels, float]:
        whose = {"job": self._targets[port], "instance": f"{LOOPBACK}:{port}"}
        up = frozenset({"__name__": "up", **whose}.items())
        with suppress(OSError, HTTPException):
            families = text_string_to_metric_families(ask(port, "/metrics", within_s=_SCRAPE_S).text)
            samples = (_stretched(sample) for family in families for sample in family.samples)
            return {up: 1} | {_labels(sample, whose): sample.value for sample in samples}
        return {up: 0}


def _labels(sample: Sample, whose: Mapping[str, str]) -> Labels:
    return frozenset({"__name__": sample.name, **sample.labels, **whose}.items())


def _stretched(sample: Sample) -> Sample:
    if not sample.name.endswith(("_seconds", "_seconds_sum", "_seconds_bucket")):
        return sample
    if "le" in sample.labels:
        return sample._replace(labels={**sample.labels, "le": f"{float(sample.labels['le']) * STRETCH:g}".replace("inf", "+Inf")})
    return sample._replace(value=sample.value * STRETCH)


def _missing(before: Sequence[str]) -> str:
    return "_" if before[-1:] in ([], ["_"], ["stale"]) else "stale"


def _written(key: Labels) -> str:
    labels = dict(key)
    name = labels.pop("__name__")
    return f"{name}{{{', '.join(f'{label}={json.dumps(value)}' for label, value in sorted(labels.items()))}}}"
