"""Rules about the two roles together: what cannot exchange KV cache is refused before a pod is made.

Facts are those of vLLM 0.33 (NixlConnector), SGLang 0.5.23 and TensorRT-LLM 1.2.
"""

from __future__ import annotations

from disagg.api.fields import cel

_PARALLEL = "(has(self.{role}) && has(self.{role}.parallelism) ? self.{role}.parallelism.{kind} : 1)"
_PREFILL_TENSOR = _PARALLEL.format(role="prefill", kind="tensor")
_DECODE_TENSOR = _PARALLEL.format(role="decode", kind="tensor")
_VLLM, _SGLANG, _TRTLLM, _CUSTOM = (
    f"self.engine.kind == '{kind}'" for kind in ("vllm", "sglang", "trtllm", "custom")
)


def _has(*path: str) -> str:
    """Whether an optional field and all blocks above it are there."""
    fields = [".".join(path[: end + 1]) for end in range(len(path))]
    return "(" + " && ".join(f"has(self.{field})" for field in fields) + ")"


def _is(value: str, *path: str) -> str:
    return f"({_has(*path)} && self.{'.'.join(path)} == '{value}')"


def _accelerator(role: str) -> str:
    shared = f"({_has('accelerator')} ? self.accelerator.resource : 'nvidia.com/gpu')"
    return f"({_has(role, 'accelerator')} ? self.{role}.accelerator.resource : {shared})"


_SAME_NODES = (
    f"({_has('prefill', 'nodeSelector')} ? {_has('decode', 'nodeSelector')} &&"
    f" self.prefill.nodeSelector == self.decode.nodeSelector : !{_has('decode', 'nodeSelector')})"
)
# Where decode cannot extend the lease by heartbeats it is longer.
_SLOW = f"({_TRTLLM} || {_is('mooncake', 'kvTransfer', 'connector')} || {_is('lmcache', 'kvTransfer', 'connector')})"
_LEASE = f"({_has('kvTransfer', 'leaseSeconds')} ? self.kvTransfer.leaseSeconds : {_SLOW} ? 300 : 120)"

