"""Levels of a cluster's network, and the node labels that say which host, rack, block and zone a node is in.

Kubernetes knows a label for the host and one for the zone. What lies between has a key for each cloud and each tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Levels, from narrow to wide."""

    HOST = "host"
    RACK = "rack"
    BLOCK = "block"
    ZONE = "zone"


HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

LevelMap = Mapping[str, str]
"""Name of a level -> key of the node label that carries its value."""

PRESETS: dict[str, dict[str, str]] = {
    # A convention, not one of Kubernetes' well-known labels.
    "generic": {"rack": "topology.kubernetes.io/rack", "block": "topology.kubernetes.io/block"},
    # https://cloud.google.com/ai-hypercomputer/docs/workloads/schedule-gke-workloads-tas
    "gke": {
        "host": "cloud.google.com/gce-topology-host",
        "rack": "cloud.google.com/gce-topology-subblock",
        "block": "cloud.google.com/gce-topology-block",
    },
    # Of Amazon's network node layers, layer 3 is the closest to the instance.
    "eks": {
        "rack": "topology.k8s.aws/network-node-layer-3",
        "block": "topology.k8s.aws/network-node-layer-2",
    },
    # https://github.com/oracle-quickstart/oci-hpc-oke, docs/using-rdma-network-locality-when-running-workloads-on-oke.md
    "oke": {
        "host": "oci.oraclecloud.com/rdma.host_id",
        "rack": "oci.oraclecloud.com/rdma.local_block_id",
        "block": "oci.oraclecloud.com/rdma.network_block_id",
    },
    # https://docs.coreweave.com/products/networking/hpc-interconnect/infiniband-roce-labels
    "coreweave": {
        "rack": "backend.coreweave.cloud/leafgroup",
        "block": "backend.coreweave.cloud/fabric",
    },
    # Of Nebius' tiers, tier 0 is the nearest.
    "nebius": {
        "host": "topology.nebius.com/tier-0",
        "rack": "topology.nebius.com/tier-1",
        "block": "topology.nebius.com/tier-2",
    },
    # https://docs.nvidia.com/topograph: keys up to 0.5, and from 1.0, where tier 0 is the nearest
    "topograph-0.5": {
        "rack": "network.topology.nvidia.com/leaf",
        "block": "network.topology.nvidia.com/spine",
    },
    "topograph": {"rack": "fabric.topograph.run/tier-0", "block": "fabric.topograph.run/tier-1"},
    # https://github.com/NVIDIA/k8s-device-plugin, GPU feature discovery: one NVLink clique
    "gpu-operator": {"rack": "nvidia.com/gpu.clique"},
}
"""Level maps by name. Each has Kubernetes' own labels for host and zone, unless it names better ones."""


@dataclass(frozen=True)
class PackLevel:
    """The level that a group is packed into.

    Attributes:
        key: Key of the node label.
        wider_key: Key of the next wider level, or None: where pods go first that the domain has no room for.
    """

    key: str
    wider_key: str | None = None


def level_map(preset: str, overrides: LevelMap) -> dict[str, str]:
    """The level map of a preset with `overrides` laid over it.

    Raises:
        ValueError: There is no such preset or level.
    """
    if preset not in PRESETS:
        raise ValueError(f"topology preset {preset!r} is unknown: use one of {', '.join(sorted(PRESETS))}")
    for level in overrides:
        if level not in list(Level):
            raise ValueError(f"topology level {level!r} is unknown: use one of {', '.join(Level)}")
    return {Level.HOST: HOSTNAME, Level.ZONE: ZONE} | PRESETS[preset] | dict(overrides)


def resolve(pack_domain: str, levels: LevelMap) -> PackLevel | None:
    """The level that `pack_domain` names.

    Args:
        pack_domain: A level, or a label key, which has a `/`.
        levels: The level map.

    Returns:
        None if the map has no key for the level.
    """
    if "/" in pack_domain:
        return PackLevel(pack_domain)
    if (key := levels.get(pack_domain)) is None:
        return None
    names = list(Level)
    wider = names[names.index(Level(pack_domain)) + 1 :]
    return PackLevel(key, next((levels[level] for level in wider if level in levels), None))
