"""vLLM's router (vllm-project/router). Flags are those of 0.1.17.

Its other defaults stay: a pod that fails ten times is left alone for a minute, a request may take half an hour, and requests
for a pair are not tried again, since KV cache may be gone with the first try.
"""

from __future__ import annotations

from disagg.api.kv_transfer import Connector
from disagg.api.names import RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.build.routers.router import HEALTH, METRICS_PORT, RouterPod, discovery, listening
from disagg.build.transfer import resolve

IMAGE = "vllm/vllm-router:v0.1.17"

_CONNECTORS = {Connector.NIXL: "nixl", Connector.MOONCAKE: "mooncake"}
"""Values of `--kv-connector`, which decides whether prefill comes first or both work at once."""


def router_pod(resource: DisaggregatedInference, group: int) -> RouterPod:
    """The router that pairs the pods of `group`.

    Raises:
        ValueError: It cannot pair pods with this connector.
    """
    connector = resolve(resource.spec).connector
    if connector not in _CONNECTORS:
        raise ValueError(f"router.kind: vllm-router cannot pair pods by kvTransfer.connector {connector}")
    return RouterPod(
        image=resource.spec.router.image or IMAGE,
        command=["vllm-router"],
        args=[
            "--vllm-pd-disaggregation",
            f"--kv-connector={_CONNECTORS[connector]}",
            # Its default of 60 s would send requests to a dead pod for a minute.
            "--health-check-interval-secs=5",
            *listening(),
            *discovery(resource, Workload(RoleName.PREFILL, group), Workload(RoleName.DECODE, group)),
        ],
        ports={"metrics": METRICS_PORT},
        health=HEALTH,
    )
