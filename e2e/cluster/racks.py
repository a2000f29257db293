"""Racks of GPU nodes, from a small YAML file to Node objects that KWOK keeps alive.

Pure, except that `load_racks` reads the file it is given.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from e2e.cluster.errors import ClusterError

DEFAULT_RACKS: Final = Path(__file__).parent / "racks" / "default.yaml"

RACK_LABEL: Final = "topology.kubernetes.io/rack"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
BLOCK_LABEL: Final = "topology.kubernetes.io/block"

# The annotation that puts a node under KWOK's care.
KWOK_NODE: Final = ("kwok.x-k8s.io/node", "fake")

Quantity = int | Annotated[str, Field(pattern=r"^\d+(\.\d+)?([numkKMGTPE]i?)?$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeTemplate(_Strict):
    """What all nodes have, unless their rack says otherwise."""

    capacity: dict[str, Quantity]
    """Capacity by resource name; `pods` is 110 if absent."""

    labels: dict[str, str] = {}
    """Further labels."""


class Rack(_Strict):
    """One rack."""

    name: Name
    """Value of the rack label."""

    zone: Name
    """Value of the zone label."""

    block: Name
    """Value of the block label."""

    nodes: int = Field(ge=0)
    """How many nodes stand in it."""

    capacity: dict[str, Quantity] = {}
    """Capacity of each of its nodes, laid over the template's."""

    labels: dict[str, str] = {}
    """Labels of each of its nodes, laid over the template's."""


class Racks(_Strict):
    """All racks of a cluster."""

    node: NodeTemplate
    racks: list[Rack]

    def nodes(self) -> list[dict[str, Any]]:
        """The Node objects, named `gpu-r<rack>-n<node>` by position."""
        return [
            self._node(f"gpu-r{r}-n{n}", rack) for r, rack in enumerate(self.racks) for n in range(rack.nodes)
        ]

    def _node(self, name: str, rack: Rack) -> dict[str, Any]:
        resources = {"pods": 110} | self.node.capacity | rack.capacity
        capacity = {resource: str(quantity) for resource, quantity in resources.items()}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            RACK_LABEL: rack.name,
            ZONE_LABEL: rack.zone,
            BLOCK_LABEL: rack.block,
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": labels | self.node.labels | rack.labels,
                "annotations": dict([KWOK_NODE]),
            },
            "status": {"capacity": capacity, "allocatable": capacity},
        }


def load_racks(path: Path = DEFAULT_RACKS) -> Racks:
    """Read racks from a file.

    Args:
        path: A YAML file; see `racks/default.yaml` for the form.

    Returns:
        The racks.

    Raises:
        ClusterError: If the file cannot be read or does not have that form; the text names each wrong field.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ClusterError(f"cannot read the racks in {path}: {error}") from error
    try:
        return Racks.model_validate(document)
    except ValidationError as error:
        problems = "\n".join(
            f"  {'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise ClusterError(f"{path} does not describe racks:\n{problems}") from error
