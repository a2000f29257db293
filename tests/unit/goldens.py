"""The pod templates of some resources, as each revision of the renderer made them, and the hashes of their inputs.

`python -m tests.unit.goldens` writes the folder of the present `RENDER_REVISION`, unless there is one.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from disagg.api.names import RoleName
from disagg.api.resource import DisaggregatedInference, parse
from disagg.api.topology_constraint import PackMode
from disagg.build.placement import placed
from disagg.build.pod_template import RENDER_REVISION, pod_templates
from disagg.build.preflight import SCRIPT
from disagg.decide.decisions import GroupDecision, Mechanism, Placement
from tests.unit.resources import SMG, resource

REVISIONS = Path(__file__).parent / "golden"
FOLDER = REVISIONS / f"revision-{RENDER_REVISION}"

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OWN_TERM = {"weight": 1, "podAffinityTerm": {"topologyKey": "example.com/cell", "labelSelector": {}}}

EXAMPLES: dict[str, DisaggregatedInference] = {
    "smallest": resource(),
    "all-fields": resource(
        model={
            "uri": "hf://org/llama-70b",
            "servedName": "llama-70b",
            "tokenSecret": {"name": "hf-token", "key": "token"},
        },
        engine={
            "image": "vllm/vllm-openai:v0.32.0",
            "args": ["--max-model-len=32768"],
            "env": [{"name": "HF_HUB_OFFLINE", "value": "0"}],
        },
        accelerator={"resource": "amd.com/gpu", "perRank": 1},
        prefill={
            "replicas": 4,
            "image": "vllm/vllm-openai:v0.18.0",
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "resources": {"requests": {"cpu": "8", "memory": "64Gi"}},
            "podTemplate": {
                "spec": {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"operator": "Exists"}]}
            },
        },
        decode={
            "autoscaling": {"maxReplicas": 4},
            "args": ["--enable-prefix-caching"],
            "parallelism": {"tensor": 4},
            "podTemplate": {
                "metadata": {"annotations": {"team": "ml"}},
                "spec": {
                    "containers": [{"name": "engine", "tty": True}, {"name": "sidecar", "image": "sidecar:1"}]
                },
            },
        },
        router={
            "replicas": 2,
            "args": ["--policy=cache_aware"],
            "resources": {"limits": {"memory": "2Gi"}},
            "podTemplate": {"spec": {"priorityClassName": "high"}},
        },
    ),
    "sglang-behind-smg": resource(
        **SMG
        | {
            "model": {"uri": "/models/llama", "tokenSecret": {"name": "hf-token"}},
            "accelerator": {"perRank": 0},
            "prefill": {"args": ["--disaggregation-mode=prefill"]},
            "decode": {"args": ["--disaggregation-mode=decode"]},
        }
    ),
    "packed": resource(
        decode={"podTemplate": {"spec": {"affinity": {"podAffinity": {_PREFERRED: [_OWN_TERM]}}}}},
        topologyConstraint={"packDomain": "rack"},
    ),
    "packed-required": resource(
        groups=2,
        decode={"podTemplate": {"spec": {"topologySpreadConstraints": []}}},
        topologyConstraint={"packDomain": "rack", "mode": "Required"},
    ),
}

_TRANSPORTS: dict[str, dict[str, Any]] = {
    "tcp": {"transport": "tcp"},
    "mooncake-tcp": {"transport": "tcp", "connector": "mooncake"},
    "infiniband": {"transport": "rdma", "fabric": "infiniband"},
    "mooncake-roce": {"transport": "rdma", "fabric": "roce", "connector": "mooncake"},
    "roce": {"transport": "rdma", "fabric": "roce"},
    "efa": {"transport": "rdma", "fabric": "efa"},
    "gke": {"transport": "rdma", "fabric": "gke"},
    "gke-dranet": {"transport": "rdma", "fabric": "gke-dranet", "rdma": {"resourceClaimTemplate": "gpu-nic"}},
    "oci": {"transport": "rdma", "fabric": "oci"},
    "aks": {"transport": "rdma", "fabric": "aks"},
}
_ENGINES: dict[str, dict[str, Any]] = {
    "vllm": {"engine": {"image": "vllm/vllm-openai:v0.33.0"}},
    "vllm-0.18": {"engine": {"image": "vllm/vllm-openai:v0.18.0"}},
    "sglang": {
        "engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5.23"},
        "router": {"kind": "smg", "image": "smg:1.13.0"},
    },
    "trtllm": {"engine": {"kind": "trtllm", "image": "nvcr.io/nvidia/tensorrt-llm/release:1.2.0"}},
}
_PAIR: dict[str, Any] = {
    "model": {"uri": "hf://openai/gpt-oss-120b"},
    "prefill": {"resources": {"requests": {"cpu": "8", "memory": "16Gi"}}},
    "decode": {"parallelism": {"tensor": 4}, "resources": {"requests": {"cpu": "16", "memory": "64Gi"}}},
}
"""Prefill pods of one GPU and decode pods of four, as in llm-d's guide to prefill/decode disaggregation."""

EXAMPLES |= {
    f"{engine}-{transport}": resource(**_PAIR, **_ENGINES[engine], kvTransfer=_TRANSPORTS[transport])
    for engine in _ENGINES
    for transport in _TRANSPORTS
}
EXAMPLES |= {
    f"example-{file.stem}": parse(yaml.safe_load(file.read_text()))
    for file in sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
}

PLACEMENTS: dict[str, Placement] = {
    "packed": Placement(
        key="example.com/rack",
        mode=PackMode.PREFERRED,
        mechanism=Mechanism.POD_AFFINITY,
        first=RoleName.DECODE,
        domain="rack-a",
        wider_key="example.com/row",
        wider_domain="row-1",
        nodes=("gpu-1", "gpu-2"),
        within=("rack-a", "rack-b"),
    ),
    "packed-required": Placement(
        key="example.com/rack",
        mode=PackMode.REQUIRED,
        mechanism=Mechanism.POD_GROUP,
        first=RoleName.DECODE,
        domain="rack-a",
    ),
}
"""Where the first group of an example is packed. It is a part of the inputs of a template."""


def rendered(name: str) -> dict[str, Any]:
    """The pod templates of an example and the hashes of their inputs, by role."""
    example = EXAMPLES[name]
    groups = {0: GroupDecision(PLACEMENTS[name])} if name in PLACEMENTS else {}
    templates = placed(example, pod_templates(example), groups)
    return {
        "inputs": {str(role): template.inputs for role, template in templates.items()},
        "templates": {str(role): _readable(template.body) for role, template in templates.items()},
    }


def _readable(body: dict[str, Any]) -> dict[str, Any]:
    """A pod template with a hash in place of the script of the preflight check."""
    readable = deepcopy(body)
    for container in readable["spec"].get("initContainers", []):
        digest = hashlib.sha256(SCRIPT.encode()).hexdigest()
        container["command"] = [
            f"preflight_check.py {digest}" if word == SCRIPT else word
            for word in container.get("command", [])
        ]
    return readable


class _Dumper(yaml.SafeDumper):
    """Repeats shared nodes, for readers."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def main() -> None:
    FOLDER.mkdir(parents=True)
    for name in EXAMPLES:
        text = yaml.dump(rendered(name), Dumper=_Dumper, sort_keys=False, width=120)
        (FOLDER / f"{name}.yaml").write_text(text)


if __name__ == "__main__":
    main()
