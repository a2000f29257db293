"""The folder of one cluster: where each file is, and the record of what was started.

The record is the only memory between two runs of the command: it names every process with the moment it started,
so that what is stopped is what was started, even if its process id has been given to another program since.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from e2e.cluster.errors import ClusterError
from e2e.cluster.ports import LOOPBACK, Ports
from e2e.cluster.racks import Racks, load_racks

RECORD_NAME: Final = "cluster.json"


class Options(BaseModel):
    """What kind of cluster is wanted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    racks: Racks = Field(default_factory=load_racks)
    """The nodes."""

    pod_groups: bool = True
    """Whether the PodGroup and Workload API and the topology-aware scheduling of groups are on."""

    pod_ready_delay: float = Field(default=2.0, ge=0)
    """Seconds from the binding of a pod until it is ready, as if it loaded a model meanwhile."""

    audit: bool = False
    """Whether the API server writes an audit log."""

    real_node: bool = False
    """Whether a real node runs beside the simulated ones, and all of the cluster in namespaces of its own."""


class ProcessRecord(BaseModel):
    """A process that was started."""

    model_config = ConfigDict(frozen=True)

    name: str
    """Name of the component."""

    pid: int
    """Process id."""

    started: float
    """Unix time at which the process started, as the operating system tells it."""


class Record(BaseModel):
    """What a state folder remembers."""

    options: Options
    ports: Ports
    processes: list[ProcessRecord] = []
    ready: bool = False
    """Whether the cluster once came up whole; a start that was cut off leaves this false."""


@dataclass(frozen=True)
class Layout:
    """Paths in a state folder.

    Attributes:
        root: The folder; absolute, since components run in it.
    """

    root: Path

    @property
    def record(self) -> Path:
        """The record, JSON."""
        return self.root / RECORD_NAME

    @property
    def lock(self) -> Path:
        """Held while the cluster goes up or down; beside the folder, which `down` removes."""
        return self.root.with_name(f".{self.root.name}.lock")

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def etcd_data(self) -> Path:
        """Data of etcd."""
        return self.root / "etcd"

    @property
    def audit_log(self) -> Path:
        """Audit events, a JSON object a line."""
        return self.root / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """What is written to the audit log."""
        return self.root / "audit-policy.yaml"

    @property
    def kwok_config(self) -> Path:
        """Stages for KWOK."""
        return self.root / "kwok.yaml"

    @property
    def node(self) -> Path:
        """Configuration, images and pods of the real node."""
        return self.root / "node"

    @property
    def client_home(self) -> Path:
        """Caches and settings of kubectl and helm, apart from the user's own."""
        return self.root / "client"

    def kubeconfig(self, user: str) -> Path:
        """Credentials of a user, named as its certificate."""
        return self.root / "kubeconfig" / f"{user}.yaml"

    def log(self, component: str) -> Path:
        """Output of a component."""
        return self.root / "logs" / f"{component}.log"

    def certificate(self, name: str) -> Path:
        """Certificate by its name in the plan."""
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Private key by its name in the plan."""
        return self.pki / f"{name}.key"


def server_url(ports: Ports) -> str:
    """Address of the API server, in the network of the cluster."""
    return f"https://{LOOPBACK}:{ports.apiserver}"


def read_record(layout: Layout) -> Record | None:
    """Read the record.

    Args:
        layout: The state folder.

    Returns:
        The record, or None if there is none.

    Raises:
        ClusterError: If it was written by an incompatible version of this package.
    """
    try:
        return Record.model_validate_json(layout.record.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ClusterError(
            f"{layout.record} is not of this version: end the processes that it names, then remove its folder"
        ) from error


def write_record(layout: Layout, record: Record) -> None:
    """Replace the record as a whole, so that a reader never sees half of one.

    Args:
        layout: The state folder.
        record: Its new record.
    """
    draft = layout.record.with_suffix(".draft")
    draft.write_text(record.model_dump_json(indent=2))
    os.replace(draft, layout.record)  # noqa: PTH105
