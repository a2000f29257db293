"""Building blocks of the spec's models: the base class, and types whose schema pydantic cannot express."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

QUANTITY = (
    r"^([0-9]{1,19}(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE]\+?(0?[0-9]|1[0-8])|[eE]-[0-9]{1,2})?$"
)
"""Kubernetes quantities without a sign: no resource of a pod may be negative. Nor can it be more than 2^63, so there is no
need for numbers that take for ever to work out."""


PERCENTAGE = r"^([0-9]|[1-9][0-9]|100)%$"


class Block(BaseModel):
    """A block of the resource.

    Unknown fields are dropped, not refused: strictness is the API server's (field validation), and a stored
    resource may carry fields of a newer schema than this operator knows.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )


def cel(rule: str, message: str, *, field: str | None = None) -> dict[str, str]:
    """One validation rule of the CRD.

    Args:
        rule: CEL expression that holds for a valid value; `self` is the value.
        message: CEL expression for the message that a user sees. It names the field, the value and the cure.
        field: Path of the field that the error is shown at, relative to `self`, such as `.minReplicas`.

    Returns:
        An item of `x-kubernetes-validations`.
    """
    validation = {"rule": rule, "messageExpression": message}
    if field is not None:
        validation["fieldPath"] = field
    return validation


def rules(*validations: dict[str, str]) -> ConfigDict:
    """Model configuration that puts `validations` on the schema of the block."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [dict(rule) for rule in validations]})


Free = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
"""An object whose schema is Kubernetes' own and far too large to repeat."""

KubernetesName = Annotated[
    str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]
"""Name of an object in the resource's namespace."""

Quantity = Annotated[
    int | str,
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "pattern": QUANTITY, "minimum": 0}),
]
"""An amount such as `64Gi`."""

IntOrPercent = Annotated[
    int | str,
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "pattern": PERCENTAGE,
            "minimum": 0,
            "maximum": 10000,
        }
    ),
]
"""A count of pods, or a percentage of them such as `25%`."""

Quantities = Annotated[
    dict[str, Quantity],
    Field(max_length=32),
]
"""Resource name to quantity, as in a container's `resources`."""

Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\S+$")]
"""Reference of a container image."""

Arguments = Annotated[
    list[Annotated[str, Field(max_length=8192)]],
    Field(max_length=256, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
]
"""Command line arguments, passed as they are."""


class EnvVar(Block):
    """An environment variable, as in a container."""

    model_config = rules(
        cel(
            "!(has(self.value) && has(self.valueFrom))",
            "'env ' + self.name + ': set value or valueFrom, not both'",
        )
    )

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^=\s]+$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=32768)] | None = None
    """Its value."""
    value_from: Free | None = None
    """Its source (secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef), as in a container."""

    @property
    def entry(self) -> dict[str, Any]:
        """Its item in a container's `env`."""
        return self.model_dump(by_alias=True, exclude_none=True)


Environment = Annotated[
    list[EnvVar],
    Field(
        max_length=256,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]
"""Environment variables, each name once."""


class PodMetadata(Block):
    """Overlay on the metadata of pods."""

    labels: Annotated[dict[str, str], Field(max_length=256)] | None = None
    """Labels to add. Those that select the pods stay as they are."""
    annotations: Annotated[dict[str, str], Field(max_length=256)] | None = None
    """Annotations to add."""


class PodTemplate(Block):
    """Strategic-merge overlay on a pod template."""

    metadata: PodMetadata | None = None
    """Overlay on the pods' labels and annotations."""
    spec: Free | None = None
    """Overlay on the pods' spec, of the same shape as in a Pod."""

    @property
    def overlay(self) -> dict[str, Any]:
        """The overlay as it was written, nulls included: they remove a field."""
        metadata = self.metadata.model_dump(exclude_none=True) if self.metadata is not None else None
        parts = {"metadata": metadata, "spec": self.spec}
        return {name: part for name, part in parts.items() if part is not None}


class Resources(Block):
    """Requests and limits of the role's main container, besides the accelerators."""

    requests: Quantities = {}
    """What the scheduler reserves, such as `{cpu: "8", memory: 64Gi}`."""
    limits: Quantities = {}
    """What the container may use at most."""
