"""The command line of each process of a real node. Pure."""

from e2e.cluster.components import Component
from e2e.cluster.node.configuration import DNS_READY_PORT, PROXY_READY_PORT
from e2e.cluster.node.names import KIND_LABEL, NODE_IP, NODE_NAME, REAL
from e2e.cluster.state import Layout


def container_runtime(layout: Layout) -> Component:
    """The container runtime."""
    return Component("containerd", (f"--config={layout.node / 'containerd.toml'}",), None)


def node_components(layout: Layout) -> tuple[Component, ...]:
    """The clients of the API server, of which the kubelet needs the container runtime, too.

    Args:
        layout: The state folder.

    Returns:
        kubelet, kube-proxy and coredns.
    """
    return (
        Component(
            "kubelet",
            (
                f"--config={layout.node / 'kubelet.yaml'}",
                f"--kubeconfig={layout.kubeconfig('kubelet')}",
                f"--hostname-override={NODE_NAME}",
                f"--node-ip={NODE_IP}",
                f"--node-labels={KIND_LABEL}={REAL}",
            ),
            None,
        ),
        Component("kube-proxy", (f"--config={layout.node / 'kube-proxy.yaml'}",), PROXY_READY_PORT),
        Component("coredns", (f"-conf={layout.node / 'Corefile'}",), DNS_READY_PORT),
    )
