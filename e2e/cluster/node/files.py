"""Writes what the programs of a real node read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.cluster.node import configuration
from e2e.cluster.node.names import NODE_IP, PAUSE_IMAGE
from e2e.cluster.node.network import cni_configuration
from e2e.cluster.node.oci import write_program_archive
from e2e.cluster.state import Layout

NODE_USERS: Final = ("kubelet", "kube-proxy", "coredns")
"""Names of the certificates that get a kubeconfig."""


def write_node_files(layout: Layout, binaries: Mapping[str, Path]) -> None:
    """Write configuration files and the image that holds pods' namespaces.

    Args:
        layout: The state folder.
        binaries: The cluster's programs by name.
    """
    node = layout.node
    (node / "cni").mkdir(parents=True)
    (node / "cni" / "pods.conflist").write_text(cni_configuration())
    (node / "containerd.toml").write_text(
        configuration.containerd_configuration(layout, binaries["containerd-shim-runc-v2"], binaries["runc"])
    )
    (node / "kubelet.yaml").write_text(configuration.kubelet_configuration(layout))
    (node / "kube-proxy.yaml").write_text(configuration.kube_proxy_configuration(layout))
    (node / "Corefile").write_text(configuration.dns_configuration(layout))
    # What pods would get that do not use the cluster's DNS.
    (node / "resolv.conf").write_text(f"nameserver {NODE_IP}\n")
    write_program_archive(node / "pause.tar", PAUSE_IMAGE, binaries["pause"])
