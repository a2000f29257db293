"""What is rendered for a release exists in that release, as the lists say that were taken from its sources."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.engine_flags import flags, releases
from tests.unit.resources import container, overlaid, resource

RELEASES = releases("vllm")
ENGINE_ROLES = ("prefill", "decode")
ADAPTERS = [{"name": "a", "uri": "hf://org/a"}, {"name": "b", "uri": "/adapters/b"}]
SPECS: dict[str, dict[str, Any]] = {
    "smallest": {},
    "cpu": {"accelerator": {"perRank": 0}},
    "everything": {
        "model": {"revision": "v2", "lora": {"adapters": ADAPTERS, "maxRank": 20}},
        "engine": {"kvCacheDtype": "fp8", "blockSize": 64, "attentionBackend": "FLASH_ATTN"},
        "prefill": {"parallelism": {"tensor": 2, "data": 2, "expert": True}},
        "decode": {"parallelism": {"tensor": 4, "data": 2, "expert": True}},
        "kvTransfer": {"transport": "rdma", "fabric": "efa", "leaseSeconds": 60},
    },
    "offload": {
        "kvTransfer": {
            "transport": "tcp",
            "offload": {
                "cpu": "8Gi",
                "disk": {"size": "1Ti", "storageClass": "nvme"},
                "sharedFileSystem": {"claim": "kv"},
            },
        }
    },
    "mooncake": {"kvTransfer": {"connector": "mooncake", "transport": "tcp"}},
    "lmcache": {"kvTransfer": {"connector": "lmcache", "transport": "tcp"}, "router": {"kind": "none"}},
}
_KIND = {
    "NixlConnector": "nixl",
    "MooncakeConnector": "mooncake",
    "OffloadingConnector": "offloading",
    "MultiConnector": "multi",
}

everywhere = pytest.mark.parametrize(
    ("release", "role", "spec"),
    [
        pytest.param(release, role, spec, id=f"{release} {role} {name}")
        for release in RELEASES
        for role in ENGINE_ROLES
        for name, spec in SPECS.items()
        # The first releases have no Mooncake at all: users are told.
        if not (name == "mooncake" and release == "0.11.0")
    ],
)


def rendered(release: str, role: str, spec: dict[str, Any]) -> dict[str, Any]:
    return container(resource(**overlaid(spec, {"engine": {"image": f"vllm/vllm-openai:v{release}"}})), role)


@everywhere
def test_no_release_refuses_an_argument(release: str, role: str, spec: dict[str, Any]) -> None:
    args = rendered(release, role, spec)["args"]
    assert flags("vllm", release).refused(args[1:]) == []


@everywhere
def test_no_release_warns_of_a_variable(release: str, role: str, spec: dict[str, Any]) -> None:
    env = [variable["name"] for variable in rendered(release, role, spec)["env"]]
    known = flags("vllm", release)
    assert [name for name in env if name.startswith("VLLM_") and not known.reads(name)] == []


@everywhere
def test_every_key_of_the_kv_transfer_config_is_read(release: str, role: str, spec: dict[str, Any]) -> None:
    known = flags("vllm", release).extra
    pending = [
        json.loads(arg.partition("=")[2])
        for arg in rendered(release, role, spec)["args"]
        if arg.startswith("--kv-transfer-config=")
    ]
    while pending:
        config = pending.pop()
        assert config["kv_connector"] in known["kv_connectors"]
        assert set(config) <= set(known["kv_transfer_config"])
        extra = config.get("kv_connector_extra_config", {})
        if (kind := _KIND.get(config["kv_connector"])) is not None:
            assert set(extra) <= set(known["kv_connector_extra_config"][kind])
        pending += extra.get("connectors", [])
