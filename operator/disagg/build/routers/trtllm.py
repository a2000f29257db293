"""TensorRT-LLM's own orchestrator, `trtllm-serve disaggregated`, in the engine's image.

It has one address for each role: the headless Service of the role's pods in its group. Whichever context server computes a prompt tells in its answer
where its KV cache is, so the next request may go to any. The orchestrator closes a connection soon after it was used, and its
HTTP client (aiohttp) takes the addresses of a name in turns and looks them up again after ten seconds. Pods that come and go are
followed by that much later, and a connection that a pod refuses goes to the next address.

Its own discovery (`disagg_cluster`) is not used: workers would register with one orchestrator, over HTTP, which releases of 2026
restrict to localhost (TRT-LLM#14161), or in an etcd.
"""

from __future__ import annotations

from typing import Any

from disagg.api import plain_yaml
from disagg.api.names import RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.spec import Spec
from disagg.build.engines.engine import FILES_PATH, HTTP_PORT, STARTUP_SECONDS, ConfigFile
from disagg.build.engines.trtllm_releases import KEEP_ALIVE, known
from disagg.build.engines.version import release
from disagg.build.routers.router import ROUTER_PORT, RouterPod

CONFIG_FILE = "config.yaml"
AUTH_KEY = "internal_request_auth_key"
"""Option of the engine's configuration file that the orchestrator must have, too: it signs with it what it hands from one role
to the other (TRT-LLM#16002)."""
REQUEST_SECONDS = 1800
"""Time for a whole answer, as with the other routers. The orchestrator's own 180 s would cut long ones."""
WAIT_SECONDS = STARTUP_SECONDS + 600
"""How long the orchestrator waits for both roles before it gives up and starts anew: for pods to be scheduled, to pull their
image and to load the model. It does not listen before. Its own 180 s would be a crash loop."""
KEEP_ALIVE_SECONDS = 120
"""How long an idle connection of a client stays open: longer than gateways and clients in Go keep theirs, which is 90 s."""


def router_pod(resource: DisaggregatedInference, group: int) -> RouterPod:
    """The router that pairs the pods of `group`."""
    spec = resource.spec
    return RouterPod(
        image=spec.router.image or spec.engine.image,
        command=["trtllm-serve"],
        args=[
            "disaggregated",
            "-c",
            f"{FILES_PATH}/{CONFIG_FILE}",
            f"--server_start_timeout={WAIT_SECONDS}",
            f"--request_timeout={REQUEST_SECONDS}",
        ],
        config_file=ConfigFile(CONFIG_FILE, plain_yaml.dump([_config(resource, group)])),
        startup_seconds=WAIT_SECONDS + 60,
        watches_pods=False,
    )


def read_of_engine(spec: Spec) -> dict[str, Any]:
    """What the router is made from besides `spec.router`: fields below `engine`."""
    fields: dict[str, Any] = {"kind": spec.engine.kind, "image": spec.engine.image}
    if spec.engine.version is not None:
        fields["version"] = spec.engine.version
    if (key := (spec.engine.config or {}).get(AUTH_KEY)) is not None:
        fields["config"] = {AUTH_KEY: key}
    return fields


def group_service_name(resource: str, workload: Workload) -> str:
    """Name of the Service of an engine role in one group.

    It has a number in the first group, too: without one it is the Service with the role's pods of all groups.
    """
    return f"{resource}-{workload.role}-{workload.group}"


def _config(resource: DisaggregatedInference, group: int) -> dict[str, Any]:
    spec = resource.spec
    config: dict[str, Any] = {
        "hostname": "0.0.0.0",  # noqa: S104 - a Service must reach it
        "port": ROUTER_PORT,
        "backend": "pytorch",
        "context_servers": _servers(resource, Workload(RoleName.PREFILL, group)),
        "generation_servers": _servers(resource, Workload(RoleName.DECODE, group)),
    }
    image = spec.router.image or spec.engine.image
    version = spec.engine.version if spec.router.image is None else None
    if known(release(version, image)) >= KEEP_ALIVE:
        config["server_keep_alive_timeout"] = KEEP_ALIVE_SECONDS
    if (key := (spec.engine.config or {}).get(AUTH_KEY)) is not None:
        config[AUTH_KEY] = key
    return config


def _servers(resource: DisaggregatedInference, workload: Workload) -> dict[str, Any]:
    host = group_service_name(resource.metadata.name, workload)
    return {"num_instances": 1, "urls": [f"{host}:{HTTP_PORT}"]}
