"""The files that the programs of a real node read. Pure."""

from pathlib import Path
from typing import Final

import yaml

from e2e.cluster.certificates import CA
from e2e.cluster.node.cgroups import cgroup_name
from e2e.cluster.node.names import CLUSTER_DOMAIN, DNS_IP, NODE_IP, NODE_NAME, NODE_RANGE, PAUSE_IMAGE
from e2e.cluster.state import Layout

CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
DNS_READY_PORT: Final = 8181
PROXY_READY_PORT: Final = 10256

_CNI_PLUGINS: Final = "/usr/lib/cni"


def containerd_configuration(layout: Layout, shim: Path, runc: Path) -> str:
    """The configuration of containerd, whose folders are the usual ones: the sandbox has its own.

    Args:
        layout: The state folder.
        shim: The program that stays with each pod.
        runc: The program that starts containers.
    """
    # A machine that is a container or a small VM itself may lack the right to lower a process's oom_score_adj, and
    # runc would then fail to start any.
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{_CNI_PLUGINS}"]
conf_dir = "{layout.node / "cni"}"

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "{shim}"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""


def kubelet_configuration(layout: Layout) -> str:
    """The configuration of the kubelet.

    Args:
        layout: The state folder.
    """
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_IP,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(layout.certificate(CA))},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(layout.certificate("kubelet-server")),
            "tlsPrivateKeyFile": str(layout.key("kubelet-server")),
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "clusterDNS": [DNS_IP],
            "clusterDomain": CLUSTER_DOMAIN,
            "resolvConf": str(layout.node / "resolv.conf"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup_name(layout.root)}",
            # The kubelet may not limit what else runs on this machine, nor refuse its kind of cgroups or its swap.
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            # A full disk is the machine's own affair: images that were put on the node could not be pulled again.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
            },
        },
        sort_keys=False,
    )


def kube_proxy_configuration(layout: Layout) -> str:
    """The configuration of kube-proxy.

    Args:
        layout: The state folder.
    """
    return yaml.safe_dump(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(layout.kubeconfig("kube-proxy"))},
            "clusterCIDR": NODE_RANGE,
            "hostnameOverride": NODE_NAME,
            "healthzBindAddress": f"127.0.0.1:{PROXY_READY_PORT}",
            "metricsBindAddress": "127.0.0.1:10249",
            "oomScoreAdj": 0,
            # Pods share a bridge, which would carry answers past the rules that brought the question.
            "nftables": {"masqueradeAll": True},
            # These are settings of the whole machine.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        },
        sort_keys=False,
    )


def dns_configuration(layout: Layout) -> str:
    """The configuration of CoreDNS: names of the cluster, and for all others that there is no such name.

    Args:
        layout: The state folder.
    """
    return f"""\
{CLUSTER_DOMAIN}:53 in-addr.arpa:53 {{
    bind {NODE_IP}
    errors
    ready 127.0.0.1:{DNS_READY_PORT}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {layout.kubeconfig("coredns")}
        ttl 5
    }}
}}
.:53 {{
    bind {NODE_IP}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""
