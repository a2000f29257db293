"""What the live Deployments say of where their pods were meant to go."""

from __future__ import annotations

from typing import Any

from disagg.api.names import PLACEMENT
from disagg.decide.decisions import Placement


def live_placement(deployment: dict[str, Any] | None) -> Placement | None:
    """The placement that a Deployment's pods were made for, or None."""
    return None if deployment is None else Placement.from_json(annotation(deployment, PLACEMENT))


def consists_of(deployment: dict[str, Any], placement: Placement | None) -> bool:
    """Whether all pods of a Deployment are made for `placement`, as far as the Deployment controller knows."""
    status = deployment.get("status", {})
    return (
        live_placement(deployment) == placement
        and int(status.get("observedGeneration", 0)) >= int(deployment["metadata"].get("generation", 1))
        and int(status.get("updatedReplicas", 0)) >= int(status.get("replicas", 0))
    )


def annotation(obj: dict[str, Any], name: str) -> str | None:
    """An annotation of an object."""
    value: str | None = obj["metadata"].get("annotations", {}).get(name)
    return value
