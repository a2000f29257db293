"""What a pod needs to reach the other role: devices, capabilities and environment of the transport."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from disagg.api.kv_transfer import Transport
from disagg.build.transfer import Transfer
from disagg.build.volumes import Volume


@dataclass(frozen=True)
class Network:
    """The network of a pod, as far as KV cache crosses it.

    Attributes:
        resources: Extended resources of the engine's container.
        claims: Name of a resource claim of the pod -> its ResourceClaimTemplate.
        annotations: Annotations of the pod.
        env: Environment of the engine.
        capabilities: Linux capabilities of the engine's container.
        privileged: Whether that container runs privileged.
        volumes: Volumes with drivers of the fabric.
        holds_accelerators: Whether the claims hold the accelerators, too, so that they are not requested besides.
        affinity: Affinity of the pod, or an empty block.
    """

    resources: dict[str, str] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    env: list[dict[str, Any]] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=list)
    privileged: bool = False
    volumes: list[Volume] = field(default_factory=list)
    holds_accelerators: bool = False
    affinity: dict[str, Any] = field(default_factory=dict)


def network(transfer: Transfer, *, accelerator: str, ranks: int) -> Network:
    """What a pod needs to reach the other role.

    Args:
        transfer: How KV cache moves.
        accelerator: Extended resource of the accelerators, which tells their vendor.
        ranks: Accelerators of the pod; 0 for an engine that runs on the CPU.
    """
    del accelerator, ranks
    if transfer.transport is Transport.TCP:
        return Network()
    raise NotImplementedError
