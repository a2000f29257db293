"""Which pods are made anew to bring their group together, and how often that is tried."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from disagg.api.names import PLACEMENT, RoleName
from disagg.api.resource import DisaggregatedInference
from disagg.decide.decisions import GroupDecision
from disagg.decide.repacking import PERIOD, TRIES, Attempts, Misplaced, misplaced
from disagg.reconcile.pod_labels import OwnPod, OwnPods
from disagg.topology.claims import Claim
from tests.unit.racks import GROUP, OTHER, inventory, node, pod, shape
from tests.unit.scene import DECODE, NOW, PREFILL, REQUIRED, Scene, pair, racks

GPUS = {PREFILL: 1, DECODE: 4}


@dataclass
class Group:
    """A group whose Deployments are there, and pods as a test puts them."""

    scene: Scene
    own: OwnPods = field(default_factory=OwnPods)

    def __post_init__(self) -> None:
        # The other role is made when the first one's pods are known.
        self.scene.step()
        wanted = self.scene.wanted.spec.decode.replicas or 1
        self.scene.bind(DECODE, None, wanted, of="first")
        self.scene.step()
        for index in range(wanted):
            self.scene.inventory.remove_pod(f"{DECODE}-0-first{index}")

    def put(  # noqa: PLR0913 - what a test does not say is usual
        self,
        role: RoleName,
        on: str | None,
        name: str,
        *,
        serves: bool = True,
        ends: bool = False,
        template: str = "t",
        placement: str | None = None,
    ) -> None:
        """A pod: on a node, or without one that would hold it."""
        told = self.scene.told(role)
        assert told is not None
        raw = pod(name, on, group=self.scene.key(), role=str(role), gpu=GPUS[role])
        raw["metadata"]["labels"] |= {
            PLACEMENT: placement or told.identity,
            "pod-template-hash": template,
        }
        raw["status"]["containerStatuses"] = [{"started": serves, "ready": serves, "restartCount": 0}]
        if on is None:
            raw["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            ]
        if ends:
            raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.scene.inventory.put_pod(raw)
        self.own.put(raw)

    def decide(self) -> GroupDecision:
        return self.scene.decide().groups[0]

    def misplaced(self, decision: GroupDecision | None = None) -> Misplaced[OwnPod] | None:
        key, known = self.scene.key(), self.scene.inventory
        return misplaced(decision or self.decide(), key, self.own.of(key), known.pods(key), known)

    def names(self) -> list[str]:
        """Names of the pods that are misplaced."""
        found = self.misplaced()
        return [] if found is None else [item.name for item in found.pods]


def foreign(group: Group, on: str, gpu: int) -> None:
    group.scene.inventory.put_pod(pod(f"foreign-{on}", on, gpu=gpu))


# Preferred: what loads elsewhere comes home


def scattered(*, serves: bool = False) -> Group:
    """Four of the pair's pods are at home, in r1, which has room for the fifth; that one is in r2."""
    group = Group(Scene(pair(), racks(r1=8)))
    group.scene.inventory.put_node(node("r2", "r2", gpu=8))
    group.put(DECODE, "r1", "large")
    for index in range(3):
        group.put(PREFILL, "r1", f"small-{index}", template="old")
    group.put(PREFILL, "r2", "stray", serves=serves)
    return group


def test_a_pod_that_loads_elsewhere_comes_home() -> None:
    assert scattered().names() == ["stray"]


def test_a_pod_that_serves_elsewhere_is_left_alone() -> None:
    assert scattered(serves=True).names() == []


def test_a_pod_on_a_node_without_the_label_comes_home() -> None:
    group = scattered()
    group.scene.inventory.put_node(node("r2", None, gpu=8))
    assert group.names() == ["stray"]


def test_a_pod_on_a_node_that_is_not_known_is_left_alone() -> None:
    group = scattered()
    group.scene.inventory.remove_node("r2")
    assert group.names() == []


def test_no_pod_comes_home_before_it_is_known_what_becomes_free() -> None:
    group = scattered()
    group.put(PREFILL, "r2", "ending", ends=True)
    assert group.names() == []


def test_no_pod_comes_home_while_another_one_waits() -> None:
    group = scattered()
    group.put(PREFILL, None, "waiting")
    assert group.names() == []


def test_no_pod_comes_home_that_home_has_no_room_for() -> None:
    group = scattered()
    group.put(PREFILL, "r1", "surge")
    assert group.names() == []


def test_no_pod_comes_home_where_the_group_does_not_fit() -> None:
    group = scattered()
    foreign(group, "r1", 1)
    assert group.names() == []


