"""`disagg render`: the objects that resources become, without a cluster."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from disagg.api import plain_yaml
from disagg.api.names import API_VERSION, KIND
from disagg.api.resource import DisaggregatedInference, InvalidSpecError, parse
from disagg.assess.kv_transfer import review
from disagg.build.objects import build, plan
from disagg.commands.common import UNREADABLE, failure, resources_in
from disagg.commands.rules import can_be_checked, violations
from disagg.decide.environment import Environment
from disagg.decide.observed import Observed

_UNCHECKED = (
    "the rules of the CRD are not checked, for there is no common-expression-language here: install that by pip, or ask"
    " the API server by `kubectl apply --dry-run=server`"
)


def render(
    file: Annotated[
        Path, typer.Option("--file", "-f", help="YAML with the resources; - for standard input.")
    ],
) -> None:
    """Print the objects that resources become, without a cluster.

    They are what the operator would apply for a new resource; a running one keeps, for example, the replicas that its
    autoscaler has set. What the API server would refuse by the rules of the CRD is an error; what would show in the
    condition KVCompatible is a warning on standard error.
    """
    try:
        resources = [_parsed(document) for document in resources_in(file)]
        reviews = [(resource.metadata.name, review(resource)) for resource in resources]
        objects = [obj for resource in resources for obj in rendered(resource)]
    except UNREADABLE as error:
        raise failure(f"{file}: {error}") from error
    if not objects:
        raise failure(f"{file}: no {KIND} of {API_VERSION} in it")
    if refused := [f"{name}: {why}" for name, found in reviews if (why := found.incompatibility) is not None]:
        raise failure(f"{file}: {'; '.join(refused)}")
    if not can_be_checked():
        typer.echo(f"Warning: {_UNCHECKED}", err=True)
    for name, found in reviews:
        for warning in (*found.breaches, *found.notes):
            typer.echo(f"Warning: {name}: {warning}", err=True)
    sys.stdout.write(plain_yaml.dump(objects, explicit_start=True))


def _parsed(document: dict[str, Any]) -> DisaggregatedInference:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    try:
        resource = parse(document)
    except InvalidSpecError as error:
        raise InvalidSpecError(f"{name}: {error}" if name is not None else str(error)) from error
    if can_be_checked() and (broken := violations(document)):
        raise InvalidSpecError(f"{name}: {'; '.join(broken)}")
    return resource


def rendered(resource: DisaggregatedInference) -> list[dict[str, Any]]:
    """The objects that a new resource becomes."""
    decisions = plan(resource, Observed(resource.metadata.name), Environment(), datetime.now(UTC))
    objects = build(resource, decisions)
    scaled = {
        obj["spec"]["scaleTargetRef"]["name"] for obj in objects if obj["kind"] == "HorizontalPodAutoscaler"
    }
    for obj in objects:
        # The owner has no uid before it exists.
        del obj["metadata"]["ownerReferences"]
        if obj["kind"] == "Deployment" and obj["metadata"]["name"] in scaled:
            # With what a new group begins. Kept in a repository, it would undo what the autoscaler does.
            obj["spec"].pop("replicas", None)
    return objects
