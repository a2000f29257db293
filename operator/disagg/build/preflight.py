"""The init container that checks a pod before its engine spends half an hour on loading a model."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib import resources
from typing import Any

from disagg.api.engine import EngineKind
from disagg.api.kv_transfer import Transport
from disagg.api.model import ModelSource
from disagg.api.names import RoleName
from disagg.api.spec import Spec
from disagg.build.engines.engine import LAST_WORDS
from disagg.build.fabrics import Preset
from disagg.build.model_files import ModelFiles
from disagg.build.network import Network, preset_of
from disagg.build.transfer import Transfer
from disagg.build.volumes import Volume
from disagg.topology.amounts import parse

CONTAINER = "preflight"
"""Name of the init container."""


def _terse(source: str) -> str:
    """Python without comments and docstrings: whoever describes a pod has to scroll past it."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            node.body = [
                part
                for part in node.body
                if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
    return ast.unparse(tree)


SCRIPT = _terse(resources.files("disagg.build").joinpath("preflight_check.py").read_text("utf-8"))
"""What it runs. The engines' images all have Python, and are on the node by then."""
SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - a mount, not a file
LEAST_SHARED_MEMORY = 1 << 30
"""Size of /dev/shm below which ranks fail to start, in bytes: a container's own has 64 MiB."""

_CPU_AND_MEMORY = ("cpu", "memory")
_OFFLINE = "HF_HUB_OFFLINE"
_HUGGING_FACE_HOME = "HF_HOME"
_WRITABLE = frozenset({"persistentVolumeClaim", "ephemeral", "emptyDir"})
_READABLE = frozenset({"persistentVolumeClaim", "image"})


def preflight(
    container: Mapping[str, Any],
    *,
    transfer: Transfer,
    network: Network,
    volumes: Sequence[Volume],
    model: str | None,
) -> dict[str, Any]:
    """The init container that checks what a pod has.

    It has the devices, volumes and rights of the engine's container, but for the accelerators, and takes nothing of a node
    that the engine does not: of what init containers and containers request, the scheduler takes the greater. CPU and memory
    are those of the engine, since with others a pod of the class Guaranteed would not be one (k8s.io/kubernetes
    pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS).

    Args:
        container: The engine's container.
        transfer: How KV cache moves.
        network: What the pod needs for that.
        volumes: Those volumes of the engine's container that are to be checked.
        model: Path of the model, or None where it is not known to be in the pod.
    """
    arguments = [
        *(_rdma(preset_of(transfer)) if transfer.transport is Transport.RDMA else []),
        *_memory(volumes),
        *(f"--readable={volume.path}" for volume in volumes if volume.read_only and _is(volume, _READABLE)),
        *([f"--model={model}"] if model is not None else []),
        *(f"--writable={volume.path}" for volume in volumes if _is_written(volume, container)),
    ]
    check: dict[str, Any] = {
        "name": CONTAINER,
        "image": container["image"],
        # Neither the environment nor what is installed in the image has a say.
        "command": ["python3", "-I", "-S", "-c", SCRIPT],
        "args": arguments,
        **LAST_WORDS,
    }
    if needed := _resources(container.get("resources") or {}, network):
        check["resources"] = needed
    return check | {
        key: deepcopy(container[key]) for key in ("volumeMounts", "securityContext") if key in container
    }


def model_path(spec: Spec, role: RoleName, files: ModelFiles) -> str | None:
    """Path of the model that the check is to find, or None where it cannot know of one.

    What an overlay mounts is in the engine's container alone, and a custom engine is told its model by the user.

    Args:
        spec: The resource's spec.
        role: prefill or decode.
        files: Where the files of the model are.
    """
    if not files.local or spec.engine.kind is EngineKind.CUSTOM:
        return None
    overlay: Mapping[str, Any] = getattr(spec, role).pod_template.overlay.get("spec") or {}
    mounts = any(container.get("volumeMounts") for container in overlay.get("containers") or ())
    return None if spec.model.source is ModelSource.PATH and mounts else files.model


def _rdma(preset: Preset) -> list[str]:
    driver = [f"--driver={preset.driver}"] if preset.driver is not None else []
    return ["--rdma", *driver, *([] if preset.device_files else ["--no-device-files"])]


def _memory(volumes: Sequence[Volume]) -> list[str]:
    for volume in volumes:
        if volume.path == SHARED_MEMORY_PATH:
            wanted = parse(
                {"size": (volume.source.get("emptyDir") or {}).get("sizeLimit") or LEAST_SHARED_MEMORY}
            )
            return [f"--shared-memory={min(wanted['size'] // 1000, LEAST_SHARED_MEMORY)}"]
    return []


def _is_written(volume: Volume, container: Mapping[str, Any]) -> bool:
    if volume.read_only or volume.path == SHARED_MEMORY_PATH or not _is(volume, _WRITABLE):
        return False
    values = {variable["name"]: variable.get("value") for variable in container.get("env") or ()}
    # Where nothing is downloaded, the volume with downloads may be read-only.
    return not (volume.path == values.get(_HUGGING_FACE_HOME) and values.get(_OFFLINE) == "1")


def _is(volume: Volume, kinds: frozenset[str]) -> bool:
    return not kinds.isdisjoint(volume.source)


def _resources(engine: Mapping[str, Any], network: Network) -> dict[str, Any]:
    # As the engine has them, so that what the user says of the device holds here, too.
    limits = {
        name: amount
        for name, amount in (engine.get("limits") or {}).items()
        if name in _CPU_AND_MEMORY or name in network.resources
    }
    requests = {
        name: amount for name, amount in (engine.get("requests") or {}).items() if name in _CPU_AND_MEMORY
    }
    claims = [dict(claim) for claim in engine.get("claims") or ()]
    parts: dict[str, Any] = {"requests": requests, "limits": limits, "claims": claims}
    return {name: part for name, part in parts.items() if part}
