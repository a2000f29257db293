"""The value of `--kv-transfer-config`: keys, roles and connectors that a release knows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict  # the one that pydantic reads on Python 3.11

from disagg.engine_sim.dialects import StartError

_KEYS = {
    "kv_connector",
    "engine_id",
    "kv_buffer_device",
    "kv_buffer_size",
    "kv_role",
    "kv_port",
    "kv_connector_extra_config",
    "kv_connector_module_path",
    "enable_permute_local_kv",
    "kv_load_failure_policy",
}
_LATER = {"kv_load_failure_policy": (0, 12), "enable_permute_local_kv": (0, 12)}
_UNTIL = {"kv_buffer_size": (0, 20)}
_ROLES = ("kv_producer", "kv_consumer", "kv_both")
_POLICIES = ("fail", "recompute")

_CONNECTORS = {
    "ExampleConnector", "ExampleHiddenStatesConnector", "LMCacheConnectorV1", "LMCacheMPConnector", "NixlConnector",
    "NixlPullConnector", "NixlPushConnector", "MultiConnector", "HiSparseConnector", "MoRIIOConnector",
    "OffloadingConnector", "DecodeBenchConnector", "MooncakeConnector", "MooncakeStoreConnector", "FlexKVConnectorV1",
    "SimpleCPUOffloadConnector", "HF3FSKVConnector",
}  # fmt: skip
_OLD_CONNECTORS = {"P2pNcclConnector", "SharedStorageConnector"}
_NIXL = {"NixlConnector", "NixlPullConnector"}
_LOCAL = {"OffloadingConnector", "SimpleCPUOffloadConnector", "LMCacheConnectorV1", "LMCacheMPConnector"}
"""Connectors to caches of the engine's own: without effect here."""


class _Types(TypedDict, total=False):
    kv_connector: str | None
    engine_id: str | None
    kv_buffer_device: str
    kv_buffer_size: float
    kv_port: int
    kv_connector_extra_config: dict[str, Any]
    kv_connector_module_path: str | None
    enable_permute_local_kv: bool


_TYPES = TypeAdapter(_Types)


@dataclass(frozen=True)
class KVTransfer:
    """The value. Attributes are named as its keys."""

    kv_connector: str | None
    kv_role: str | None
    engine_id: str | None
    kv_buffer_device: str
    kv_load_failure_policy: str
    extra: dict[str, Any]


def read_kv_transfer(text: str, release: tuple[int, int]) -> KVTransfer:
    """Read the value as that release does.

    Args:
        text: JSON.
        release: Of vLLM.

    Raises:
        ValueError: A key is unknown, or a value is not what it may be.
    """
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("an object is expected")  # noqa: TRY004 - what argparse expects
    known = {key for key in _KEYS if _LATER.get(key, release) <= release <= _UNTIL.get(key, release)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValueError(
            f"1 validation error for KVTransferConfig: {unknown[0]}: Unexpected keyword argument"
        )
    try:
        _TYPES.validate_python(value)
    except ValidationError as error:
        raise ValueError(str(error)) from error
    role = value.get("kv_role")
    if role is not None and role not in _ROLES:
        raise ValueError(f"Unsupported kv_role: {role}. Supported roles are {_ROLES}")
    if value.get("kv_connector") is not None and role is None:
        raise ValueError(f"Please specify kv_role when kv_connector is set, supported roles are {_ROLES}")
    policy = value.get(
        "kv_load_failure_policy", "fail" if release >= _LATER["kv_load_failure_policy"] else "recompute"
    )
    if policy not in _POLICIES:
        raise ValueError(f"kv_load_failure_policy: Input should be {_POLICIES}, not {policy!r}")
    extra = value.get("kv_connector_extra_config", {})
    if not isinstance(extra, dict):
        raise ValueError("kv_connector_extra_config: Input should be a valid dictionary")  # noqa: TRY004 - what argparse expects
    return KVTransfer(
        kv_connector=value.get("kv_connector"),
        kv_role=role,
        engine_id=value.get("engine_id"),
        kv_buffer_device=value.get("kv_buffer_device", "cuda"),
        kv_load_failure_policy=policy,
        extra=extra,
    )


def nixl_config(config: KVTransfer | None, release: tuple[int, int]) -> KVTransfer | None:
    """What the NIXL connector is told; None if there is none.

    Args:
        config: The value of --kv-transfer-config.
        release: Of vLLM.

    Raises:
        StartError: The connector does not exist, or is not simulated.
    """
    if config is None or config.kv_connector is None:
        return None
    name = config.kv_connector
    if name not in _CONNECTORS | (_OLD_CONNECTORS if release <= (0, 18) else set()):
        raise StartError(f"ValueError: Unsupported connector type: {name}")
    if name in _NIXL:
        return config
    if name == "MultiConnector":
        return _child(config, release)
    if name in _LOCAL:
        return None
    raise StartError(
        f"{name} is not simulated; there are NixlConnector, MultiConnector with it, and {sorted(_LOCAL)}"
    )


def _child(config: KVTransfer, release: tuple[int, int]) -> KVTransfer | None:
    children = config.extra.get("connectors")
    if not isinstance(children, list):
        raise StartError("AssertionError: MultiConnector needs kv_connector_extra_config.connectors")
    found = None
    for child in children:
        try:
            # Children have neither policy nor id of their own.
            read = read_kv_transfer(json.dumps(child), release)
        except ValueError as error:
            raise StartError(str(error)) from error
        inner = nixl_config(read, release)
        if inner is not None and found is None:
            found = KVTransfer(
                kv_connector=inner.kv_connector,
                kv_role=inner.kv_role,
                engine_id=config.engine_id,
                kv_buffer_device=inner.kv_buffer_device,
                kv_load_failure_policy=config.kv_load_failure_policy,
                extra=inner.extra,
            )
    return found
