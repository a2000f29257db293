"""Tiers that keep KV cache behind a vLLM pod: OffloadingConnector."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from disagg.api.kv_transfer import Connector, Offload
from disagg.build.engines.vllm_connectors import Pod
from disagg.build.engines.vllm_releases import OFFLOAD, OFFLOAD_TIERS
from disagg.build.offload import tiers
from disagg.build.transfer import Transfer
from disagg.build.volumes import Volume


@dataclass(frozen=True)
class Offloading:
    """Tiers of a pod, as far as its release has them.

    Attributes:
        config: Configuration of the connector, or None for no tiers.
        memory: Bytes of CPU memory.
        volumes: Volumes behind it.
        notes: What was asked for, but is not there, and why.
    """

    config: dict[str, Any] | None = None
    memory: int = 0
    volumes: list[Volume] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def offloading(pod: Pod, transfer: Transfer) -> Offloading:
    """The tiers that a user wants, as far as the release has them."""
    wanted = tiers(transfer.offload)
    if not wanted.cpu_bytes:
        return Offloading()
    if missing := _missing(pod, transfer):
        return Offloading(notes=[f"kvTransfer.offload is left out: {missing}"])
    folders, told = _folders(pod, transfer.offload)
    extra: dict[str, Any] = {
        # Of one engine, for all its tensor-parallel ranks. Each data-parallel rank is an engine.
        "cpu_bytes_to_use": wanted.cpu_bytes_per_rank(pod.data),
    }
    if folders:
        extra |= {
            "spec_name": "TieringOffloadingSpec",
            "secondary_tiers": [{"type": "fs", "root_dir": folder} for folder in folders],
        }
    return Offloading(
        config={
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": extra,
        },
        memory=wanted.cpu_bytes,
        volumes=[volume for volume in wanted.volumes if volume.path in folders],
        notes=told,
    )


def _missing(pod: Pod, transfer: Transfer) -> str:
    """Why the pod can have no tiers at all, or an empty text."""
    if pod.device not in ("cuda", "xpu"):
        return "vLLM's OffloadingConnector is for GPUs"
    if pod.release not in OFFLOAD:
        return "OffloadingConnector of vLLM before 0.14 takes no size in bytes"
    if transfer.connector is Connector.LMCACHE:
        return "LMCache keeps KV cache by itself; use connector nixl"
    return ""


def _folders(pod: Pod, offload: Offload) -> tuple[list[str], list[str]]:
    """The folders behind the CPU memory, the nearest first, and what is told of them."""
    folders, told = list[str](), list[str]()
    disk, shared = offload.disk, offload.shared_file_system
    if (disk or shared) and pod.release not in OFFLOAD_TIERS:
        return [], ["kvTransfer.offload.disk and sharedFileSystem are left out: vLLM has them since 0.23"]
    if disk is not None and disk.storage_class is None:
        told.append(
            "kvTransfer.offload.disk is left out: vLLM never deletes what it wrote there, and Kubernetes evicts a pod"
            " whose emptyDir is full; set kvTransfer.offload.disk.storageClass for a volume that can just be full"
        )
    elif disk is not None:
        folders.append(disk.path)
    if shared is not None:
        folders.append(shared.path)
        told.append(
            "vLLM never deletes what it wrote to kvTransfer.offload.sharedFileSystem: delete old files yourself"
        )
    return folders, told
