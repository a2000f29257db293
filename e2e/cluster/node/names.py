"""What the real node and its network are called. Pure."""

from typing import Final

NODE_NAME: Final = "real"

NODE_IP: Final = "10.65.0.1"
"""Address of the bridge that pods hang on; the API server, the kubelet and DNS answer there."""

NODE_RANGE: Final = "10.65.0.0/16"

DNS_IP: Final = "10.96.0.10"
"""Address of the Service of the cluster's DNS, in the range of Services."""

CLUSTER_DOMAIN: Final = "cluster.local"

KIND_LABEL: Final = "node.disagg.dev/kind"
"""Tells the nodes apart; a pod chooses one by nodeSelector."""

REAL: Final = "real"
SIMULATED: Final = "simulated"

PAUSE_IMAGE: Final = "localhost/disagg/pause:local"
"""What holds a pod's namespaces; it is put on the node, as nothing can be pulled there."""
