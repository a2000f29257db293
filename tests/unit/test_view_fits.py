from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from disagg.api.names import RoleName
from disagg.api.resource import DisaggregatedInference, parse
from disagg.decide.environment import Environment
from disagg.topology.groups import GroupKey
from disagg.topology.inventory import Inventory
from disagg.topology.levels import level_map
from disagg.view.answers import answers_table, notes
from disagg.view.document import answers_document
from disagg.view.fits import Answer, ask
from tests.unit.racks import GPU, RACK, inventory, node, pod
from tests.unit.resources import overlaid, raw

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONSTRAINT = {"packDomain": RACK}


def wanted(
    name: str = "llama", *, prefills: int = 2, decodes: int = 1, decode_gpus: int = 4, **spec: object
) -> DisaggregatedInference:
    """Prefill pods of 2 GPUs, decode pods of `decode_gpus`."""
    shape = {
        "accelerator": {"resource": GPU, "perRank": 1},
        "prefill": {"replicas": prefills, "parallelism": {"tensor": 2}},
        "decode": {"replicas": decodes, "parallelism": {"tensor": decode_gpus}},
        "topologyConstraint": CONSTRAINT,
    }
    return parse(raw(name, **overlaid(shape, spec)))


def racks(*free: Mapping[str, int]) -> Inventory:
    """Racks r0, r1, ...: by node how many of its 8 GPUs are free."""
    objects: list[dict[str, Any]] = []
    for number, nodes in enumerate(free):
        for name, left in nodes.items():
            objects.append(node(name, f"r{number}", gpu=8))
            if left < 8:
                objects.append(pod(f"on-{name}", name, gpu=8 - left))
    return inventory(*objects)


def asked(found: Inventory, *resources: DisaggregatedInference) -> list[Answer]:
    return ask(resources, Environment(level_map("generic", {}), inventory=found), NOW)


def shown(answers: list[Answer], width: int = 120) -> str:
    file = StringIO()
    Console(file=file, width=width, highlight=False).print(answers_table(answers))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def test_a_group_goes_where_all_of_it_fits() -> None:
    (answer,) = asked(racks({"a": 8}, {"b": 8, "c": 8}, {"d": 6, "e": 6}), wanted(prefills=4))
    assert answer == Answer(
        GroupKey("inference", "llama", 0),
        RACK,
        domain="r2",
        now=True,
        maximum=True,
        headroom={RoleName.PREFILL: 0, RoleName.DECODE: 0},
    )


def test_what_it_may_grow_to_counts_for_the_choice_and_is_told() -> None:
    growing = wanted(decode={"replicas": None, "autoscaling": {"minReplicas": 1, "maxReplicas": 3}})
    found = racks({"a": 8}, {"b": 8, "c": 8})
    (answer,) = asked(found, growing)
    assert (answer.domain, answer.now, answer.maximum) == ("r1", True, True)
    assert answer.headroom == {RoleName.PREFILL: 4, RoleName.DECODE: 2}
    (answer,) = asked(racks({"a": 8}), growing)
    assert (answer.domain, answer.now, answer.maximum) == ("r0", True, False)


def test_what_is_missing_is_told_of_the_domain_that_lacks_least() -> None:
    (answer,) = asked(racks({"a": 2, "b": 2}, {"c": 5}), wanted(topologyConstraint={"mode": "Required"}))
    assert not answer.is_good
    assert (answer.domain, answer.now, answer.maximum, answer.headroom) == (None, False, False, {})
    assert answer.message == (
        "no domain holds it: r1 has 5 of 8 example.com/gpu free; largest free block 5 on node c;"
        " its pods would wait"
    )


def test_what_finds_no_room_runs_elsewhere_where_that_is_allowed() -> None:
    (answer,) = asked(racks({"a": 2}), wanted())
    assert answer.message.endswith("; pods without room there would run in other domains")


def test_one_after_the_other_each_sees_what_those_before_it_take() -> None:
    first, second, third = asked(
        racks({"a": 8}, {"b": 8}), wanted("one"), wanted("two"), wanted("three", prefills=1)
    )
    assert {first.domain, second.domain} == {"r0", "r1"}
    assert (third.domain, third.now) == (None, False)
    assert "has 0 of 8 example.com/gpu free" in third.message


