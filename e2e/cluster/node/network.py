"""The network of a cluster with a real node: bridges inside of a namespace that has no way out."""

import json
from typing import Any, Final

from e2e.cluster.components import SERVICE_RANGE
from e2e.cluster.node.names import NODE_IP, NODE_RANGE
from e2e.cluster.node.sandbox import Sandbox

_BRIDGE: Final = "pods"
_PREFIX_LENGTH: Final = NODE_RANGE.partition("/")[2]

# The bridge is there before the first pod, since the API server answers at its address. Packets for a Service need
# some route to be sent at all, before kube-proxy's rules change where they go.
_COMMANDS: Final = f"""\
ip link set lo up
ip link add {_BRIDGE} type bridge
ip address add {NODE_IP}/{_PREFIX_LENGTH} dev {_BRIDGE}
ip link set {_BRIDGE} up
ip link add services type bridge
ip link set services up
ip route add {SERVICE_RANGE} dev services src {NODE_IP}
echo 1 > /proc/sys/net/ipv4/ip_forward
"""

CNI_CONFIGURATION: Final[dict[str, Any]] = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": _BRIDGE,
            "isGateway": True,
            "isDefaultGateway": True,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": NODE_RANGE, "gateway": NODE_IP}]]},
        },
    ],
}


def prepare_network(sandbox: Sandbox) -> None:
    """Set the network up.

    Args:
        sandbox: The namespaces, with nothing but a loopback device that is down.

    Raises:
        ClusterError: If the kernel refuses.
    """
    sandbox.run(["sh", "-ec", _COMMANDS])


def cni_configuration() -> str:
    """What the container runtime reads to give a pod its address."""
    return json.dumps(CNI_CONFIGURATION, indent=2)
