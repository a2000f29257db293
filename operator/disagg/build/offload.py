"""Tiers that keep KV cache which the accelerator has no room for: sizes in bytes, and the volumes that they need."""

from __future__ import annotations

from dataclasses import dataclass

from disagg.api.kv_transfer import Offload, OffloadDisk
from disagg.build.volumes import Volume, claim
from disagg.topology.amounts import parse


@dataclass(frozen=True)
class Tiers:
    """Tiers of a pod.

    Attributes:
        cpu_bytes: CPU memory of the pod; 0 for no offload at all.
        disk_path: Folder on a disk, or None.
        disk_bytes: Its size.
        shared_path: Folder that all pods share, or None.
        volumes: Volumes of these folders.
    """

    cpu_bytes: int
    disk_path: str | None
    disk_bytes: int
    shared_path: str | None
    volumes: list[Volume]

    def cpu_bytes_per_rank(self, ranks: int) -> int:
        """CPU memory of each of `ranks` ranks."""
        return self.cpu_bytes // ranks


def tiers(offload: Offload) -> Tiers:
    """The tiers of a pod."""
    volumes = list[Volume]()
    if (disk := offload.disk) is not None:
        volumes.append(_disk(disk))
    if (shared := offload.shared_file_system) is not None:
        volumes.append(claim("kv-shared", shared.claim, shared.path))
    return Tiers(
        cpu_bytes=0 if offload.cpu is None else _bytes(offload.cpu),
        disk_path=disk.path if disk else None,
        disk_bytes=_bytes(disk.size) if disk else 0,
        shared_path=shared.path if shared else None,
        volumes=volumes,
    )


def _disk(disk: OffloadDisk) -> Volume:
    size = str(disk.size)
    if disk.storage_class is None:
        return Volume("kv-disk", {"emptyDir": {"sizeLimit": size}}, disk.path)
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": disk.storage_class,
        "resources": {"requests": {"storage": size}},
    }
    return Volume("kv-disk", {"ephemeral": {"volumeClaimTemplate": {"spec": wanted}}}, disk.path)


def _bytes(quantity: str | int) -> int:
    return parse({"memory": quantity})["memory"] // 1000
