"""How KV cache moves, with all defaults resolved: what both roles, the router and the status are made from."""

from __future__ import annotations

from dataclasses import dataclass

from disagg.api.engine import EngineKind
from disagg.api.kv_transfer import (
    Backend,
    Connector,
    Fabric,
    KVTransfer,
    LoadFailurePolicy,
    Offload,
    Rdma,
    Transport,
)
from disagg.api.names import RoleName
from disagg.api.spec import Spec

KV_LEASE_SECONDS = 120
"""How long a prefill pod keeps blocks that nobody has pulled or asked for. vLLM's own 30 s are short for a decode pod with
a queue: a read after the lease returns other requests' blocks without an error."""
KV_LEASE_SECONDS_WITHOUT_HEARTBEATS = 300
"""The same for engines where a decode pod cannot extend it."""
LONGEST_PREFILL_SECONDS = 60
"""Time for the prompt that a prefill pod is working on when it is told to stop."""
DECODE_DRAIN_SECONDS = 300
"""Time for the answers that a decode pod is writing when it is told to stop."""
TCP_GBPS = 10
"""Bandwidth that is assumed of a pod network where nothing is said of it."""


@dataclass(frozen=True)
class Transfer:
    """How KV cache moves.

    Attributes:
        connector: The library.
        backend: What NIXL moves bytes with; None where the library is another.
        transport: What the bytes cross.
        fabric: RDMA network, where a preset of it is used.
        rdma: What the user has said of devices.
        load_failure_policy: What decode does when KV cache did not arrive.
        lease_seconds: What the user wants, or None for the engine's default.
        bandwidth_gbps: Bandwidth of a pod's link in Gbit/s, or None where nothing is known of it.
        offload: Tiers that keep KV cache.
        preflight: Whether devices are checked before the engine starts.
    """

    connector: Connector
    backend: Backend | None
    transport: Transport
    fabric: Fabric | None
    rdma: Rdma
    load_failure_policy: LoadFailurePolicy
    lease_seconds: int | None
    bandwidth_gbps: int | None
    offload: Offload
    preflight: bool

    def lease(self, *, heartbeats: bool) -> int:
        """How long prefill keeps blocks, in seconds.

        Args:
            heartbeats: Whether the engine's decode side extends it for as long as it waits.
        """
        if self.lease_seconds is not None:
            return self.lease_seconds
        return KV_LEASE_SECONDS if heartbeats else KV_LEASE_SECONDS_WITHOUT_HEARTBEATS


def resolve(spec: Spec) -> Transfer:
    """How KV cache moves between the pods of a resource."""
    wanted = spec.kv_transfer or KVTransfer(transport=Transport.TCP)
    rdma = wanted.transport is Transport.RDMA
    backend = wanted.backend
    if backend is None and wanted.connector is Connector.NIXL:
        backend = Backend.LIBFABRIC if wanted.fabric is Fabric.EFA else Backend.UCX
    return Transfer(
        connector=wanted.connector,
        backend=backend,
        transport=wanted.transport,
        fabric=wanted.fabric,
        rdma=wanted.rdma or Rdma(),
        load_failure_policy=wanted.load_failure_policy or LoadFailurePolicy.FAIL,
        lease_seconds=wanted.lease_seconds,
        bandwidth_gbps=wanted.bandwidth_gbps or (None if rdma else TCP_GBPS),
        offload=wanted.offload or Offload(),
        preflight=(rdma and spec.engine.kind is not EngineKind.CUSTOM)
        if wanted.preflight is None
        else wanted.preflight,
    )


def drain_seconds(spec: Spec, role: RoleName, lease_seconds: int) -> int:
    """How long a pod that is being stopped goes on with the requests it has.

    A prefill pod that is gone takes with it the KV cache that decode has yet to pull, so it stays for the lease.

    Args:
        spec: The resource's spec.
        role: prefill or decode.
        lease_seconds: How long prefill keeps blocks.
    """
    wanted: int | None = getattr(spec, role).drain_seconds
    if wanted is not None:
        return wanted
    return LONGEST_PREFILL_SECONDS + lease_seconds if role is RoleName.PREFILL else answer_seconds(spec)


def answer_seconds(spec: Spec) -> int:
    """How long an answer that is being written may take to its end when what it passes through is stopped, in seconds.

    A router that is replaced has to let through what decode is given time for.
    """
    return DECODE_DRAIN_SECONDS if spec.decode.drain_seconds is None else spec.decode.drain_seconds
