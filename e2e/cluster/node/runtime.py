"""Speaks to the container runtime of a real node."""

from pathlib import Path
from typing import Final

from e2e.cluster.errors import ClusterError
from e2e.cluster.node.sandbox import Sandbox

# The namespace in which the kubelet's images and containers are.
_NAMESPACE: Final = "k8s.io"


def runtime_answers(sandbox: Sandbox, ctr: Path) -> bool:
    """Whether the runtime takes requests.

    Args:
        sandbox: Where it runs.
        ctr: The client program.
    """
    try:
        sandbox.run([str(ctr), "--connect-timeout=1s", "version"])
    except ClusterError:
        return False
    return True


def import_image(sandbox: Sandbox, ctr: Path, archive: Path) -> None:
    """Put an image on the node.

    Args:
        sandbox: Where the runtime runs.
        ctr: The client program.
        archive: An OCI archive.

    Raises:
        ClusterError: If the runtime refuses.
    """
    sandbox.run([str(ctr), f"--namespace={_NAMESPACE}", "images", "import", str(archive)])
