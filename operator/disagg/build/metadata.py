"""Metadata that every child has."""

from __future__ import annotations

from typing import Any

from disagg.api.names import Part, child_name, labels
from disagg.api.resource import DisaggregatedInference


def child(api_version: str, kind: str, resource: DisaggregatedInference, part: Part) -> dict[str, Any]:
    """Head of a child object: type, name, labels, owner.

    Args:
        api_version: Such as `apps/v1`.
        kind: Such as `Deployment`.
        resource: The resource that owns the child.
        part: What the child belongs to.
    """
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": child_name(resource.metadata.name, part),
            "namespace": resource.metadata.namespace,
            "labels": labels(resource.metadata.name, part),
            "ownerReferences": [resource.owner_reference],
        },
    }
