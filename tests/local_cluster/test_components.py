"""Command lines of the control plane."""

import re
from pathlib import Path

import pytest

from e2e.cluster.components import Component, controllers, storage_and_api
from e2e.cluster.ports import Ports
from e2e.cluster.state import Layout, Options

LAYOUT = Layout(Path("/state"))
PORTS = Ports.from_block(21000)
GATES = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"


def components(**options: bool) -> dict[str, Component]:
    chosen = Options(**options)
    made = (*storage_and_api(LAYOUT, PORTS, chosen), *controllers(LAYOUT, PORTS, chosen))
    return {component.name: component for component in made}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        (
            "etcd",
            ["--unsafe-no-fsync", "--data-dir=/state/etcd", "--listen-client-urls=http://127.0.0.1:21000"],
        ),
        (
            "kube-apiserver",
            [
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--secure-port=21002",
                "--authorization-mode=Node,RBAC",
                "--requestheader-client-ca-file=/state/pki/front-proxy-ca.crt",
                "--requestheader-allowed-names=front-proxy-client",
                "--proxy-client-cert-file=/state/pki/front-proxy-client.crt",
                "--service-account-signing-key-file=/state/pki/service-account.key",
            ],
        ),
        (
            "kube-controller-manager",
            [
                "--bind-address=127.0.0.1",
                "--secure-port=21003",
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--horizontal-pod-autoscaler-sync-period=5s",
                "--node-monitor-grace-period=10m",
                "--kubeconfig=/state/kubeconfig/controller-manager.yaml",
            ],
        ),
        ("kube-scheduler", ["--bind-address=127.0.0.1", "--secure-port=21004", "--leader-elect=false"]),
        (
            "kwok",
            ["--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--config=/state/kwok.yaml"],
        ),
    ],
)
def test_arguments(name: str, arguments: list[str]) -> None:
    assert [argument for argument in arguments if argument not in components()[name].arguments] == []


def test_every_address_is_loopback() -> None:
    for component in components().values():
        for argument in component.arguments:
            for address in re.findall(r"https?://([^:,/]+):\d+|address=(\S+)", argument):
                assert "127.0.0.1" in address, argument


@pytest.mark.parametrize("pod_groups", [True, False])
def test_pod_groups_are_switched_everywhere_at_once(pod_groups: bool) -> None:
    gated = {
        name for name, component in components(pod_groups=pod_groups).items() if GATES in component.arguments
    }
    expected = {"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    assert gated == (expected if pod_groups else set())
    served = "--runtime-config=scheduling.k8s.io/v1beta1=true"
    assert (served in components(pod_groups=pod_groups)["kube-apiserver"].arguments) == pod_groups


@pytest.mark.parametrize("audit", [True, False])
def test_audit_log_only_if_wanted(audit: bool) -> None:
    arguments = components(audit=audit)["kube-apiserver"].arguments
    assert any(argument.startswith("--audit-") for argument in arguments) == audit


def test_ports_are_distinct() -> None:
    assert len(set(PORTS.all())) == 5
    ports = [component.port for component in components().values() if component.port]
    assert sorted(ports) == [21000, 21002, 21003, 21004]
