"""Blocks of specs that tell how KV cache moves, what engine runs and where its model is: for `strategies`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

_CLAIMS = st.sampled_from(["models", "kv.cache"])
_DEVICES = st.sampled_from(["rdma/ib", "rdma/roce_gdr", "rdma/hca_shared_devices_a"])
_FABRICS = ["infiniband", "roce", "efa", "gke", "gke-dranet", "oci", "aks"]
_CONNECTORS = {"vllm": ["nixl", "mooncake"], "sglang": ["nixl", "mooncake"], "trtllm": ["nixl", "mooncake"]}

Block = SearchStrategy[dict[str, Any]]


def block(
    required: Mapping[str, SearchStrategy[Any]] | None = None, /, **optional: SearchStrategy[Any]
) -> Block:
    """A block with all `required` and some `optional` fields."""
    return st.fixed_dictionaries(dict(required or {}), optional=optional)


IMAGES = {
    "vllm": [
        "vllm/vllm-openai:v0.32.0",
        "vllm/vllm-openai:v0.18.1",
        "registry.local:5000/vllm",
        "vllm@sha256:0a1b",
    ],
    "sglang": ["lmsysorg/sglang:v0.5.23", "lmsysorg/sglang:v0.5.6-cu129", "sglang:latest"],
    "trtllm": ["nvcr.io/nvidia/tensorrt-llm/release:1.2.0", "trtllm:1.1.0rc2", "trtllm:latest"],
    "custom": ["mine:1", "mine@sha256:0a1b"],
}


@st.composite
def models(draw: DrawFn, kind: str) -> dict[str, Any]:
    """A model from any source, with adapters where the operator knows how the engine takes them."""
    words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,12}", fullmatch=True)
    common: dict[str, SearchStrategy[Any]] = {
        "servedName": words,
        "tokenSecret": block({"name": st.just("hf")}, key=words),
    }
    if kind in ("vllm", "sglang"):
        adapter = block(
            {
                "name": st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
                "uri": st.sampled_from(
                    ["hf://org/sql", "pvc://adapters/sql", "pvc://models/lora", "/adapters/sql"]
                ),
            }
        )
        adapters = st.lists(adapter, min_size=1, max_size=3, unique_by=lambda item: item["name"])
        common["lora"] = block(
            {"adapters": adapters}, maxAdapters=st.integers(1, 8), maxRank=st.sampled_from([8, 16, 64])
        )
    hub = block(
        {"uri": st.from_regex(r"hf://[A-Za-z0-9._-]{1,20}/[A-Za-z0-9._-]{1,20}", fullmatch=True)},
        revision=words,
        cache=block({"claim": _CLAIMS}),
        **common,
    )
    path = block(
        {"uri": st.from_regex(r"/[A-Za-z0-9._/-]{0,20}", fullmatch=True)}, offline=st.booleans(), **common
    )
    claim = block(
        {"uri": st.sampled_from(["pvc://models", "pvc://models/llama/8b"])}, offline=st.booleans(), **common
    )
    image = block({"uri": st.sampled_from(["oci://example.com/llama:1"])}, path=st.just("weights"), **common)
    return draw(hub | path | claim | image)


@st.composite
def transfers(draw: DrawFn, kind: str) -> dict[str, Any]:
    """How KV cache moves."""
    found: dict[str, Any] = {"transport": draw(st.sampled_from(["rdma", "tcp"]))}
    connector = draw(st.sampled_from(_CONNECTORS.get(kind, ["nixl"])))
    if connector != "nixl":
        found["connector"] = connector
    if found["transport"] == "rdma":
        fabric = draw(st.sampled_from([*_FABRICS, None]))
        by_claim = fabric == "gke-dranet" or draw(st.booleans())
        device = {"resourceClaimTemplate": st.just("nic")} if by_claim else {"resource": _DEVICES}
        overrides = block(
            device if fabric in (None, "gke-dranet") else {},
            annotations=st.just({"networks": "rdma"}),
            capabilities=st.just(["IPC_LOCK", "SYS_RESOURCE"]),
            allowPrivileged=st.sampled_from([True, False] if fabric == "efa" else [False]),
        )
        if fabric is not None:
            found["fabric"] = fabric
        if fabric in (None, "gke-dranet") or draw(st.booleans()):
            found["rdma"] = draw(overrides)
    if kind != "custom":
        folders: dict[str, SearchStrategy[Any]] = {
            "disk": block({"size": st.just("1Ti"), "storageClass": st.just("nvme")}),
            "sharedFileSystem": block({"claim": _CLAIMS}),
        }
        tiers = block(
            {"cpu": st.sampled_from(["8Gi", "64Gi", "1000000000"])}, **({} if kind == "trtllm" else folders)
        )
        found |= draw(block(None, offload=tiers))
    return found | draw(
        block(
            None,
            bandwidthGbps=st.integers(1, 800),
            loadFailurePolicy=st.sampled_from(
                ["fail", *(["recompute"] if kind in ("vllm", "custom") else [])]
            ),
            preflight=st.booleans(),
        )
    )


def engines(kind: str, args: SearchStrategy[list[str]], env: SearchStrategy[list[dict[str, Any]]]) -> Block:
    """An engine of `kind`."""
    known: dict[str, SearchStrategy[Any]] = {}
    if kind != "custom":
        dtypes = ["auto", "fp8", *(["bfloat16"] if kind != "trtllm" else [])]
        known = {
            "version": st.sampled_from(["0.33.0", "v0.11"] if kind == "vllm" else ["1.2.0"]),
            "kvCacheDtype": st.sampled_from(dtypes),
            "blockSize": st.sampled_from([16, 32, 64]),
            "attentionBackend": st.just("FLASH_ATTN"),
            "kernelCache": block({"claim": _CLAIMS}),
        }
        if kind == "sglang":
            del known["version"]
    if kind == "trtllm":
        known["config"] = st.just({"moe_config": {"backend": "CUTLASS"}})
    return block({"image": st.sampled_from(IMAGES[kind]), "kind": st.just(kind)}, args=args, env=env, **known)


@st.composite
def parallelism(draw: DrawFn, kind: str, *, tensor: int, role: str) -> dict[str, Any]:
    """How a replica is spread, with a given tensor-parallel size."""
    found: dict[str, Any] = {"tensor": tensor} | draw(block(None, expert=st.booleans()))
    if (kind, role) != ("vllm", "prefill") and (tensor == 1 or (kind != "trtllm" and tensor <= 8)):
        found |= draw(block(None, data=st.sampled_from([1, 2])))
    if (
        found.get("data", 1) == 1
        and tensor <= 8
        and (kind == "trtllm" or (kind, role) == ("sglang", "prefill"))
    ):
        found |= draw(block(None, pipeline=st.sampled_from([1, 2])))
    return found
