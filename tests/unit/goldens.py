"""The pod templates of three resources, as each revision of the renderer made them, and the hashes of their inputs.

`python -m tests.unit.goldens` writes the folder of the present `RENDER_REVISION`, unless there is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from disagg.api.resource import DisaggregatedInference
from disagg.build.pod_template import RENDER_REVISION, pod_templates
from tests.unit.resources import SMG, resource

REVISIONS = Path(__file__).parent / "golden"
FOLDER = REVISIONS / f"revision-{RENDER_REVISION}"

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
}


def rendered(example: DisaggregatedInference) -> dict[str, Any]:
    """The pod templates of a resource and the hashes of their inputs, by role."""
    templates = pod_templates(example)
    return {
        "inputs": {str(role): template.inputs for role, template in templates.items()},
        "templates": {str(role): template.body for role, template in templates.items()},
    }


class _Dumper(yaml.SafeDumper):
    """Repeats shared nodes, for readers."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def main() -> None:
    FOLDER.mkdir(parents=True)
    for name, example in EXAMPLES.items():
        text = yaml.dump(rendered(example), Dumper=_Dumper, sort_keys=False, width=120)
        (FOLDER / f"{name}.yaml").write_text(text)


if __name__ == "__main__":
    main()
