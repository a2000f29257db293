"""vLLM as prefill or decode, with its NIXL connector.

Facts are those of vLLM 0.33 (vllm/config/kv_transfer.py, vllm/envs.py, the NixlConnector's sources).
"""

from __future__ import annotations

import json
import re
from typing import Any

from disagg.api.names import RoleName
from disagg.api.spec import Spec
from disagg.build.engines.engine import HTTP_PORT, EnginePod, huggingface_env

SIDE_CHANNEL_PORT = 5600
"""vLLM's own default since 0.18. Set explicitly, since 0.11 took 5557, which its KV events use too."""

KV_LEASE_SECONDS = 120
"""How long a prefill pod keeps blocks that nobody has pulled. vLLM's 30 s are short for a decode pod with a queue: a
read after the lease returns other requests' blocks without an error."""

_KV_BOTH_UP_TO = (0, 18)
"""Up to this release one role for both sides was the documented way; later it is deprecated."""


def engine_pod(spec: Spec, role: RoleName, image: str) -> EnginePod:
    """How to start `vllm serve` as `role`.

    Args:
        spec: The resource's spec.
        role: prefill or decode.
        image: Image that the role runs; its tag tells the version.
    """
    tensor = getattr(spec, role).parallelism.tensor
    args = [
        spec.model.uri.removeprefix("hf://"),
        f"--served-model-name={spec.model.name}",
        f"--port={HTTP_PORT}",
        f"--tensor-parallel-size={tensor}",
        f"--kv-transfer-config={json.dumps(kv_transfer_config(role, image), separators=(',', ':'))}",
    ]
    env: list[dict[str, Any]] = [
        # Bound and advertised to the other side; the default, localhost, would send decode to itself.
        {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(SIDE_CHANNEL_PORT)},
        # vLLM closes idle connections after 5 s, routers keep theirs for longer and would meet a reset.
        {"name": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "value": "120"},
        # Prefix hashes must agree between pods.
        {"name": "PYTHONHASHSEED", "value": "0"},
    ]
    if (secret := spec.model.token_secret) is not None:
        env.append(huggingface_env(secret.name, secret.key))
    return EnginePod(
        # The image's entry point differs between releases; this one works in all of them.
        command=["vllm", "serve"],
        args=args,
        env=env,
        ports={"nixl": SIDE_CHANNEL_PORT},
        shared_memory=True,
    )


def kv_transfer_config(role: RoleName, image: str) -> dict[str, Any]:
    """The value of `--kv-transfer-config` for `role`."""
    if _version(image) <= _KV_BOTH_UP_TO:
        kv_role = "kv_both"
    else:
        kv_role = "kv_producer" if role is RoleName.PREFILL else "kv_consumer"
    config: dict[str, Any] = {"kv_connector": "NixlConnector", "kv_role": kv_role}
    if role is RoleName.PREFILL:
        config["kv_connector_extra_config"] = {"kv_lease_duration": KV_LEASE_SECONDS}
    return config


def _version(image: str) -> tuple[int, ...]:
    """Release that the image's tag names; an unknown one counts as the newest."""
    match = re.search(r":v?(\d+)\.(\d+)", image)
    return tuple(int(part) for part in match.groups()) if match else (999,)
