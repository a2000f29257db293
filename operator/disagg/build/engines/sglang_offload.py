"""SGLang's tiers for KV cache (HiCache): CPU memory, and one folder of files behind it.

Prefill has them, since it is prefill that has a prefix cache. Decode has none, and can only add what it has generated to files
that prefill reads: the next turn of a conversation begins with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from disagg.api.names import RoleName
from disagg.build.engines import sglang_release as since
from disagg.build.engines.engine import variable
from disagg.build.engines.version import Release
from disagg.build.offload import Tiers
from disagg.build.volumes import Volume

GIGABYTE = 10**9
"""What `--hicache-size` counts in (sglang/srt/mem_cache/pool_host/base.py)."""
_SHARE_OF_DISK = 95
"""Percent of a disk that files may fill: a folder that outgrows its emptyDir has the pod evicted."""

_CPU_ONLY = "only the CPU memory of kvTransfer.offload is used"
_ONE_PLACE = "SGLang keeps files in one place: of kvTransfer.offload, disk is not used"


@dataclass(frozen=True)
class Offloading:
    """How a pod is told of its tiers.

    Attributes:
        args: Arguments.
        env: Environment.
        volumes: Volumes of the folder.
        memory: Bytes of CPU memory.
        notes: What a user should know.
    """

    args: list[str] = field(default_factory=list)
    env: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    memory: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Served:
    """What decides whether KV cache in files is of use to another rank, pod or request.

    Attributes:
        files: Name of a folder that pods share only if they lay out KV cache alike.
        adapters: Whether there are LoRA adapters.
        decode_readable: Whether prefill can read what decode has filed: each rank files its own heads.
    """

    files: str
    adapters: bool
    decode_readable: bool


def offloading(tiers: Tiers, role: RoleName, ranks: int, release: Release, served: Served) -> Offloading:
    """How a pod of `role` is told of its tiers.

    Args:
        tiers: The tiers of a pod.
        role: prefill or decode.
        ranks: Ranks of the pod, which share the CPU memory.
        release: Release of SGLang.
        served: What decides whether files are of use.
    """
    if not tiers.cpu_bytes:
        return Offloading()
    folder, capped, notes = _folder(tiers, release, served)
    if role is RoleName.DECODE:
        if folder is None or tiers.shared_path is None or not served.decode_readable:
            return Offloading()
        start = "--disaggregation-decode-enable-offload-kvcache"
    else:
        start = "--enable-hierarchical-cache"
    size = max(1, tiers.cpu_bytes // ranks // GIGABYTE)
    args, env, volumes = [start, f"--hicache-size={size}"], list[dict[str, Any]](), list[Volume]()
    if folder is not None:
        args.append("--hicache-storage-backend=file")
        env.append(variable("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", f"{folder}/{served.files}"))
        volumes = [volume for volume in tiers.volumes if volume.path == folder]
    if capped:
        # Each rank counts its own files.
        limit = tiers.disk_bytes * _SHARE_OF_DISK // 100 // ranks
        env.append(variable("SGLANG_HICACHE_FILE_BACKEND_MAX_SIZE", limit))
    if release < since.SMALL_HOST_POOL:
        notes.append(
            "SGLang before 0.5.15 starts only if kvTransfer.offload.cpu gives each rank more than its accelerator"
            " has for KV cache"
        )
    memory = size * GIGABYTE * ranks
    if memory > tiers.cpu_bytes:
        notes.append(
            f"kvTransfer.offload.cpu is raised to {size * ranks} GB: SGLang takes whole GB for each rank"
        )
    return Offloading(args, env, volumes, memory, notes)


def _folder(tiers: Tiers, release: Release, served: Served) -> tuple[str | None, bool, list[str]]:
    """Where files are kept, whether their size has to be bounded, and what a user should know."""
    wanted = tiers.shared_path or tiers.disk_path
    if wanted is None:
        return None, False, []
    if served.adapters and release < since.ADAPTERS_IN_FILES:
        return (
            None,
            False,
            [f"SGLang before 0.5.20 would read files of one LoRA adapter for another: {_CPU_ONLY}"],
        )
    if tiers.shared_path is not None:
        return wanted, False, [_ONE_PLACE] if tiers.disk_path is not None else []
    if release < since.BOUNDED_FILES:
        return None, False, [f"SGLang before 0.5.14 fills a disk without end: {_CPU_ONLY}"]
    return wanted, True, []
