"""Alerts and dashboard: they name only what the code exports, and Prometheus can read them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from queue_kit.observe import metrics
from tests.support.processes import ROOT
from tests.support.programs import program, said_by

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboard.json"


def exported() -> set[str]:
    """Names of all series that web and workers have, from the very collectors that make them."""
    registry = CollectorRegistry()
    registry.register(metrics.QueueCollector(list, ()))
    registry.register(metrics.WorkerCollector(dict, dict, ()))
    names = set()
    for family in registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {f"{family.name}{suffix}" for suffix in suffixes}
    return names


def named_in(path: Path) -> set[str]:
    return set(re.findall(r"\bqwk_\w+", path.read_text()))


def test_no_file_names_a_metric_that_the_code_does_not_export() -> None:
    files = [RULES, RULES.with_name("rules.test.yml"), DASHBOARD, *(DEPLOY / "kubernetes").glob("*.yaml")]
    assert {path.name: named_in(path) - exported() for path in files if named_in(path) - exported()} == {}


def test_the_dashboard_shows_every_series_but_what_another_says_already() -> None:
    bare = {re.sub(r"_(sum|count)$", "_bucket", name) for name in exported()}
    assert bare - named_in(DASHBOARD) == set()


def test_recorded_series_are_named_as_they_are_recorded() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    used = set(re.findall(r"\bqueue_kit:[\w:]+", RULES.read_text() + DASHBOARD.read_text()))
    assert used == recorded


def test_what_loses_records_pages_and_all_else_warns() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    alerts = {rule["alert"]: rule["labels"]["severity"] for rule in rules if "alert" in rule}
    assert {name for name, severity in alerts.items() if severity == "page"} == {"DeadLetterWriteFailures", "QueueRedisDown"}
    assert set(alerts.values()) == {"page", "warn"}


def test_each_alert_is_tried_on_what_real_processes_tell() -> None:
    tried = Path(__file__).with_name("test_alerts.py").read_text()
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    assert [alert for alert in alerts if f'("{alert}", ' not in tried] == []


def test_prometheus_accepts_and_tries_them() -> None:
    promtool = program("promtool", "prometheus")
    assert "SUCCESS" in said_by(promtool, "check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    assert "SUCCESS" in said_by(promtool, "test", "rules", RULES.with_name("rules.test.yml"))


def test_every_expression_of_the_dashboard_can_be_read_by_prometheus(tmp_path: Path) -> None:
    """As rules, since that is what promtool reads; Grafana fills in its variables."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    filled = [expr.replace("$__rate_interval", "1m").replace("$queue", ".*") for expr in expressions]
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(filled)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in said_by(program("promtool", "prometheus"), "check", "rules", tmp_path / "panels.yml")


def test_panels_do_not_lie_on_each_other_and_each_has_its_title() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
