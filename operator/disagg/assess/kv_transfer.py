"""Can prefill and decode exchange KV cache, and what does it cost? Judged from the pod templates that run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from disagg.api.engine import EngineKind
from disagg.api.kv_transfer import Transport
from disagg.api.names import ENGINE_ROLES, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.api.status import Reason
from disagg.assess.pod_failure import PodFailure
from disagg.build.compatibility import difference, incompatibility
from disagg.build.contract import breaches
from disagg.build.engine_template import parts
from disagg.build.kv_size import transfer_milliseconds, transferred_bytes
from disagg.build.pod_template import pod_templates
from disagg.build.transfer import Transfer, resolve
from disagg.decide.observed import Observed

PROMPT_TOKENS = 1000
"""Length of the prompt that the cost is stated for."""


@dataclass(frozen=True)
class Review:
    """What there is to say of a spec by itself: the same for as long as nobody changes it.

    Attributes:
        incompatibility: Why its roles could not exchange KV cache as it asks for them, or None.
        breaches: What it changes that an engine needs, each with the field.
        notes: What its user should know.
    """

    incompatibility: str | None
    breaches: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class KVTransferAssessment:
    """State of the KV transfer.

    Attributes:
        status: Status of the condition `KVCompatible`.
        reason: Its reason.
        message: Its message.
    """

    status: str
    reason: Reason
    message: str


def review(resource: DisaggregatedInference) -> Review:
    """Look through the spec of a resource."""
    templates = pod_templates(resource)
    broken = [
        text for role in ENGINE_ROLES for text in breaches(resource, role, templates[Workload(role)].body)
    ]
    notes = [note for role in ENGINE_ROLES for note in parts(resource.spec, role).engine.notes]
    return Review(incompatibility(resource), tuple(dict.fromkeys(broken)), tuple(dict.fromkeys(notes)))


def assess_kv_transfer(
    resource: DisaggregatedInference, observed: Observed, of_spec: Review, failures: Sequence[PodFailure] = ()
) -> KVTransferAssessment:
    """Judge whether the roles can exchange KV cache.

    Args:
        resource: The resource.
        observed: Its live children.
        of_spec: What there is to say of its spec.
        failures: Its pods that do not come up.
    """
    failed = {f"{pod.role}: {pod.words}" for pod in failures if pod.reason is Reason.PREFLIGHT_FAILED}
    if failed:
        return KVTransferAssessment("False", Reason.PREFLIGHT_FAILED, "; ".join(sorted(failed)))
    if resource.spec.engine.kind is EngineKind.CUSTOM:
        text = "engine.kind is custom: what its two ends must share is not known"
        return KVTransferAssessment("Unknown", Reason.ENGINE_UNKNOWN, text)
    if of_spec.incompatibility is not None:
        return KVTransferAssessment("False", Reason.INCOMPATIBLE_ROLES, of_spec.incompatibility)
    if (differ := _difference(resource, observed)) is not None:
        # A command in the place of the engine's is told as that, beside all that it lacks.
        return KVTransferAssessment("False", Reason.ROLES_DIFFER, "; ".join([differ, *of_spec.breaches]))
    if of_spec.breaches:
        return KVTransferAssessment("False", Reason.CONTRACT_BROKEN, "; ".join(of_spec.breaches))
    transfer = resolve(resource.spec)
    if transfer.transport is Transport.RDMA:
        reason, text = Reason.OVER_RDMA, f"KV cache moves over RDMA by {_library(transfer)}"
    else:
        reason, text = Reason.OVER_TCP, f"KV cache moves over TCP by {_library(transfer)}: {cost(resource)}"
    return KVTransferAssessment("True", reason, "; ".join([text, *of_spec.notes]))


def cost(resource: DisaggregatedInference) -> str:
    """What a transfer costs, in words: bytes of 1,000 prompt tokens, and their time on the link."""
    spec = resource.spec
    size = transferred_bytes(
        spec.model.uri, spec.engine.kv_cache_dtype, spec.decode.parallelism.tensor, PROMPT_TOKENS
    )
    gbps = resolve(spec).bandwidth_gbps
    if size is None:
        return "what it costs is not known for this model"
    text = f"{size / 1e6:.0f} MB per {PROMPT_TOKENS:,} prompt tokens"
    if gbps is None:
        return text
    stated = spec.kv_transfer is not None and spec.kv_transfer.bandwidth_gbps is not None
    source = "kvTransfer.bandwidthGbps" if stated else "assumed: set kvTransfer.bandwidthGbps"
    return f"{text}, {transfer_milliseconds(size, gbps):.0f} ms at {gbps} Gbit/s ({source})"


def _library(transfer: Transfer) -> str:
    return (
        f"{transfer.connector} ({transfer.backend})" if transfer.backend is not None else transfer.connector
    )


def _difference(resource: DisaggregatedInference, observed: Observed) -> str | None:
    kind = resource.spec.engine.kind
    for group in range(resource.spec.groups):
        prefill, decode = (observed.deployment(Workload(role, group)) for role in ENGINE_ROLES)
        if prefill is None or decode is None:
            continue
        found = difference(kind, prefill["spec"].get("template", {}), decode["spec"].get("template", {}))
        if found is not None:
            return f"prefill and decode cannot exchange KV cache, they differ in {found}"
    return None