PAIR_RULES = [
    # https://docs.vllm.ai, NixlConnector: a decode rank reads from one prefill rank, never from several.
    cel(
        f"!({_VLLM}) || {_PREFILL_TENSOR} < 1 || {_DECODE_TENSOR} % {_PREFILL_TENSOR} == 0",
        "'decode.parallelism.tensor (%d) must be a multiple of prefill.parallelism.tensor (%d) with engine vllm'"
        f".format([{_DECODE_TENSOR}, {_PREFILL_TENSOR}])",
    ),
    *(
        cel(
            f"!({_VLLM}) || {_PARALLEL.format(role=role, kind='pipeline')} == 1",
            f"'{role}.parallelism.pipeline must be 1 with engine vllm: its NixlConnector cannot move KV cache between"
            " pipeline stages; use tensor'",
        )
        for role in ("prefill", "decode")
    ),
    cel(
        f"!({_SGLANG}) || {_PARALLEL.format(role='decode', kind='pipeline')} == 1",
        "'decode.parallelism.pipeline must be 1 with engine sglang: decode cannot receive KV cache for pipeline stages;"
        " use tensor'",
    ),
    *(
        cel(
            f"!({_TRTLLM}) || {_PARALLEL.format(role=role, kind='data')} == 1"
            f" || {_PARALLEL.format(role=role, kind='tensor')} == 1",
            f"'{role}.parallelism: TensorRT-LLM replicates attention on all ranks or on none;"
            " with data above 1 set tensor to 1'",
        )
        for role in ("prefill", "decode")
    ),
    cel(
        f"!({_SGLANG} || {_TRTLLM}) || !{_is('lmcache', 'kvTransfer', 'connector')}",
        "'kvTransfer.connector lmcache is for engine vllm: with ' + self.engine.kind + ' use nixl or mooncake'",
    ),
    cel(
        f"!({_SGLANG} || {_TRTLLM}) || !{_is('uccl', 'kvTransfer', 'backend')}",
        "'kvTransfer.backend uccl is for engine vllm: with ' + self.engine.kind + ' use ucx or libfabric'",
    ),
    cel(
        f"!({_CUSTOM}) || !({_has('kvTransfer', 'offload')} || {_has('model', 'lora')})",
        "'kvTransfer.offload and model.lora are for engines that the operator knows: with engine.kind custom use args'",
    ),
    cel(
        f"!{_is('lmcache', 'kvTransfer', 'connector')} || !{_has('kvTransfer', 'offload')}",
        "'kvTransfer.offload is not for connector lmcache, which keeps KV cache by itself: use nixl'",
    ),
    *(
        cel(
            f"!{_is('lmcache', 'kvTransfer', 'connector')} || {_PARALLEL.format(role=role, kind='data')} == 1",
            f"'{role}.parallelism.data must be 1 with kvTransfer.connector lmcache: all ranks would listen on the same"
            " ports'",
        )
        for role in ("prefill", "decode")
    ),
    cel(
        f"!({_VLLM}) || !{_has('kvTransfer', 'offload', 'disk')} ||"
        f" {_has('kvTransfer', 'offload', 'disk', 'storageClass')}",
        "'kvTransfer.offload.disk.storageClass is required with engine vllm: it never deletes what it offloads, and a full"
        " emptyDir has the pod evicted'",
    ),
    cel(
        f"!({_SGLANG}) || {_PREFILL_TENSOR} < 1 || {_DECODE_TENSOR} < 1"
        f" || {_DECODE_TENSOR} % {_PREFILL_TENSOR} == 0 || {_PREFILL_TENSOR} % {_DECODE_TENSOR} == 0",
        "'with engine sglang one of prefill.parallelism.tensor (%d) and decode.parallelism.tensor (%d) must be a multiple"
        f" of the other'.format([{_PREFILL_TENSOR}, {_DECODE_TENSOR}])",
    ),
    cel(
        f"!({_SGLANG}) || {_PARALLEL.format(role='prefill', kind='data')} in [1, 2, 4, 8, 16]",
        "'prefill.parallelism.data must be a power of two with engine sglang, which divides a chunk of the prompt into whole"
        " pages of the KV cache'",
    ),
    cel(
        f"!({_SGLANG}) || !{_is('recompute', 'kvTransfer', 'loadFailurePolicy')}",
        "'kvTransfer.loadFailurePolicy recompute is not for engine sglang, whose decode pods cannot compute a prompt'",
    ),
    cel(
        f"!({_VLLM}) || !{_is('mooncake', 'kvTransfer', 'connector')}"
        f" || {_PARALLEL.format(role='prefill', kind='data')} == 1",
        "'prefill.parallelism.data must be 1 with kvTransfer.connector mooncake: vllm-router sends decode to the first rank"
        " only; use tensor, or connector nixl'",
    ),
    cel(
        f"!({_TRTLLM}) || !{_has('model', 'lora')}",
        "'model.lora is not for engine trtllm, whose requests name an adapter by path and not as a model:"
        " use engine.config.lora_config'",
    ),
    cel(
        f"!({_TRTLLM}) || !({_has('kvTransfer', 'offload', 'disk')}"
        f" || {_has('kvTransfer', 'offload', 'sharedFileSystem')})",
        "'kvTransfer.offload of engine trtllm has CPU memory alone: remove disk and sharedFileSystem'",
    ),
    cel(
        f"!({_TRTLLM}) || !{_is('recompute', 'kvTransfer', 'loadFailurePolicy')}",
        "'kvTransfer.loadFailurePolicy of engine trtllm is fail: it cannot recompute what did not arrive'",
    ),
    cel(
        f"!({_is('efa', 'kvTransfer', 'fabric')} && {_is('host', 'topologyConstraint', 'packDomain')})",
        "'fabric efa carries no KV cache within a node: use a packDomain that is wider than host'",
    ),
    # Each role would choose a backend by its own accelerator, and the handshake compares them.
    cel(
        f"!({_VLLM}) || {_has('engine', 'attentionBackend')}"
        f" || ({_accelerator('prefill')} == {_accelerator('decode')} && {_SAME_NODES})",
        "'prefill and decode run on different nodes or accelerators, where vLLM may choose different attention backends,"
        " and the two could not exchange KV cache: set engine.attentionBackend, such as FLASH_ATTN'",
    ),
    cel(
        f"!{_has('prefill', 'drainSeconds')} || {_CUSTOM} || self.prefill.drainSeconds >= {_LEASE}",
        "'prefill.drainSeconds (%d) must be at least kvTransfer.leaseSeconds (%d): decode may pull KV cache from a"
        f" prefill pod for so long'.format([self.prefill.drainSeconds, {_LEASE}])",
    ),
    cel(
        f"!({_VLLM} && {_is('smg', 'router', 'kind')})",
        "'router.kind smg cannot pair vllm pods: over HTTP it speaks the SGLang protocol only;"
        " use vllm-router, or engine.kind sglang'",
    ),
    cel(
        f"!({_SGLANG} && ({_is('vllm-router', 'router', 'kind')} || {_is('trtllm', 'router', 'kind')}))",
        "'router.kind ' + self.router.kind + ' cannot pair sglang pods: use smg'",
    ),
    cel(
        f"!({_SGLANG}) || {_is('none', 'router', 'kind')} || {_has('router', 'image')}",
        "'router.image is required with engine sglang: name the smg image that you run, or set router.kind to none'",
    ),
    cel(
        f"!({_TRTLLM} && ({_is('vllm-router', 'router', 'kind')} || {_is('smg', 'router', 'kind')}))",
        "'router.kind ' + self.router.kind + ' cannot pair trtllm pods: use trtllm'",
    ),
    cel(
        f"!({_VLLM} && {_is('trtllm', 'router', 'kind')})",
        "'router.kind trtllm cannot pair vllm pods: use vllm-router'",
    ),
    cel(
        f"!{_is('lmcache', 'kvTransfer', 'connector')} || {_is('none', 'router', 'kind')}",
        "'no router that the operator knows pairs pods by kvTransfer.connector lmcache: set router.kind to none, and bring"
        " one that does'",
    ),
    cel(
        f"!{_is('gke-dranet', 'kvTransfer', 'fabric')} || {_has('kvTransfer', 'rdma', 'resourceClaimTemplate')}",
        "'kvTransfer.fabric gke-dranet gives devices by claims: set kvTransfer.rdma.resourceClaimTemplate'",
    ),
    # One entry of a container's limits would stand for both.
    cel(
        f"!{_has('kvTransfer', 'rdma', 'resource')} || !(self.kvTransfer.rdma.resource in"
        f" [{_accelerator('prefill')}, {_accelerator('decode')}])",
        "'kvTransfer.rdma.resource (' + self.kvTransfer.rdma.resource + ') is the accelerator: name the RDMA device, as"
        " kubectl describe node lists it under Allocatable'",
    ),
]
