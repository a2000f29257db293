"""The command line of each control plane process.

Pure: from paths, ports and options to arguments. Every listener is on loopback, but for the API server beside a real
node, whose pods call it: there it is alone in a network without a way out.
"""

from dataclasses import dataclass
from typing import Final

from e2e.cluster.certificates import CA, FRONT_PROXY_CA, SERVICE_ACCOUNT_KEY
from e2e.cluster.node.names import NODE_IP
from e2e.cluster.ports import LOOPBACK, Ports
from e2e.cluster.racks import KWOK_NODE
from e2e.cluster.state import Layout, Options

SERVICE_RANGE: Final = "10.96.0.0/16"
POD_RANGE: Final = "10.244.0.0/16"
# They act on volumes, devices and certificates that simulated nodes do not have. Each controller's credentials cost a
# tenth of a second at start, since the client limits of the controller manager stay as in a real cluster.
_UNUSED_CONTROLLERS: Final = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "device-taint-eviction-controller",
    "ephemeral-volume-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "node-ipam-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "podcertificaterequest-cleaner-controller",
    "resourceclaim-controller",
    "storage-version-migrator-controller",
    "ttl-controller",
    "volumeattributesclass-protection-controller",
)

POD_GROUP_GATES: Final = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"


@dataclass(frozen=True)
class Component:
    """A process of the control plane.

    Attributes:
        name: Its name, which is also the name of its binary.
        arguments: Its command line without the binary.
        port: Where it listens on loopback; None if it does not listen.
    """

    name: str
    arguments: tuple[str, ...]
    port: int | None


def storage_and_api(layout: Layout, ports: Ports, options: Options) -> tuple[Component, ...]:
    """The components that all others need; they may start together, as the API server waits for etcd.

    Args:
        layout: The state folder.
        ports: The listeners' ports.
        options: What kind of cluster is wanted.

    Returns:
        etcd and kube-apiserver.
    """
    return etcd(layout, ports), apiserver(layout, ports, options)


def controllers(layout: Layout, ports: Ports, options: Options) -> tuple[Component, ...]:
    """The clients of the API server; some of them give up if it is not there soon.

    Args:
        layout: The state folder.
        ports: The listeners' ports.
        options: What kind of cluster is wanted.

    Returns:
        kube-controller-manager, kube-scheduler and kwok.
    """
    return (
        controller_manager(layout, ports, options),
        scheduler(layout, ports, options),
        kwok(layout),
    )


def etcd(layout: Layout, ports: Ports) -> Component:
    """The storage."""
    client = f"http://{LOOPBACK}:{ports.etcd_client}"
    peer = f"http://{LOOPBACK}:{ports.etcd_peer}"
    arguments = (
        "--name=local",
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        # All state is thrown away with the cluster, so a crash of the machine has nothing to lose.
        "--unsafe-no-fsync",
        "--log-level=warn",
    )
    return Component("etcd", arguments, ports.etcd_client)


def apiserver(layout: Layout, ports: Ports, options: Options) -> Component:
    """The API server."""
    arguments = [
        f"--etcd-servers=http://{LOOPBACK}:{ports.etcd_client}",
        f"--secure-port={ports.apiserver}",
        *(_for_pods(layout) if options.real_node else _for_this_machine()),
        f"--tls-cert-file={layout.certificate('apiserver')}",
        f"--tls-private-key-file={layout.key('apiserver')}",
        f"--client-ca-file={layout.certificate(CA)}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={layout.pki / SERVICE_ACCOUNT_KEY}.pub",
        f"--service-account-signing-key-file={layout.key(SERVICE_ACCOUNT_KEY)}",
        f"--requestheader-client-ca-file={layout.certificate(FRONT_PROXY_CA)}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={layout.certificate('front-proxy-client')}",
        f"--proxy-client-key-file={layout.key('front-proxy-client')}",
    ]
    if options.pod_groups:
        arguments += [POD_GROUP_GATES, "--runtime-config=scheduling.k8s.io/v1beta1=true"]
    if options.audit:
        arguments += [f"--audit-policy-file={layout.audit_policy}", f"--audit-log-path={layout.audit_log}"]
    return Component("kube-apiserver", tuple(arguments), ports.apiserver)


def _for_this_machine() -> tuple[str, ...]:
    return (
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        # The Service `kubernetes` may not have a loopback address as its endpoint.
        "--endpoint-reconciler-type=none",
    )


def _for_pods(layout: Layout) -> tuple[str, ...]:
    return (
        "--bind-address=0.0.0.0",
        f"--advertise-address={NODE_IP}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={layout.certificate(CA)}",
        f"--kubelet-client-certificate={layout.certificate('kubelet-client')}",
        f"--kubelet-client-key={layout.key('kubelet-client')}",
    )


def controller_manager(layout: Layout, ports: Ports, options: Options) -> Component:
    """The controllers of Kubernetes."""
    arguments = (
        *_client_arguments(layout, "controller-manager", ports.controller_manager, options),
        "--use-service-account-credentials",
        f"--service-account-private-key-file={layout.key(SERVICE_ACCOUNT_KEY)}",
        f"--root-ca-file={layout.certificate(CA)}",
        f"--controllers=*,{','.join(f'-{name}' for name in _UNUSED_CONTROLLERS)}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--horizontal-pod-autoscaler-sync-period=5s",
        # On a loaded machine KWOK's heartbeats come late. A node that turned NotReady for that takes the Ready
        # condition from its pods, and no stage of KWOK gives it back.
        "--node-monitor-grace-period=10m",
    )
    return Component("kube-controller-manager", arguments, ports.controller_manager)


def scheduler(layout: Layout, ports: Ports, options: Options) -> Component:
    """The scheduler."""
    arguments = _client_arguments(layout, "scheduler", ports.scheduler, options)
    return Component("kube-scheduler", arguments, ports.scheduler)


def kwok(layout: Layout) -> Component:
    """The stand-in for the kubelets of all nodes."""
    annotation, value = KWOK_NODE
    arguments = (
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={layout.kwok_config}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={annotation}={value}",
        "--node-lease-duration-seconds=40",
        f"--node-ip={LOOPBACK}",
        f"--cidr={POD_RANGE}",
    )
    return Component("kwok", arguments, None)


def _client_arguments(layout: Layout, user: str, port: int, options: Options) -> tuple[str, ...]:
    kubeconfig = layout.kubeconfig(user)
    arguments = (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        "--leader-elect=false",
    )
    return (*arguments, POD_GROUP_GATES) if options.pod_groups else arguments
