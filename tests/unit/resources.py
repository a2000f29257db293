"""What tests start from: the smallest resource with fields laid over it, its objects, and live objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from disagg.api.names import FIELD_MANAGER, RoleName, Workload
from disagg.api.resource import DisaggregatedInference, parse
from disagg.build.objects import build, plan
from disagg.build.pod_template import pod_templates
from disagg.decide.environment import Environment
from disagg.decide.observed import ObjectKey, Observed, key_of

SMALLEST: dict[str, Any] = {
    "apiVersion": "disagg.dev/v1alpha1",
    "kind": "DisaggregatedInference",
    "metadata": {"name": "llama", "namespace": "inference", "uid": "u-1", "generation": 1},
    "spec": {"model": {"uri": "hf://org/llama"}, "engine": {"image": "vllm/vllm-openai:v0.32.0"}},
}

SMG: dict[str, Any] = {
    "engine": {"kind": "custom", "image": "lmsysorg/sglang:v0.5"},
    "router": {"kind": "smg", "image": "smg:1.13.0"},
}
"""Fields that make a resource one with SGLang behind smg."""


def raw(name: str = "llama", /, **spec: object) -> dict[str, Any]:
    """The smallest resource with `spec` laid over its spec, as the API server would return it."""
    return overlaid(SMALLEST, {"metadata": {"name": name}, "spec": spec})


def resource(name: str = "llama", /, **spec: object) -> DisaggregatedInference:
    """The same, parsed."""
    return parse(raw(name, **spec))


def overlaid(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the blocks of `overlay` laid over it. Lists and values replace what is there."""
    merged = deepcopy(dict(base))
    for key, value in overlay.items():
        present = merged.get(key)
        both = isinstance(present, Mapping) and isinstance(value, Mapping)
        merged[key] = overlaid(present, value) if both else deepcopy(value)  # type: ignore[arg-type]
    return merged


def objects(
    wanted: DisaggregatedInference, observed: Observed | None = None
) -> dict[ObjectKey, dict[str, Any]]:
    """The objects that a resource becomes, by kind and name."""
    observed = observed or Observed(wanted.metadata.name)
    decisions = plan(wanted, observed, Environment(), datetime(2026, 1, 1, tzinfo=UTC))
    return {key_of(obj): obj for obj in build(wanted, decisions)}


def template(wanted: DisaggregatedInference, role: str = "prefill") -> dict[str, Any]:
    """The pod template of a role."""
    return pod_templates(wanted)[Workload(RoleName(role))].body


def container(wanted: DisaggregatedInference, role: str = "prefill") -> dict[str, Any]:
    """The main container of a role."""
    return dict(template(wanted, role)["spec"]["containers"][0])


_LIST_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
}


def tree_of(value: object, *, name: str = "") -> dict[str, Any]:
    """The FieldsV1 tree of whoever applies `value`: sorted, with list items by their key fields, as the API server's."""
    if isinstance(value, Mapping):
        tree = {f"f:{key}": tree_of(child, name=key) for key, child in value.items()}
        return dict(sorted(tree.items()))
    if isinstance(value, list) and (keys := _list_keys(name, value)):
        items = {}
        for item in value:
            identity = {key: item.get(key, "TCP" if key == "protocol" else None) for key in keys}
            items[f"k:{json.dumps(identity, separators=(',', ':'))}"] = {".": {}} | tree_of(item)
        return dict(sorted(items.items()))
    return {}


def _list_keys(name: str, value: list[Any]) -> tuple[str, ...] | None:
    if name == "ports":
        return ("containerPort" if "containerPort" in value[0] else "port", "protocol")
    return _LIST_KEYS.get(name) if value else None


def managed(
    tree: Mapping[str, Any], manager: str = FIELD_MANAGER, operation: str = "Apply"
) -> dict[str, Any]:
    """An entry of `metadata.managedFields`."""
    return {
        "manager": manager,
        "operation": operation,
        "fieldsType": "FieldsV1",
        "fieldsV1": deepcopy(dict(tree)),
    }


def live(applied: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    """`applied` as the API server keeps it once the operator has applied it.

    Args:
        applied: What the operator has applied.
        others: Entries of `managedFields` of other managers.
    """
    body: dict[str, Any] = {
        key: value for key, value in applied.items() if key not in ("apiVersion", "kind", "metadata")
    }
    body["metadata"] = {
        key: value for key, value in applied["metadata"].items() if key not in ("name", "namespace")
    }
    obj = deepcopy(dict(applied))
    obj["metadata"] |= {
        "uid": "live",
        "resourceVersion": "7",
        "generation": 1,
        "managedFields": [managed(tree_of(body)), *(deepcopy(dict(other)) for other in others)],
    }
    return obj


def running(role: str = "prefill", replicas: int = 1, /, **status: object) -> dict[str, Any]:
    """A Deployment of `llama` that is rolled out, with `status` laid over its status."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": f"llama-{role}",
            "namespace": "inference",
            "uid": f"{role}-uid",
            "generation": 1,
        },
        "spec": {
            "replicas": replicas,
            "progressDeadlineSeconds": 4200,
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        },
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}],
        }
        | status,
    }


def observed(*children: dict[str, Any]) -> Observed:
    """What the operator has read of `llama`."""
    return Observed("llama", {key_of(child): child for child in children})
