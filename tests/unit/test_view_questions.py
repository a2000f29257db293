from __future__ import annotations

import pytest

from disagg.topology.levels import level_map
from disagg.topology.nodes import Node
from disagg.view.questions import NothingToDrawError, accelerator, accelerators, pack_level


def nodes(*allocatable: dict[str, int]) -> list[Node]:
    return [Node(f"n{number}", {}, amounts) for number, amounts in enumerate(allocatable)]


def labelled(*labels: dict[str, str]) -> list[Node]:
    return [Node(f"n{number}", found, {}) for number, found in enumerate(labels)]


@pytest.mark.parametrize(
    ("allocatable", "wanted", "found"),
    [
        pytest.param([{"nvidia.com/gpu": 8}], None, "nvidia.com/gpu", id="known"),
        pytest.param(
            [{"nvidia.com/gpu": 8}, {"amd.com/gpu": 8}, {"amd.com/gpu": 8}], None, "amd.com/gpu", id="most"
        ),
        pytest.param([{"rdma/ib": 80, "nvidia.com/gpu": 8}], None, "nvidia.com/gpu", id="not a network"),
        pytest.param([{"example.com/gpu": 8}], None, "example.com/gpu", id="called gpu"),
        pytest.param([{"nvidia.com/gpu": 8, "rdma/ib": 1}], "rdma/ib", "rdma/ib", id="as said"),
    ],
)
def test_the_accelerator_is_found(allocatable: list[dict[str, int]], wanted: str | None, found: str) -> None:
    assert accelerator(nodes(*allocatable), wanted) == found


@pytest.mark.parametrize(
    ("allocatable", "wanted", "message"),
    [
        pytest.param(
            {"rdma/ib": 8, "cpu": 1},
            None,
            "no node has an accelerator of a kind that is known; nodes have rdma/ib: name one with --resource",
            id="unknown",
        ),
        pytest.param(
            {"cpu": 1, "nvidia.com/gpu": 0},
            None,
            "no node has an accelerator of a kind that is known; nodes have no extended resources",
            id="none",
        ),
        pytest.param(
            {"nvidia.com/gpu": 1},
            "amd.com/gpu",
            "no node has any amd.com/gpu; nodes have nvidia.com/gpu",
            id="another",
        ),
    ],
)
def test_what_nodes_have_instead_is_said(
    allocatable: dict[str, int], wanted: str | None, message: str
) -> None:
    with pytest.raises(NothingToDrawError) as error:
        accelerator(nodes(allocatable), wanted)
    assert str(error.value) == message


def test_all_accelerators_are_listed_the_most_frequent_first() -> None:
    assert accelerators(nodes({"amd.com/gpu": 1}, {"nvidia.com/gpu": 8, "rdma/ib": 9})) == [
        "nvidia.com/gpu",
        "amd.com/gpu",
    ]


@pytest.mark.parametrize(
    ("level", "key", "wider"),
    [
        ("rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/block"),
        ("topology.kubernetes.io/rack", "topology.kubernetes.io/rack", None),
    ],
)
def test_a_level_is_a_label(level: str, key: str, wider: str | None) -> None:
    found = pack_level(
        labelled({}, {"topology.kubernetes.io/rack": "r"}), level, "generic", level_map("generic", {})
    )
    assert (found.key, found.wider_key) == (key, wider)


@pytest.mark.parametrize(
    ("level", "preset", "labels", "message"),
    [
        pytest.param(
            "rack",
            "generic",
            {"cloud.google.com/gce-topology-subblock": "s"},
            "no node carries the label topology.kubernetes.io/rack (rack of topology preset generic)\n"
            "Nodes carry cloud.google.com/gce-topology-subblock: use --topology-preset gke",
            id="a preset fits",
        ),
        pytest.param(
            "block",
            "gpu-operator",
            {"topology.kubernetes.io/block": "b"},
            "topology preset gpu-operator has no label for level block\n"
            "Nodes carry topology.kubernetes.io/block: use --topology-preset generic",
            id="a preset without this level",
        ),
        pytest.param(
            "rack",
            "generic",
            {"pool": "p", "example.com/topology-row": "r", "kubernetes.io/os": "linux"},
            "no node carries the label topology.kubernetes.io/rack (rack of topology preset generic)\n"
            "Nodes carry: example.com/topology-row (1 value), pool (1 value)\n"
            "Use one of these, as --level example.com/topology-row or --topology-level rack=example.com/topology-row",
            id="other labels",
        ),
        pytest.param(
            "example.com/row",
            "generic",
            {"topology.kubernetes.io/block": "b", "topology.kubernetes.io/rack": "r"},
            "no node carries the label example.com/row\n"
            "Nodes carry: topology.kubernetes.io/rack (1 value), topology.kubernetes.io/block (1 value)\n"
            "Use one of these, as --level topology.kubernetes.io/rack"
            " or --topology-level rack=topology.kubernetes.io/rack",
            id="a label that is not there",
        ),
        pytest.param(
            "rack",
            "generic",
            {"kubernetes.io/os": "linux", "topology.kubernetes.io/rack": ""},
            "no node carries the label topology.kubernetes.io/rack (rack of topology preset generic)\n"
            "Nodes carry no label that says where they are: label them,"
            " such as topology.kubernetes.io/rack=r1",
            id="no label",
        ),
    ],
)
def test_a_missing_label_is_named_with_what_would_do(
    level: str, preset: str, labels: dict[str, str], message: str
) -> None:
    with pytest.raises(NothingToDrawError) as error:
        pack_level(labelled(labels), level, preset, level_map(preset, {}))
    assert str(error.value) == message


def test_of_many_labels_some_are_shown() -> None:
    many = labelled({f"example.com/k{number:02}": "v" for number in range(20)})
    with pytest.raises(NothingToDrawError, match=r"k11 \(1 value\) and 8 more"):
        pack_level(many, "rack", "generic", level_map("generic", {}))
