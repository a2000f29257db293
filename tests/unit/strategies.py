"""Specs that the API server would take, for properties that hold for all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from disagg.api.resource import DisaggregatedInference, parse
from tests.unit.strategy_blocks import block, engines, models, parallelism, transfers

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)
"""Names that the rules of the CRD allow: of a Service, at most 50 characters."""

_WORDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,12}", fullmatch=True)
_ARGS = st.lists(_WORDS.map(lambda word: f"--{word}"), max_size=3)
_VARIABLE_NAMES = st.sampled_from(["HF_TOKEN", "PYTHONHASHSEED", "NCCL_DEBUG", "A", "B"])
_QUANTITIES = st.sampled_from(["1", "500m", "64Gi", "1.5", "1e3"])
_QUANTITY_MAPS = st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), _QUANTITIES)
_REPLICAS = st.integers(0, 10000)
_OVERLAYS = st.sampled_from(
    [
        {},
        {"metadata": {"annotations": {"a": "b"}, "labels": {"team": "ml", "disagg.dev/role": "mine"}}},
        {"spec": {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"operator": "Exists"}]}},
        {"spec": {"containers": [{"name": "sidecar", "image": "sidecar:1"}]}},
        {"spec": {"volumes": [{"name": "models", "emptyDir": {}}], "terminationGracePeriodSeconds": 3600}},
        {"spec": {"containers": [{"name": "engine", "image": "mine:1", "livenessProbe": None}]}},
        {"spec": {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}},
        {"spec": {"schedulerName": "another"}},
    ]
)


def _variables() -> SearchStrategy[list[dict[str, Any]]]:
    source = st.just({"fieldRef": {"fieldPath": "status.podIP"}})
    name = {"name": _VARIABLE_NAMES}
    variable = block(name, value=_WORDS) | block(name | {"valueFrom": source})
    return st.lists(variable, max_size=3, unique_by=lambda item: item["name"])


# Not both: a request above its limit is refused, and that is the API server's to say.
_RESOURCES = block(None, requests=_QUANTITY_MAPS) | block(None, limits=_QUANTITY_MAPS)


@st.composite
def _autoscaling(draw: DrawFn, target: str, most: int) -> dict[str, Any]:
    fewest = draw(st.integers(1, 100))
    bounds = {"minReplicas": fewest, "maxReplicas": draw(st.integers(fewest, 10000))}
    return bounds | draw(block(None, **{target: st.integers(1, most)}))


def _role(
    kind: str, role: str, tensor: int, autoscaling: SearchStrategy[dict[str, Any]]
) -> SearchStrategy[dict[str, Any]]:
    return block(
        {"parallelism": parallelism(kind, tensor=tensor, role=role)},
        replicas=_REPLICAS,
        args=_ARGS,
        env=_variables(),
        resources=_RESOURCES,
        drainSeconds=st.integers(300, 3600),
        podTemplate=_OVERLAYS,
        autoscaling=autoscaling,
    )


@st.composite
def _rollouts(draw: DrawFn) -> dict[str, Any]:
    amount = st.integers(0, 5) | st.integers(0, 100).map(lambda percent: f"{percent}%")
    rollout: dict[str, Any] = draw(block(maxSurge=amount, maxUnavailable=amount))
    if all(rollout.get(field) in (0, "0%") for field in ("maxSurge", "maxUnavailable")):
        rollout["maxSurge"] = 1
    return rollout


def _routers(kinds: list[str]) -> SearchStrategy[dict[str, Any]]:
    rest: dict[str, SearchStrategy[Any]] = {
        "replicas": _REPLICAS,
        "args": _ARGS,
        "resources": _RESOURCES,
        "podTemplate": _OVERLAYS,
        "service": block(
            type=st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]), port=st.integers(1, 65535)
        ),
    }
    image = {"image": st.sampled_from(["router:1", "registry.local:5000/router@sha256:0a1b"])}
    return st.sampled_from(kinds).flatmap(
        lambda kind: (
            block({"kind": st.just(kind)} | image, **rest)
            if kind == "smg"
            else block({"kind": st.just(kind)}, **image, **rest)
        )
    )


_ROUTERS = {
    "vllm": ["vllm-router", "none"],
    "trtllm": ["trtllm", "none"],
    "custom": ["vllm-router", "smg", "none"],
}
_KEYS = st.sampled_from(["example.com/rack", "topology.kubernetes.io/zone", "nvidia.com/gpu.clique"])
_TOPOLOGY_CONSTRAINTS = block(
    {"packDomain": st.sampled_from(["host", "rack", "block", "zone"]) | _KEYS},
    mode=st.sampled_from(["Preferred", "Required"]),
    levels=block(host=_KEYS, rack=_KEYS, block=_KEYS, zone=_KEYS),
)


@st.composite
def specs(draw: DrawFn) -> dict[str, Any]:
    """A spec that the API server would take."""
    kind = draw(st.sampled_from(["vllm", "sglang", "trtllm", "custom"]))
    engine = draw(engines(kind, _ARGS, _variables()))
    prefill_tensor = draw(st.sampled_from([1, 2, 4]))
    # With vLLM a decode rank reads from one prefill rank.
    decode_tensor = (
        prefill_tensor * draw(st.sampled_from([1, 2]))
        if kind == "vllm"
        else draw(st.sampled_from([1, 2, 4, 8, 16]))
    )
    spec: dict[str, Any] = draw(
        block(
            {
                "model": models(kind),
                "prefill": _role(kind, "prefill", prefill_tensor, _autoscaling("queueDepth", 100000)),
                "decode": _role(kind, "decode", decode_tensor, _autoscaling("kvCacheUtilization", 90)),
            },
            accelerator=block(
                resource=st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]), perRank=st.integers(0, 16)
            ),
            kvTransfer=transfers(kind),
            rollout=_rollouts(),
            groups=st.integers(1, 3),
            topologyConstraint=_TOPOLOGY_CONSTRAINTS,
            paused=st.booleans(),
        )
    )
    if kind == "sglang":
        spec["router"] = draw(_routers(["smg", "none"]))
    else:
        spec |= draw(block(None, router=_routers(_ROUTERS[kind])))
    return spec | {"engine": engine}


@st.composite
def raws(draw: DrawFn) -> dict[str, Any]:
    """A resource that the API server would return."""
    return {
        "apiVersion": "disagg.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {
            "name": draw(NAMES),
            "namespace": draw(NAMES),
            "uid": "00000000-0000-4000-8000-000000000000",
            "generation": draw(st.integers(1, 9)),
            "labels": {"argocd.argoproj.io/instance": "parent", "app.kubernetes.io/instance": "parent"},
        },
        "spec": draw(specs()),
    }


def resources() -> SearchStrategy[DisaggregatedInference]:
    """The same, parsed."""
    return raws().map(parse)
