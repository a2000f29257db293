"""Names, labels and annotations: how the children of a resource are called and found."""

from __future__ import annotations

from enum import StrEnum

GROUP = "disagg.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "DisaggregatedInference"
PLURAL = "disaggregatedinferences"

FIELD_MANAGER = "disagg"
STATUS_MANAGER = "disagg-status"
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

MAX_NAME_LENGTH = 50
"""Longest name of a resource: the children append up to 13 characters, and a label value has at most 63."""


class RoleName(StrEnum):
    """The three roles."""

    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"


ENGINE_ROLES: tuple[RoleName, ...] = (RoleName.PREFILL, RoleName.DECODE)


def child_name(resource: str, role: RoleName) -> str:
    """Name of every child of `resource` that belongs to `role`."""
    return f"{resource}-{role}"


def selector_labels(resource: str, role: RoleName) -> dict[str, str]:
    """Labels that select the pods of a role. They never change: a Deployment's selector is immutable."""
    labels = {NAME_LABEL: resource, ROLE_LABEL: str(role)}
    # The router serves all groups, so it belongs to none.
    if role is not RoleName.ROUTER:
        labels[GROUP_LABEL] = "0"
    return labels


def labels(resource: str, role: RoleName) -> dict[str, str]:
    """Labels of every child of `resource` that belongs to `role`.

    Never a label of the resource itself (GitOps tools that track by label would prune the child), and never
    `app.kubernetes.io/instance`, which is one of those.
    """
    return selector_labels(resource, role) | {
        "app.kubernetes.io/name": "disagg",
        "app.kubernetes.io/component": str(role),
        "app.kubernetes.io/part-of": resource,
        MANAGED_BY_LABEL: MANAGED_BY,
    }
