"""What cannot exchange KV cache, or cannot be started, is refused before a pod is made."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from e2e.cluster import CommandError
from tests.operator.kube import Kube, manifest

pytestmark = pytest.mark.usefixtures("chart")

SGLANG = {"engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5.23"}, "router": {"image": "smg:1"}}
TRTLLM = {"engine": {"kind": "trtllm", "image": "tensorrt-llm:1.2.0"}}
CUSTOM = {"engine": {"kind": "custom"}}


def parallel(role: str, **sizes: object) -> dict[str, Any]:
    return {role: {"parallelism": sizes}}


def transfer(**fields: object) -> dict[str, Any]:
    return {"kvTransfer": {"transport": "tcp"} | fields}


def rdma(**fields: object) -> dict[str, Any]:
    return {"kvTransfer": {"transport": "rdma", "fabric": "infiniband"} | fields}


def dry_run(kube: Kube, spec: dict[str, Any]) -> str:
    return kube.run("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(manifest(**spec)))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    # Parallelism
    "a replica that no node holds": (
        parallel("decode", tensor=8, data=4),
        "tensor * pipeline * data is 32: a replica is one pod on one node, and no node has more than 16",
    ),
    "no ranks": (
        parallel("prefill", tensor=0),
        "spec.prefill.parallelism.tensor in body should be greater than or equal to 1",
    ),
    "vllm pipelines": (
        parallel("decode", pipeline=2),
        "decode.parallelism.pipeline must be 1 with engine vllm",
    ),
    "vllm pipelines of prefill": (
        parallel("prefill", pipeline=2),
        "prefill.parallelism.pipeline must be 1 with engine vllm",
    ),
    "sglang pipelines of decode": (
        SGLANG | parallel("decode", pipeline=2),
        "decode.parallelism.pipeline must be 1 with engine sglang",
    ),
    "tensor and data in TensorRT-LLM": (
        TRTLLM | parallel("decode", tensor=2, data=2),
        "decode.parallelism: TensorRT-LLM replicates attention on all ranks or on none",
    ),
    # Transport
    "no transport": ({"kvTransfer": {"connector": "nixl"}}, "spec.kvTransfer.transport: Required value"),
    "rdma without a device": (
        {"kvTransfer": {"transport": "rdma"}},
        "transport rdma needs a device: set kvTransfer.fabric",
    ),
    "rdma with an empty block": (
        {"kvTransfer": {"transport": "rdma", "rdma": {"count": 1}}},
        "transport rdma needs a device",
    ),
    "a fabric over tcp": (transfer(fabric="roce"), "fabric and rdma are for transport rdma"),
    "libfabric over tcp": (transfer(backend="libfabric"), "backend libfabric is for transport rdma"),
    "ucx on EFA": (rdma(fabric="efa", backend="ucx"), "backend ucx has no RDMA on fabric efa"),
    "a backend of Mooncake": (
        transfer(connector="mooncake", backend="ucx"),
        "backend is what NIXL moves bytes with",
    ),
    "two ways to a device": (
        rdma(rdma={"resource": "rdma/ib", "resourceClaimTemplate": "nic"}),
        "resource and resourceClaimTemplate are two ways to the same device",
    ),
    "a count of claims": (
        rdma(rdma={"resourceClaimTemplate": "nic", "count": 2}),
        "how many devices a claim holds is said in its template",
    ),
    "DRANET without a claim": (rdma(fabric="gke-dranet"), "set kvTransfer.rdma.resourceClaimTemplate"),
    "EFA's device without its settings": (
        {"kvTransfer": {"transport": "rdma", "rdma": {"resource": "vpc.amazonaws.com/efa"}}},
        "set kvTransfer.fabric to efa",
    ),
    "a count that has no effect": (
        rdma(fabric="gke", rdma={"count": 4}),
        "rdma.count has no effect on fabric gke",
    ),
    "privileges that no fabric needs": (
        rdma(rdma={"allowPrivileged": True}),
        "rdma.allowPrivileged is for fabric efa",
    ),
    "an RDMA device that is the accelerator": (
        {"kvTransfer": {"transport": "rdma", "rdma": {"resource": "nvidia.com/gpu"}}},
        "kvTransfer.rdma.resource (nvidia.com/gpu) is the accelerator: name the RDMA device",
    ),
    "a capability by its name in Linux": (
        rdma(rdma={"capabilities": ["CAP_IPC_LOCK"]}),
        "IPC_LOCK, not CAP_IPC_LOCK",
    ),
    "EFA within a host": (
        rdma(fabric="efa") | {"topologyConstraint": {"packDomain": "host"}},
        "fabric efa carries no KV cache within a node",
    ),
    # Connectors
    "lmcache in SGLang": (SGLANG | transfer(connector="lmcache"), "connector lmcache is for engine vllm"),
    "lmcache in TensorRT-LLM": (TRTLLM | transfer(connector="lmcache"), "with trtllm use nixl or mooncake"),
    "lmcache with a router": (
        transfer(connector="lmcache"),
        "no router that the operator knows pairs pods by",
    ),
    "lmcache with data parallelism": (
        parallel("decode", data=2) | transfer(connector="lmcache") | {"router": {"kind": "none"}},
        "decode.parallelism.data must be 1 with kvTransfer.connector lmcache",
    ),
    "uccl in SGLang": (SGLANG | transfer(backend="uccl"), "kvTransfer.backend uccl is for engine vllm"),
    # Offload
    "a disk without CPU memory": (
        transfer(offload={"disk": {"size": "1Ti"}}),
        "disk and sharedFileSystem are filled from CPU memory: set cpu, too",
    ),
    "a disk and a file system in one place": (
        transfer(
            offload={
                "cpu": "1Gi",
                "disk": {"size": "1Ti", "storageClass": "nvme", "path": "/kv"},
                "sharedFileSystem": {"claim": "kv", "path": "/kv"},
            }
        ),
        "disk and sharedFileSystem are both mounted at /kv",
    ),
    "less than no CPU memory": (
        transfer(offload={"cpu": -1}),
        "spec.kvTransfer.offload.cpu: Invalid value: -1",
    ),
    "more CPU memory than there is of anything": (
        transfer(offload={"cpu": "1e400"}),
        'spec.kvTransfer.offload.cpu: Invalid value: "1e400"',
    ),
    "offload of a custom engine": (
        CUSTOM | transfer(offload={"cpu": "1Gi"}),
        "with engine.kind custom use args",
    ),
    "offload beside lmcache": (
        transfer(connector="lmcache", offload={"cpu": "1Gi"}) | {"router": {"kind": "none"}},
        "kvTransfer.offload is not for connector lmcache",
    ),
    "a disk that is full some day": (
        transfer(offload={"cpu": "1Gi", "disk": {"size": "1Ti"}}),
        "kvTransfer.offload.disk.storageClass is required with engine vllm",
    ),
    # Accelerators
    "two accelerators": (
        {"decode": {"accelerator": {"resource": "amd.com/gpu"}}},
        "set engine.attentionBackend, such as FLASH_ATTN",
    ),
    "two kinds of nodes": (
        {"prefill": {"nodeSelector": {"gpu": "h100"}}, "decode": {"nodeSelector": {"gpu": "h200"}}},
        "set engine.attentionBackend",
    ),
    "one role on nodes of a kind": (
        {"prefill": {"nodeSelector": {"gpu": "h100"}}},
        "set engine.attentionBackend",
    ),
    # Termination
    "prefill that leaves before its lease": (
        {"prefill": {"drainSeconds": 60}},
        "prefill.drainSeconds (60) must be at least kvTransfer.leaseSeconds (120)",
    ),
    "prefill that leaves before the lease that was set": (
        {"prefill": {"drainSeconds": 120}} | transfer(leaseSeconds=300),
        "prefill.drainSeconds (120) must be at least kvTransfer.leaseSeconds (300)",
    ),
    "prefill that leaves before Mooncake's lease": (
        {"prefill": {"drainSeconds": 120}} | transfer(connector="mooncake"),
        "prefill.drainSeconds (120) must be at least kvTransfer.leaseSeconds (300)",
    ),
    # Routers
    "smg with vllm": ({"router": {"kind": "smg", "image": "smg"}}, "router.kind smg cannot pair vllm pods"),
    "TensorRT-LLM's router with vllm": (
        {"router": {"kind": "trtllm"}},
        "router.kind trtllm cannot pair vllm pods",
    ),
    "vllm-router with SGLang": (
        SGLANG | {"router": {"kind": "vllm-router", "image": "r"}},
        "router.kind vllm-router cannot pair sglang pods: use smg",
    ),
    "SGLang without a router image": (
        SGLANG | {"router": {}},
        "router.image is required with engine sglang",
    ),
    "smg with TensorRT-LLM": (
        TRTLLM | {"router": {"kind": "smg", "image": "r"}},
        "router.kind smg cannot pair trtllm pods: use trtllm",
    ),
    # Model
    "a revision of a path": (
        {"model": {"uri": "/m", "revision": "main"}},
        "revision is for models on the Hugging Face hub",
    ),
    "a folder of a claim": ({"model": {"uri": "pvc://m", "path": "a"}}, "path is for models in an OCI image"),
    "a way out of a claim": (
        {"model": {"uri": "pvc://models/../../etc"}},
        "uri must not lead out of its volume",
    ),
    "a way out of an image": (
        {"model": {"uri": "oci://example.com/llama:1", "path": "../etc"}},
        "path must not lead out of its image",
    ),
    "an adapter with the name of the model": (
        {"model": {"servedName": "sql", "lora": {"adapters": [{"name": "sql", "uri": "/a"}]}}},
        "an adapter has the name sql of the model",
    ),
    "a cache of a claim": (
        {"model": {"uri": "pvc://m", "cache": {"claim": "c"}}},
        "cache is for models on the",
    ),
    "offline without files": ({"model": {"offline": True}}, "set model.cache.claim to one that holds them"),
    "adapters of a custom engine": (
        CUSTOM | {"model": {"lora": {"adapters": [{"name": "a", "uri": "/a"}]}}},
        "with engine.kind custom use args",
    ),
    "an adapter twice": (
        {"model": {"lora": {"adapters": [{"name": "a", "uri": "/a"}, {"name": "a", "uri": "/b"}]}}},
        "spec.model.lora.adapters[1]: Duplicate value",
    ),
    # Engine
    "YAML for vllm": ({"engine": {"config": {"a": 1}}}, "config is the YAML of TensorRT-LLM"),
    "a block size of a custom engine": (
        {"engine": {"kind": "custom", "blockSize": 16}},
        "are for engines that the operator knows",
    ),
    "fp8_e5m2 in TensorRT-LLM": (
        {"engine": TRTLLM["engine"] | {"kvCacheDtype": "fp8_e5m2"}},
        "kvCacheDtype fp8_e5m2 is none of TensorRT-LLM: use auto, fp8 or nvfp4",
    ),
    "a block of 48 tokens in TensorRT-LLM": (
        {"engine": TRTLLM["engine"] | {"blockSize": 48}},
        "blockSize (48) must be a power of two above 1",
    ),
    "ranks of prefill that vllm-router does not find": (
        parallel("prefill", data=2) | transfer(connector="mooncake"),
        "prefill.parallelism.data must be 1 with kvTransfer.connector mooncake",
    ),
    "sglang sizes that do not divide": (
        SGLANG | parallel("prefill", tensor=2) | parallel("decode", tensor=3),
        "one of prefill.parallelism.tensor (2) and decode.parallelism.tensor (3) must be a multiple of the other",
    ),
    "sglang chunks that do not divide": (
        SGLANG | parallel("prefill", data=3),
        "prefill.parallelism.data must be a power of two with engine sglang",
    ),
    "SGLang that computes again": (
        SGLANG | transfer(loadFailurePolicy="recompute"),
        "kvTransfer.loadFailurePolicy recompute is not for engine sglang",
    ),
    "adapters in TensorRT-LLM": (
        TRTLLM | {"model": {"lora": {"adapters": [{"name": "a", "uri": "/a"}]}}},
        "use engine.config.lora_config",
    ),
    "tiers of TensorRT-LLM": (
        TRTLLM | transfer(offload={"cpu": "1Gi", "disk": {"size": "1Ti"}}),
        "kvTransfer.offload of engine trtllm has CPU memory alone",
    ),
    "TensorRT-LLM that computes again": (
        TRTLLM | transfer(loadFailurePolicy="recompute"),
        "kvTransfer.loadFailurePolicy of engine trtllm is fail",
    ),
    "prefill of TensorRT-LLM that leaves before its lease": (
        TRTLLM | {"prefill": {"drainSeconds": 120}},
        "prefill.drainSeconds (120) must be at least kvTransfer.leaseSeconds (300)",
    ),
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "tcp": transfer(),
    "infiniband": rdma(),
    "a device of one's own": {
        "kvTransfer": {"transport": "rdma", "rdma": {"resource": "rdma/ib", "count": 4}}
    },
    "a claim": {"kvTransfer": {"transport": "rdma", "rdma": {"resourceClaimTemplate": "nic"}}},
    "EFA": rdma(fabric="efa"),
    "UCCL": rdma(backend="uccl"),
    "Mooncake": rdma(connector="mooncake"),
    "LMCache with a router of one's own": transfer(connector="lmcache") | {"router": {"kind": "none"}},
    "data parallel experts": parallel("decode", tensor=1, data=8, expert=True),
    "a block of 16 accelerators": parallel("decode", tensor=8, data=2),
    "two kinds of nodes with a backend": {
        "engine": {"attentionBackend": "FLASH_ATTN"},
        "prefill": {"nodeSelector": {"gpu": "h100"}},
        "decode": {"nodeSelector": {"gpu": "h200"}},
    },
    "one kind of nodes for both": {role: {"nodeSelector": {"gpu": "h100"}} for role in ("prefill", "decode")},
    "prefill that stays for its lease": {"prefill": {"drainSeconds": 120}},
    "SGLang with other tensor sizes": SGLANG | parallel("prefill", tensor=4) | parallel("decode", tensor=2),
    "SGLang with pipelines of prefill": SGLANG | parallel("prefill", pipeline=2),
    "SGLang with a router of one's own": SGLANG | {"router": {"kind": "none"}},
    "TensorRT-LLM": TRTLLM,
    "TensorRT-LLM with pipelines": TRTLLM | parallel("decode", pipeline=2, tensor=2),
    "TensorRT-LLM with options": {
        "engine": TRTLLM["engine"] | {"config": {"moe_config": {"backend": "CUTLASS"}}}
    },
    "a claim with a model": {"model": {"uri": "pvc://models/llama", "offline": True}},
    "a model in an OCI image": {"model": {"uri": "oci://example.com/models/llama:1", "path": "weights"}},
    "offline with a cache": {"model": {"cache": {"claim": "hub"}, "offline": True, "revision": "main"}},
    "adapters": {"model": {"lora": {"adapters": [{"name": "sql", "uri": "hf://org/sql"}], "maxRank": 64}}},
    "tiers": transfer(
        offload={
            "cpu": "64Gi",
            "disk": {"size": "1Ti", "storageClass": "nvme"},
            "sharedFileSystem": {"claim": "kv"},
        }
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_with_field_value_and_cure(kube: Kube, name: str) -> None:
    spec, message = REFUSED[name]
    with pytest.raises(CommandError) as refusal:
        dry_run(kube, spec)
    assert message in str(refusal.value)


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_works_is_accepted(kube: Kube, name: str) -> None:
    assert "created" in dry_run(kube, ACCEPTED[name])
