"""The scaler's manifest, field by field: KEDA's kinds are in no package of Kubernetes' own schemas, and a field that KEDA does
not know would be dropped without a word, or refuse the whole."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.deploy.test_files import DEPLOY, manifests


def known(required: str = "", **fields: Any) -> dict[str, Any]:
    """An object of these fields and no others."""
    return {"type": "object", "properties": fields, "required": required.split(), "additionalProperties": False}


TEXT, TRUTH, COUNT = {"type": "string", "minLength": 1}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
#: What KEDA's prometheus scaler reads; all that it is told is text, numbers too.
PROMETHEUS = known("serverAddress query threshold", **dict.fromkeys(
    ("serverAddress", "query", "threshold", "activationThreshold", "namespace", "customHeaders", "queryParameters", "authModes",
     "ignoreNullValues", "unsafeSsl", "timeout"), TEXT,
))  # fmt: skip
TRIGGER = known(
    "type metadata", type={"const": "prometheus"}, name=TEXT, metadata=PROMETHEUS, useCachedMetrics=TRUTH,
    metricType={"enum": ["AverageValue", "Value"]}, authenticationRef=known("name", name=TEXT, kind=TEXT),
)  # fmt: skip
#: `keda.sh/v1alpha1`, by KEDA's own reference of a ScaledObject.
SCALED_OBJECT = known(
    "apiVersion kind metadata spec", apiVersion={"const": "keda.sh/v1alpha1"}, kind={"const": "ScaledObject"},
    metadata=known("name", name=TEXT, namespace=TEXT, labels={}, annotations={}),
    spec=known(
        "scaleTargetRef triggers",
        scaleTargetRef=known("name", name=TEXT, apiVersion=TEXT, kind=TEXT, envSourceContainerName=TEXT),
        **dict.fromkeys(
            ("pollingInterval", "cooldownPeriod", "initialCooldownPeriod", "idleReplicaCount", "minReplicaCount",
             "maxReplicaCount"), COUNT,
        ),
        fallback=known("failureThreshold replicas", failureThreshold=COUNT, replicas=COUNT, behavior=TEXT),
        advanced=known(restoreToOriginalReplicaCount=TRUTH, horizontalPodAutoscalerConfig=known(name=TEXT, behavior={})),
        triggers={"type": "array", "minItems": 1, "items": TRIGGER},
    ),
)  # fmt: skip


def test_keda_knows_every_field_of_the_scaler() -> None:
    [scaler] = manifests("ScaledObject")
    jsonschema.validate(scaler, SCALED_OBJECT)


def test_kubernetes_knows_the_autoscaler_that_keda_makes_of_it() -> None:
    [scaler] = manifests("ScaledObject")
    spec = scaler["spec"]
    made = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "keda-hpa-worker"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", **spec["scaleTargetRef"]},
            "minReplicas": spec["minReplicaCount"], "maxReplicas": spec["maxReplicaCount"],
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }  # fmt: skip
    kubernetes_validate.validate(made, "1.31", strict=True)


WRONG = {
    'threshold: "8"': "threshold: 8", "minReplicaCount": "minReplicas", "serverAddress": "server",
    "type: prometheus": "type: redis",
}  # fmt: skip


@pytest.mark.parametrize(("right", "wrong"), WRONG.items())
def test_a_scaler_that_is_wrong_is_refused(right: str, wrong: str) -> None:
    text = (DEPLOY / "kubernetes" / "keda.yaml").read_text()
    assert right in text
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text.replace(right, wrong)), SCALED_OBJECT)
