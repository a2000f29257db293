"""A real Kubernetes control plane on the local machine, with simulated GPU nodes.

On the command line `python -m e2e.cluster --help`; in Python `Cluster`; in tests the fixtures of
`e2e.cluster.fixtures`. Everything is built from Go modules (`tools`, `binaries`), runs as plain processes on
loopback (`components`, `launch`) and keeps its state in one folder (`state`). One of the nodes may be real (`node`).
"""

from e2e.cluster.audit import AuditEvent, AuditLog
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import (
    BuildError,
    ClusterError,
    CommandError,
    ComponentError,
    ToolchainError,
    WaitError,
)
from e2e.cluster.racks import Racks, load_racks
from e2e.cluster.state import Options
from e2e.cluster.status import ComponentStatus
from e2e.cluster.waiting import wait_until

__all__ = [
    "AuditEvent",
    "AuditLog",
    "BuildError",
    "Cluster",
    "ClusterError",
    "CommandError",
    "ComponentError",
    "ComponentStatus",
    "Options",
    "Racks",
    "ToolchainError",
    "WaitError",
    "load_racks",
    "wait_until",
]