def test_no_pod_comes_home_to_a_node_that_takes_none() -> None:
    group = scattered()
    cordoned = node("r1", "r1", gpu=8)
    cordoned["spec"]["unschedulable"] = True
    group.scene.inventory.put_node(cordoned)
    assert group.names() == []


def test_no_pod_comes_home_to_room_that_another_group_is_about_to_take() -> None:
    group = scattered()
    group.scene.inventory.claim(OTHER, Claim("example.com/rack", "r1", {PREFILL: (shape(gpu=1), 1)}))
    assert group.names() == []


def test_no_pod_comes_home_while_the_group_moves() -> None:
    group = scattered()
    group.put(DECODE, "r1", "large", placement="before")
    assert group.names() == []


def test_no_pod_comes_home_while_a_role_has_yet_to_follow() -> None:
    group = scattered()
    decision = group.decide()
    held = replace(decision, held=frozenset(group.scene.decide().workloads))
    assert group.misplaced(decision) is not None
    assert group.misplaced(held) is None


def test_a_group_that_runs_elsewhere_than_it_was_told_stays_there() -> None:
    group = Group(Scene(pair(), racks(r1=8)))
    group.scene.inventory.put_node(node("r2", "r2", gpu=7))
    group.put(DECODE, "r2", "large")
    for index in range(4):
        group.put(PREFILL, "r2" if index < 3 else "r1", f"small-{index}", serves=False)
    assert group.names() == []


def test_of_two_halves_that_is_home_which_was_told() -> None:
    group = Group(Scene(pair(prefill={"replicas": 1}), racks(z=8)))
    group.scene.inventory.put_node(node("a", "a", gpu=8))
    group.put(DECODE, "z", "large")
    group.put(PREFILL, "a", "stray", serves=False)
    assert group.names() == ["stray"]


def test_pods_come_home_one_at_a_time_the_large_one_first() -> None:
    group = Group(Scene(pair(), racks(r1=8)))
    group.scene.inventory.put_node(node("r2", "r2", gpu=8))
    for index in range(3):
        group.put(PREFILL, "r1", f"small-{index}")
    group.put(PREFILL, "r2", "a-small-one", serves=False)
    group.put(DECODE, "r2", "large", serves=False)
    assert group.names() == ["large"]


def test_pods_of_the_same_template_have_come_home() -> None:
    group = scattered()
    group.put(PREFILL, "r1", "small-0", template="t")
    found = group.misplaced()
    assert found is not None
    assert found.placed == 1


PODS = st.lists(
    st.tuples(
        st.sampled_from([PREFILL, DECODE]), st.sampled_from(["r1", "r2", None]), st.booleans(), st.booleans()
    ),
    max_size=7,
)


def put_all(group: Group, pods: list[tuple[RoleName, str | None, bool, bool]]) -> None:
    for index, (role, on, serves, ends) in enumerate(pods):
        group.put(role, on, f"p{index}", serves=serves, ends=ends and on is not None)


@given(PODS, st.integers(4, 10), st.integers(4, 10))
def test_where_packing_is_preferred_no_pod_is_lost_that_serves_or_is_at_home(
    pods: list[tuple[RoleName, str | None, bool, bool]], first: int, second: int
) -> None:
    group = Group(Scene(pair(), racks(r1=first, r2=second)))
    put_all(group, pods)
    found = group.misplaced()
    if found is not None:
        (stray,) = found.pods
        told = group.scene.told(PREFILL)
        assert told is not None
        assert stray.loading
        assert stray.node != told.domain
        assert not any(ends or on is None for _, on, _, ends in pods)


# Required: small pods make room for a large one

MIXED = {"prefill": {"replicas": 8}, "decode": {"replicas": 2}}
"""Eight pods of 1 GPU and two of 4: as much as four nodes of 4 GPUs have."""


def wanted(**spec: object) -> DisaggregatedInference:
    return pair(**(REQUIRED | MIXED | spec))


def wedged(
    *small: int,
    resource: DisaggregatedInference | None = None,
    pod_groups: bool = False,
    large: int = 1,
    waiting: int = 1,
) -> Group:
    """Nodes of 4 GPUs with so many small pods, one node more for each large one, and large ones that wait."""
    names = [f"n{index}" for index in range(len(small) + large)]
    scene = Scene(
        resource or wanted(),
        inventory(*(node(name, "r1", gpu=4) for name in names)),
        pod_groups=pod_groups,
    )
    group = Group(scene)
    for name, number in zip(names, small, strict=False):
        for index in range(number):
            group.put(PREFILL, name, f"{name}-{index}")
    for index, name in enumerate(names[len(small) :]):
        group.put(DECODE, name, f"large-{index}")
    for index in range(waiting):
        group.put(DECODE, None, f"waiting-{index}")
    return group


