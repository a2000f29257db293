"""The status of a `DisaggregatedInference`: conditions, counts per role, endpoint.

Condition types follow kstatus (`Ready`, `Reconciling`, `Stalled`), so that `kubectl wait`, `helm --wait`, Flux and
Argo CD judge a resource from the same fields.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from disagg.api.fields import Block


class ConditionType(StrEnum):
    """Conditions of a resource, in the order in which they are shown."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    PREFILL_READY = "PrefillReady"
    DECODE_READY = "DecodeReady"
    ROUTER_READY = "RouterReady"
    AUTOSCALING_READY = "AutoscalingReady"
    PACKED = "Packed"
    KV_COMPATIBLE = "KVCompatible"
    PAUSED = "Paused"


class Reason(StrEnum):
    """Reasons of conditions and events. docs/conditions.md says of each what it means and what to do."""

    READY = "Ready"
    SCALED_TO_ZERO = "ScaledToZero"
    NEW_GENERATION = "NewGeneration"
    PROGRESSING = "Progressing"
    ROLLING_OUT = "RollingOut"
    DEPLOYMENT_PAUSED = "DeploymentPaused"
    PODS_NOT_READY = "PodsNotReady"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    CREATE_CONTAINER_ERROR = "CreateContainerError"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    CONVERGED = "Converged"
    NOT_STALLED = "NotStalled"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    REPLICA_FAILURE = "ReplicaFailure"
    INVALID_SPEC = "InvalidSpec"
    REJECTED = "Rejected"
    REPLICAS_CONTENDED = "ReplicasContended"
    NAME_CONFLICT = "NameConflict"
    FORBIDDEN = "Forbidden"
    ROUTER_DISABLED = "RouterDisabled"
    AUTOSCALING_DISABLED = "AutoscalingDisabled"
    AUTOSCALING_ACTIVE = "AutoscalingActive"
    AUTOSCALER_STARTING = "AutoscalerStarting"
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    PACKED = "Packed"
    SPLIT = "Split"
    REPACKED = "Repacked"
    PLACEMENT_PENDING = "PlacementPending"
    INSUFFICIENT_DOMAIN_CAPACITY = "InsufficientDomainCapacity"
    CONSTRAINT_CHANGED = "ConstraintChanged"
    NO_TOPOLOGY_LABELS = "NoTopologyLabels"
    NODES_LACK_LABEL = "NodesLackLabel"
    LEVEL_UNKNOWN = "LevelUnknown"
    NODE_ACCESS_DENIED = "NodeAccessDenied"
    OTHER_SCHEDULER = "OtherScheduler"
    NO_TOPOLOGY_CONSTRAINT = "NoTopologyConstraint"
    OVER_RDMA = "OverRDMA"
    OVER_TCP = "OverTCP"
    ROLES_DIFFER = "RolesDiffer"
    CONTRACT_BROKEN = "ContractBroken"
    PREFLIGHT_FAILED = "PreflightFailed"
    ENGINE_UNKNOWN = "EngineUnknown"
    INCOMPATIBLE_ROLES = "IncompatibleRoles"
    PAUSED = "Paused"
    NOT_PAUSED = "NotPaused"


class Condition(Block):
    """One condition, as Kubernetes' API conventions define it."""

    type: Annotated[str, Field(max_length=316)]
    """What the condition is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: int
    """Generation of the resource that this was said of."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When `status` last changed."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why, in one word."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, for people."""


class RoleStatus(Block):
    """Pods of one role."""

    desired_replicas: int
    """Pods that are wanted now: the Deployment's spec.replicas."""
    ready_replicas: int
    """Pods that answer their readiness probe."""
    updated_replicas: int
    """Pods of the latest template."""
    ready: Annotated[str, Field(max_length=32)]
    """Ready of desired pods, such as 2/4."""


class RolesStatus(Block):
    """Pods by role."""

    prefill: RoleStatus | None = None
    """Pods that compute the KV cache of prompts."""
    decode: RoleStatus | None = None
    """Pods that generate tokens."""
    router: RoleStatus | None = None
    """Pods that take requests."""


class Fits(Block):
    """Whether the domain has room for the group, its own pods counted as part of it."""

    now: bool
    """For the pods that are wanted now."""
    at_maximum: bool
    """For as many as autoscaling may ask for."""


class PodsByRole(Block):
    """Numbers of pods."""

    prefill: int
    """Prefill pods."""
    decode: int
    """Decode pods."""


MAX_DOMAINS = 1024
"""Domains that a status shows of a role: the largest."""
DomainPods = Annotated[dict[str, int], Field(max_length=MAX_DOMAINS)]


class GroupStatus(Block):
    """Where a group is."""

    group: int
    """Number of the group."""
    domain: Annotated[str, Field(max_length=63)] | None = None
    """Value of the node label in the domain that the group is packed into; absent while none is chosen."""
    level_key: Annotated[str, Field(max_length=317)] | None = None
    """Key of that node label."""
    mechanism: Annotated[str, Field(max_length=63)] | None = None
    """What keeps the group together: PodAffinity or PodGroup."""
    prefill: DomainPods | None = None
    """Prefill pods by domain; under "" those on nodes without the label."""
    decode: DomainPods | None = None
    """Decode pods by domain; under "" those on nodes without the label."""
    pending: PodsByRole | None = None
    """Pods that no node was found for; absent if there are none."""
    fits: Fits | None = None
    """Whether the domain has room for the group."""
    headroom: PodsByRole | None = None
    """How many more pods of each role the domain has room for, each role for itself, up to what autoscaling may ask
    for, or to 8 where it is off."""


class Status(Block):
    """What the operator last saw."""

    observed_generation: int | None = None
    """Generation of the spec that this status is about."""
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=32,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = []
    """Ready sums them up; reasons are explained in docs/conditions.md."""
    roles: RolesStatus | None = None
    """Pods by role."""
    groups: Annotated[list[GroupStatus], Field(max_length=100)] | None = None
    """Where each group is packed. Absent without a topologyConstraint."""
    domains: Annotated[str, Field(max_length=512)] | None = None
    """The domains of all groups, in a line."""
    endpoint: Annotated[str, Field(max_length=512)] | None = None
    """URL that clients in the cluster call. Absent without a router."""

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of type `kind`, if there is one."""
        return next((condition for condition in self.conditions if condition.type == kind), None)
