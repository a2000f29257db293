"""`python -m e2e.real_vllm`: prepare what the tests need, and say where it is."""

import sys

from rich.console import Console

from e2e.cluster.errors import ClusterError
from e2e.real_vllm.installation import installation

if __name__ == "__main__":
    console = Console(stderr=True)
    try:
        found = installation(console)
    except ClusterError as error:
        console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    console.print(f"vLLM {found.version} is in {found.folder}", markup=False, highlight=False, soft_wrap=True)