@pytest.mark.parametrize("pod_groups", [False, True], ids=["PodAffinity", "PodGroup"])
@pytest.mark.parametrize(
    ("small", "gone"),
    [
        pytest.param((4, 3, 1), ["n2-0"], id="one"),
        pytest.param((4, 2, 2), ["n1-0", "n1-1"], id="two"),
        pytest.param((3, 3, 2), ["n2-0", "n2-1"], id="two to different nodes"),
        pytest.param((4, 4, 0), [], id="a node has room"),
    ],
)
def test_the_fewest_small_pods_make_room_for_a_large_one(
    small: tuple[int, ...], gone: list[str], *, pod_groups: bool
) -> None:
    assert wedged(*small, pod_groups=pod_groups).names() == gone


def test_a_large_pod_in_addition_is_not_worth_small_ones() -> None:
    few = wanted(decode={"replicas": 1})
    assert wedged(4, 3, 1, resource=few).names() == []


def test_small_pods_stay_where_no_large_one_waits() -> None:
    assert wedged(4, 3, 1, waiting=0).names() == []


def test_small_pods_stay_while_another_one_is_being_placed() -> None:
    group = wedged(4, 3, 0)
    group.put(PREFILL, None, "small")
    assert group.names() == []


def test_small_pods_that_serve_stay_while_it_is_not_known_what_becomes_free() -> None:
    group = wedged(4, 3, 1)
    group.put(PREFILL, "n0", "n0-0", ends=True)
    assert group.names() == []


def test_small_pods_stay_where_room_becomes_free() -> None:
    group = wedged(4, 3, 1)
    group.put(PREFILL, "n2", "n2-0", ends=True)
    group.put(PREFILL, "n1", "n1-3", serves=False)
    assert group.names() == []


def test_a_small_pod_that_has_come_to_the_place_of_one_goes_before_that_has_ended() -> None:
    group = wedged(4, 3, 1)
    group.put(PREFILL, "n2", "n2-0", ends=True)
    group.put(PREFILL, "n2", "n2-1", serves=False)
    assert group.names() == ["n2-1"]


def test_a_small_pod_that_has_come_elsewhere_stays() -> None:
    group = wedged(4, 2, 2)
    group.put(PREFILL, "n0", "n0-0", ends=True)
    group.put(PREFILL, "n1", "n1-2", serves=False)
    assert group.names() == []


def test_small_pods_stay_while_the_group_moves() -> None:
    group = wedged(4, 3, 1)
    group.put(PREFILL, "n2", "n2-0", placement="before")
    assert group.names() == []


def test_small_pods_stay_where_the_group_does_not_fit() -> None:
    group = wedged(4, 3, 1)
    foreign(group, "n2", 1)
    assert group.names() == []


def test_a_node_that_another_group_is_about_to_use_is_not_cleared() -> None:
    group = wedged(4, 2, 2)
    group.scene.inventory.put_node(node("n4", "r1", gpu=2))
    assert group.names() == ["n1-0", "n1-1"]
    group.scene.inventory.claim(OTHER, Claim("example.com/rack", "r1", {PREFILL: (shape(gpu=1), 2)}))
    assert group.names() == ["n2-0", "n2-1"]


def test_small_pods_that_load_go_before_those_that_serve() -> None:
    group = wedged(4, 2, 2)
    group.scene.inventory.put_node(node("n2", "r1", gpu=5))
    assert group.names() == ["n2-0"]
    group.put(PREFILL, "n2", "n2-1", serves=False)
    assert group.names() == ["n2-1"]


def test_no_small_pod_goes_that_serves_while_another_one_loads() -> None:
    group = wedged(4, 3, 1)
    group.put(PREFILL, "n0", "n0-0", serves=False)
    assert group.names() == []


def test_a_node_whose_small_pods_load_is_cleared_before_one_whose_serve() -> None:
    group = wedged(4, 2, 2)
    for index in range(2):
        group.put(PREFILL, "n2", f"n2-{index}", serves=False)
    assert group.names() == ["n2-0", "n2-1"]


def test_room_is_made_in_the_domain_that_the_group_runs_in_whatever_it_was_told() -> None:
    group = wedged(4, 3, 1)
    for index in range(4):
        group.scene.inventory.put_node(node(f"n{index}", "r2", gpu=4))
    assert group.names() == ["n2-0"]


