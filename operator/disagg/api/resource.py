"""A `DisaggregatedInference` as read from the API server."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from disagg.api.fields import Block
from disagg.api.names import API_VERSION, KIND
from disagg.api.spec import Spec
from disagg.api.status import Status


class InvalidSpecError(ValueError):
    """The stored spec does not fit this operator's schema; the message names each field and value."""


class Metadata(Block):
    """The part of the resource's metadata that matters to the operator."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    deletion_timestamp: str | None = None


class DisaggregatedInference(Block):
    """The resource."""

    metadata: Metadata
    spec: Spec
    status: Status = Field(default_factory=Status)

    @property
    def owner_reference(self) -> dict[str, Any]:
        """Owner reference for the children.

        Without blockOwnerDeletion: setting it needs a right on the resource's finalizers, and nothing here has to
        wait for anything else when a resource is deleted.
        """
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.metadata.name,
            "uid": self.metadata.uid,
            "controller": True,
        }


def parse(raw: dict[str, Any]) -> DisaggregatedInference:
    """Read a resource.

    Raises:
        InvalidSpecError: A field is missing or has a value that the schema refuses. It can happen with the API
            server's blessing when the CRD is newer, older or looser than this operator.
    """
    try:
        return DisaggregatedInference.model_validate(raw)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']} (is {problem['input']!r:.80})"
            for problem in error.errors(include_url=False)
        ]
        raise InvalidSpecError("; ".join(problems)) from error
