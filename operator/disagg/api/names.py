"""Names, labels and annotations: how the children of a resource are called and found."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

GROUP = "disagg.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "DisaggregatedInference"
PLURAL = "disaggregatedinferences"

FIELD_MANAGER = "disagg"
STATUS_MANAGER = "disagg-status"
TOPOLOGY_MANAGER = "disagg-topology"
"""Owns the labels that tell a running pod where it is."""
SEED_MANAGER = "disagg-seed"
"""Holds `spec.replicas` of a Deployment from the moment the operator lets go of it until somebody else sets it."""

NAME_LABEL = f"{GROUP}/name"
ROLE_LABEL = f"{GROUP}/role"
GROUP_LABEL = f"{GROUP}/group"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "disagg"

RENDER_REVISION = f"{GROUP}/render-revision"
"""Annotation of a Deployment: revision of the renderer that made its pod template."""
TEMPLATE_INPUTS = f"{GROUP}/template-inputs"
"""Annotation of a Deployment: hash over the fields of the resource that its pod template was rendered from."""

KV_COMPATIBILITY_LABEL = f"{GROUP}/kv-compatibility"
"""Label of a prefill or decode pod: hash over what it shares with those that it can exchange KV cache with."""

ENGINE_VERSION = f"{GROUP}/engine-version"
"""Annotation of a pod: engine.version, where the user has said it, since the image's tag does not tell."""

PLACEMENT = f"{GROUP}/placement"
"""Annotation of a Deployment: where its group is packed, and how. Label of a pod: which of these it was made for."""
DOMAIN_LABEL = f"{GROUP}/domain"
"""Label of a running pod: the value of its pack domain."""
LEVEL_LABELS = f"topology.{GROUP}/"
"""Labels of a running pod, by level: what its node is labelled with."""

MAX_NAME_LENGTH = 50
"""Longest name of a resource: the children append up to 13 characters, and a label value has at most 63."""


class RoleName(StrEnum):
    """The three roles."""

    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"


ENGINE_ROLES: tuple[RoleName, ...] = (RoleName.PREFILL, RoleName.DECODE)


class Workload(NamedTuple):
    """A role in a group: what a Deployment runs.

    As text it is what the names of its objects end with: the first group has no number, so that a second one renames
    nothing.
    """

    role: RoleName
    group: int = 0

    def __str__(self) -> str:
        return f"{self.role}-{self.group}" if self.group else str(self.role)


Part = Workload | RoleName
"""What a child belongs to: a role in one group, or a role in all groups."""


def child_name(resource: str, part: Part) -> str:
    """Name of every child of `resource` that belongs to `part`."""
    return f"{resource}-{part}"


def selector_labels(resource: str, part: Part) -> dict[str, str]:
    """Labels that select the pods of `part`. They never change: a Deployment's selector is immutable."""
    if isinstance(part, RoleName):
        return {NAME_LABEL: resource, ROLE_LABEL: str(part)}
    return {NAME_LABEL: resource, ROLE_LABEL: str(part.role), GROUP_LABEL: str(part.group)}


def labels(resource: str, part: Part) -> dict[str, str]:
    """Labels of every child of `resource` that belongs to `part`.

    Never a label of the resource itself (GitOps tools that track by label would prune the child), and never
    `app.kubernetes.io/instance`, which is one of those.
    """
    role = part if isinstance(part, RoleName) else part.role
    return selector_labels(resource, part) | {
        "app.kubernetes.io/name": "disagg",
        "app.kubernetes.io/component": str(role),
        "app.kubernetes.io/part-of": resource,
        MANAGED_BY_LABEL: MANAGED_BY,
    }