APART = {
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


def test_no_room_is_made_beside_a_large_pod_that_stands_none() -> None:
    spec = wanted(decode=MIXED["decode"] | APART, prefill={"replicas": 5})
    group = Group(Scene(spec, inventory(node("n0", "r1", gpu=9), node("n1", "r1", gpu=4))))
    group.put(DECODE, "n0", "large")
    for name, count in (("n0", 3), ("n1", 2)):
        for index in range(count):
            group.put(PREFILL, name, f"{name}-{index}")
    group.put(DECODE, None, "waiting")
    assert group.names() == ["n1-0", "n1-1"]


DISTRIBUTIONS = st.lists(st.integers(0, 4), min_size=2, max_size=5)


@given(DISTRIBUTIONS, st.integers(0, 3))
def test_no_more_small_pods_go_than_a_large_one_needs_and_all_find_another_place(
    small: list[int], waiting: int
) -> None:
    assume(sum(small))
    spec = wanted(prefill={"replicas": sum(small)}, decode={"replicas": waiting + 1})
    group = wedged(*small, resource=spec, waiting=waiting)
    fit = group.decide().fit
    assert fit is not None
    spare = sum(4 - number for number in small)
    possible = [number for number in small if number and spare - (4 - number) >= number]
    works = waiting > 0 and fit.fits_minimum and 0 not in small and bool(possible)
    found = group.misplaced()
    gone = Counter() if found is None else Counter(item.node for item in found.pods)
    assert list(gone.values()) == ([min(possible)] if works else [])
    assert all(small[int(name[1:])] == number for name, number in gone.items())


@given(PODS, st.integers(4, 10), st.integers(4, 10))
def test_where_packing_is_required_only_small_pods_at_home_go_and_only_if_a_large_one_waits(
    pods: list[tuple[RoleName, str | None, bool, bool]], first: int, second: int
) -> None:
    group = Group(Scene(pair(**REQUIRED), racks(r1=first, r2=second)))
    put_all(group, pods)
    found = group.misplaced()
    if found is not None:
        assert {item.role for item in found.pods} == {PREFILL}
        assert {item.node for item in found.pods} == {group.decide().current}
        assert any(role is DECODE and on is None for role, on, _, _ in pods)
        if any(ends and on is not None for _, on, _, ends in pods):
            assert all(item.loading for item in found.pods)


# How often


def attempt(number: int, placed: int = 0, template: str = "t") -> Misplaced[OwnPod]:
    """A repacking of one pod, which is another one each time."""
    raw = pod(f"p{number}", "n1", group=GROUP)
    raw["metadata"]["labels"]["pod-template-hash"] = template
    own = OwnPods()
    own.put(raw)
    return Misplaced(own.of(GROUP), placed)


def tried(*placed: int) -> Attempts:
    attempts = Attempts()
    for number, count in enumerate(placed):
        attempts.add(GROUP, attempt(number, count), NOW)
    return attempts


@pytest.mark.parametrize(
    ("placed", "now", "allowed"),
    [
        pytest.param([], 0, True, id="the first"),
        pytest.param([0] * (TRIES - 1), 0, True, id="the last"),
        pytest.param([0] * TRIES, 0, False, id="one too many"),
        pytest.param([0] * TRIES, 1, True, id="a pod has come home"),
        pytest.param([0, 1, 2, 3, 4], 5, True, id="each has brought one home"),
        pytest.param([1] * TRIES, 0, False, id="a pod has left again"),
    ],
)
def test_what_brings_no_pod_home_is_tried_a_few_times(placed: list[int], now: int, *, allowed: bool) -> None:
    assert tried(*placed).allow(GROUP, attempt(99, now), NOW) is allowed


def test_after_an_hour_it_is_tried_again() -> None:
    attempts = tried(*[0] * TRIES)
    assert not attempts.allow(GROUP, attempt(99), NOW + PERIOD - timedelta(seconds=1))
    assert attempts.allow(GROUP, attempt(99), NOW + PERIOD)


def test_another_template_is_tried_anew() -> None:
    assert tried(*[0] * TRIES).allow(GROUP, attempt(99, template="u"), NOW)


def test_another_group_is_tried_by_itself() -> None:
    assert tried(*[0] * TRIES).allow(OTHER, attempt(99), NOW)


def test_a_pod_is_not_deleted_twice_while_the_watch_has_yet_to_tell_of_it() -> None:
    assert not tried(0).allow(GROUP, attempt(0, placed=1), NOW)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 90)), max_size=60))
def test_in_an_hour_no_pod_is_tried_for_more_than_a_few_times(passes: list[tuple[int, int]]) -> None:
    attempts, now, made = Attempts(), NOW, list[Any]()
    for number, (placed, minutes) in enumerate(passes):
        if attempts.allow(GROUP, found := attempt(number, placed), now):
            attempts.add(GROUP, found, now)
            made.append(now)
        assert sum(now - time < PERIOD for time in made) <= TRIES * 4
        now += timedelta(minutes=minutes / 10)
