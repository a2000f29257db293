"""A pair of real vLLM engines on this machine's CPU, started as the operator renders them.

What a container of a pod would have is here as in a cluster: an address of its own, its ports, its files at the paths of its
mounts, its environment and nothing else, process 1. `container` says what stands for what, and what is left out.
"""

from e2e.real_vllm import handshake, tiny_model
from e2e.real_vllm.client import Answer, Client
from e2e.real_vllm.container import Container, containers
from e2e.real_vllm.installation import Installation, installation, is_installed
from e2e.real_vllm.network import Network
from e2e.real_vllm.pod import Pod

__all__ = [
    "Answer",
    "Client",
    "Container",
    "Installation",
    "Network",
    "Pod",
    "containers",
    "handshake",
    "installation",
    "is_installed",
    "tiny_model",
]