def test_groups_of_a_resource_do_not_count_on_the_same_room() -> None:
    answers = asked(racks({"a": 8}, {"b": 8}), wanted(groups=3))
    assert [answer.group.group for answer in answers] == [0, 1, 2]
    # However the operator places them, no more are said to fit than do.
    assert sum(answer.now for answer in answers) <= 2
    assert not answers[2].is_good


def test_pods_that_it_has_already_are_no_obstacle() -> None:
    group = GroupKey("inference", "llama", 0)
    found = inventory(
        node("a", "r0", gpu=8),
        node("b", "r1", gpu=8),
        pod("p1", "a", group=group, role="prefill", gpu=2),
        pod("p2", "a", group=group, role="prefill", gpu=2),
        pod("d1", "a", group=group, role="decode", gpu=4),
    )
    (answer,) = asked(found, wanted())
    assert (answer.domain, answer.now, answer.headroom) == (
        "r0",
        True,
        {RoleName.PREFILL: 0, RoleName.DECODE: 0},
    )


def test_pods_that_keep_apart_find_one_node_each() -> None:
    apart = {
        "podTemplate": {
            "spec": {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {"matchLabels": {"disagg.dev/role": "decode"}},
                            }
                        ]
                    }
                }
            }
        }
    }
    (answer,) = asked(racks({"a": 8, "b": 8, "c": 8}), wanted(prefills=1, decode=apart, decode_gpus=1))
    assert answer.headroom[RoleName.DECODE] == 2


def test_without_a_constraint_there_is_nothing_to_judge() -> None:
    (answer,) = asked(racks({"a": 0}), wanted(topologyConstraint=None))
    assert answer.is_good
    assert (answer.level, answer.domain, answer.message) == (
        None,
        None,
        "no topologyConstraint: its pods may run anywhere",
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"topologyConstraint": {"packDomain": "example.com/row"}},
            "no node carries the label example.com/row",
            id="no label",
        ),
        pytest.param(
            {"decode": {"podTemplate": {"spec": {"schedulerName": "volcano"}}}},
            "decode pods are volcano's to place",
            id="another scheduler",
        ),
        pytest.param(
            {"prefill": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}}
            | {"decode": {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}},
            "no node that is ready takes prefill or decode pods",
            id="no node",
        ),
    ],
)
def test_what_cannot_be_told_is_not_good(spec: dict[str, Any], message: str) -> None:
    (answer,) = asked(racks({"a": 8}), wanted(**spec))
    assert not answer.is_good
    assert answer.message.startswith(message)


def test_an_inventory_is_needed() -> None:
    with pytest.raises(ValueError, match="without an inventory"):
        ask([wanted()], Environment(), NOW)


TABLE = """\
RESOURCE         GROUP  LEVEL             DOMAIN  FITS NOW  AT MAX  ROOM FOR MORE
inference/llama  0      example.com/rack  r0      yes       yes     100+ prefill or 1 decode
inference/big    1      example.com/rack  -       no        no      -
inference/free   -      -                 any     -         -       -"""


def test_answers_are_a_table_and_sentences() -> None:
    answers = [
        Answer(
            GroupKey("inference", "llama", 0),
            RACK,
            "r0",
            now=True,
            maximum=True,
            headroom={RoleName.PREFILL: 100, RoleName.DECODE: 1},
        ),
        Answer(GroupKey("inference", "big", 1), RACK, message="nothing holds it"),
        Answer(GroupKey("inference", "free", 0), None, message="anywhere"),
    ]
    assert shown(answers) == TABLE
    assert notes(answers) == ["inference/big group 1: nothing holds it", "inference/free: anywhere"]
    assert "…" not in shown(answers, width=60)
    document = answers_document(answers)
    assert document["fits"] is False
    assert document["groups"][0] == {
        "namespace": "inference",
        "name": "llama",
        "group": 0,
        "packDomain": RACK,
        "domain": "r0",
        "fits": {"now": True, "atMaximum": True},
        "headroom": {"prefill": 100, "decode": 1},
        "message": "",
    }
    assert document["groups"][2]["fits"] is None
    assert answers_document(answers[::2])["fits"] is True
