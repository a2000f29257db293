"""`disagg topology` as people run it, against a real API server. Other tests may use some of its nodes meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from e2e.cluster import Cluster, wait_until
from tests.operator.kube import Kube, Object, manifest

NODE = "gpu-r3-n3"
RACK = "topology.kubernetes.io/rack"


@pytest.fixture
def reader(kube: Kube) -> Iterator[Path]:
    """Credentials that may list nodes and pods, and nothing else."""
    name = f"reader-{kube.namespace}"
    kube.run("create", "serviceaccount", "reader")
    kube.run("create", "clusterrole", name, "--verb=list", "--resource=nodes,pods")
    account = f"--serviceaccount={kube.namespace}:reader"
    kube.run("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    yield kube.cluster.kubeconfig_for_service_account(kube.namespace, "reader")
    kube.run("delete", "clusterrole,clusterrolebinding", name)


def topology(
    kubeconfig: Path, *arguments: str, given: str | None = None, width: int = 100
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "COLUMNS": str(width)}
    environment.pop("FORCE_COLOR", None)
    return subprocess.run(
        [sys.executable, "-m", "disagg.cli", "topology", *arguments],
        input=given,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def document(kubeconfig: Path, *arguments: str, given: str | None = None, status: int = 0) -> dict[str, Any]:
    result = topology(kubeconfig, *arguments, "-o", "json", given=given)
    assert (result.returncode, result.stderr) == (status, "")
    return dict(json.loads(result.stdout))


def pod(name: str, gpus: int, labels: dict[str, str]) -> Object:
    limits = {"nvidia.com/gpu": gpus}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "c", "image": "none", "resources": {"limits": limits}}],
        },
    }


def replica_set(labels: dict[str, str]) -> Object:
    """The decode pod of a group, made as a Deployment would have it made: labels alone make none."""
    made = pod("", 2, labels)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "llama-decode-0"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": made["spec"]},
        },
    }


def packed(name: str, decodes: int, *, constraint: dict[str, str] | None = None) -> Object:
    """One prefill pod with a GPU, and decode pods of 8."""
    return manifest(
        name,
        accelerator={"perRank": 1},
        decode={"replicas": decodes, "parallelism": {"tensor": 8}},
        topologyConstraint=constraint or {"packDomain": "rack"},
    )


def test_a_list_of_nodes_and_pods_is_all_that_is_needed(kube: Kube, reader: Path) -> None:
    labels = {"disagg.dev/name": "llama", "disagg.dev/role": "decode", "disagg.dev/group": "0"}
    kube.apply(replica_set(labels), pod("foreign", 1, {}))
    try:
        wait_until("the pod is made", lambda: kube.names("pods", "-l", "disagg.dev/name=llama"))
        found = document(reader)
        assert [domain["name"] for domain in found["domains"]] == ["rack-0", "rack-1", "rack-2", "rack-3"]
        assert (found["resource"], found["levelKey"], found["total"]) == ("nvidia.com/gpu", RACK, 128)
        (node,) = (node for node in found["domains"][3]["nodes"] if node["name"] == NODE)
        group = {"namespace": kube.namespace, "name": "llama", "group": 0}
        assert group | {"role": "decode", "used": 2} in node["groups"]
        assert node["otherPods"] >= 1
        drawn = topology(reader)
        assert drawn.returncode == 0
        assert f"{kube.namespace}/llama group 0" in drawn.stdout
        assert "block-1 ──" in drawn.stdout
        assert max(map(len, drawn.stdout.splitlines())) <= 100
        assert "\x1b" not in drawn.stdout
    finally:
        # Not with the namespace, which takes its time: others count free accelerators.
        kube.run("delete", "replicaset,pod", "--all", "--wait")


def test_the_svg_is_written_and_well_formed(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "cluster.svg"
    result = topology(cluster.kubeconfig, "--svg", str(file), "--level", "zone")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    root = ET.parse(file).getroot()  # noqa: S314 - our own
    texts = {element.text for element in root.iter()}
    assert {"nvidia.com/gpu by zone", "zone-0", NODE} <= texts


def test_a_file_that_cannot_be_written_is_named(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "absent" / "cluster.svg"
    result = topology(cluster.kubeconfig, "--svg", str(file))
    assert (result.returncode, result.stderr) == (1, f"Error: {file}: No such file or directory\n")


def test_whether_it_fits_is_told_by_the_exit_status(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "resources.yaml"
    file.write_text(yaml.safe_dump_all([packed("small", 0), packed("huge", 5)]))
    found = document(cluster.kubeconfig, "--fits", str(file), status=1)
    small, huge = found["groups"]
    assert small["fits"] == {"now": True, "atMaximum": True}
    assert small["domain"].startswith("rack-")
    assert huge["fits"] == {"now": False, "atMaximum": False}
    assert huge["domain"] is None
    assert "no domain holds it: rack-" in huge["message"]
    assert "of 32 nvidia.com/gpu free; largest free block" in huge["message"]
    text = yaml.safe_dump(packed("small", 0))
    result = topology(cluster.kubeconfig, "--fits", "-", given=text)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1].split()[:3] == ["default/small", "0", "rack"]


def test_what_cannot_be_told_does_not_fit(cluster: Cluster) -> None:
    text = yaml.safe_dump(packed("lost", 1, constraint={"packDomain": "example.com/row"}))
    result = topology(cluster.kubeconfig, "--fits", "-", given=text)
    assert result.returncode == 1
    assert "default/lost group 0: no node carries the label example.com/row" in result.stdout


def test_levels_are_those_of_the_options(cluster: Cluster) -> None:
    text = yaml.safe_dump(packed("small", 0))
    options = "--topology-level", "rack=topology.kubernetes.io/block"
    (found,) = document(cluster.kubeconfig, *options, "--fits", "-", given=text)["groups"]
    assert found["domain"].startswith("block-")
    assert [domain["name"] for domain in document(cluster.kubeconfig, *options)["domains"]] == [
        "block-0",
        "block-1",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ("--topology-preset", "gke"),
            "Error: no node carries the label cloud.google.com/gce-topology-subblock"
            " (rack of topology preset gke)\n"
            f"Nodes carry {RACK}: use --topology-preset generic\n",
            id="another preset would fit",
        ),
        pytest.param(
            ("--resource", "amd.com/gpu"),
            "Error: no node has any amd.com/gpu; nodes have nvidia.com/gpu, rdma/ib\n",
            id="no such accelerator",
        ),
    ],
)
def test_what_is_not_there_is_named(cluster: Cluster, arguments: tuple[str, ...], message: str) -> None:
    result = topology(cluster.kubeconfig, *arguments)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", message)


def test_a_missing_right_is_named(kube: Kube) -> None:
    nobody = kube.cluster.kubeconfig_for_service_account(kube.namespace, "default")
    for arguments in ((), ("--fits", "-")):
        result = topology(nobody, *arguments, given=yaml.safe_dump(packed("small", 0)))
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.startswith(
            "Error: the rights to list nodes and pods in all namespaces are needed: nodes is forbidden: "
        )
        assert 'cannot list resource "nodes"' in result.stderr
