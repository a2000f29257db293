"""Racks, from YAML to Node objects."""

from pathlib import Path

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.racks import Racks, load_racks

TEMPLATE = {"capacity": {"cpu": 8, "nvidia.com/gpu": 8}, "labels": {"tier": "gpu"}}


def test_default_racks() -> None:
    nodes = load_racks().nodes()
    assert len(nodes) == 16
    node = nodes[5]
    assert node["metadata"] == {
        "name": "gpu-r1-n1",
        "labels": {
            "kubernetes.io/hostname": "gpu-r1-n1",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/rack": "rack-1",
            "topology.kubernetes.io/zone": "zone-0",
            "topology.kubernetes.io/block": "block-0",
        },
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    }
    expected = {"pods": "110", "cpu": "128", "memory": "1Ti", "nvidia.com/gpu": "8", "rdma/ib": "8"}
    assert node["status"] == {"capacity": expected, "allocatable": expected}
    assert "spec" not in node


def test_a_rack_lays_its_own_over_the_template() -> None:
    racks = Racks.model_validate(
        {
            "node": TEMPLATE,
            "racks": [
                {"name": "a", "zone": "z", "block": "b", "nodes": 0},
                {
                    "name": "small",
                    "zone": "z",
                    "block": "b",
                    "nodes": 1,
                    "capacity": {"nvidia.com/gpu": 4, "pods": 20},
                    "labels": {"tier": "old"},
                },
            ],
        }
    )
    (node,) = racks.nodes()
    assert node["metadata"]["name"] == "gpu-r1-n0"
    assert node["metadata"]["labels"]["tier"] == "old"
    assert node["status"]["capacity"] == {"pods": "20", "cpu": "8", "nvidia.com/gpu": "4"}


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[", ["cannot read the racks in"]),
        ("", ["the file: Input should be"]),
        ("node: {capacity: {}}\n", ["racks: Field required"]),
        (
            "node: {capacity: {cpu: lots}, taints: []}\nracks: [{name: A, zone: z, block: b, nodes: -1}]\n",
            [
                "node.capacity.cpu",
                "node.taints: Extra inputs",
                "racks.0.name",
                "racks.0.nodes: Input should be",
            ],
        ),
    ],
)
def test_errors_name_each_wrong_field(tmp_path: Path, text: str, problems: list[str]) -> None:
    path = tmp_path / "racks.yaml"
    path.write_text(text)
    with pytest.raises(ClusterError) as caught:
        load_racks(path)
    assert str(path) in str(caught.value)
    assert [problem for problem in problems if problem not in str(caught.value)] == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"none\.yaml"):
        load_racks(tmp_path / "none.yaml")
