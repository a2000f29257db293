"""Which rack a new group lands in."""

from __future__ import annotations

from tests.placement.crowd import at_once
from tests.placement.scene import AFFINITY, EVERY, PREFERRED, REQUIRED, Pods, Scene


@at_once(*EVERY)
def test_a_group_lands_in_the_rack_that_holds_it(scene: Scene) -> None:
    scene.racks(a=[2, 2], b=[4, 8], c=[8, 8], d=[6, 0])
    scene.apply(Pods(4, 2), Pods(2, 4))
    scene.is_whole_in("c", 4, 2)
    scene.tells(fits={"now": True, "atMaximum": True}, headroom={"prefill": 0, "decode": 0})


@at_once(PREFERRED, AFFINITY)
def test_of_racks_that_hold_it_the_tightest_is_taken(scene: Scene) -> None:
    scene.racks(a=[8, 8], b=[2, 4, 2], c=[8, 4])
    scene.apply(Pods(2, 2), Pods(1, 4))
    scene.is_whole_in("b", 2, 1)


@at_once(*EVERY)
def test_a_group_that_may_grow_gets_the_rack_that_holds_its_maximum(scene: Scene) -> None:
    scene.racks(a=[6], b=[8, 4], c=[6])
    scene.apply(Pods(None, 2), Pods(1, 4), prefill={"autoscaling": {"minReplicas": 1, "maxReplicas": 4}})
    # A PodGroup would get the rack that the scheduler likes best.
    scene.is_whole_in("b", 1, 1, mechanism="PodAffinity")
    # Each role for itself: three of 2 GPUs, or one of 4.
    scene.tells(fits={"now": True, "atMaximum": True}, headroom={"prefill": 3, "decode": 1})


@at_once(*EVERY)
def test_a_rack_that_fits_exactly_is_enough(scene: Scene) -> None:
    scene.racks(a=[3, 3, 3], b=[5, 3], c=[7, 0])
    scene.apply(Pods(1, 3), Pods(1, 5))
    scene.is_whole_in("b", 1, 1)


@at_once(*EVERY)
def test_small_pods_do_not_break_up_the_holes_that_large_ones_need(scene: Scene) -> None:
    scene.racks(a=[2, 4, 2, 4], b=[4, 2, 2, 2])
    scene.apply(Pods(2, 2), Pods(2, 4))
    scene.is_whole_in("a", 2, 2)


@at_once(*EVERY)
def test_the_role_with_the_larger_pods_goes_first_whichever_it_is(scene: Scene) -> None:
    scene.racks(a=[2, 4, 2, 4], b=[4, 2, 2, 2])
    scene.apply(Pods(2, 4), Pods(2, 2))
    scene.is_whole_in("a", 2, 2)


@at_once(*EVERY)
def test_most_free_gpus_in_pieces_that_are_too_small_are_no_room(scene: Scene) -> None:
    scene.racks(a=[3, 3, 3, 3, 3, 3], b=[4, 4, 2], c=[2, 2, 2])
    scene.apply(Pods(1, 2), Pods(2, 4))
    scene.is_whole_in("b", 1, 2)


@at_once(*EVERY)
def test_large_pods_share_a_node_where_small_ones_need_the_other_whole(scene: Scene) -> None:
    scene.racks(a=[8, 8], b=[4, 8])
    scene.apply(Pods(5, 2), Pods(2, 3))
    scene.is_whole_in("a", 5, 2)


@at_once(*REQUIRED)
def test_a_group_that_no_rack_holds_waits_until_one_does(scene: Scene) -> None:
    scene.racks(a=[2, 2], b=[8, 4], c=[0, 4])
    scene.apply(Pods(2, 4), Pods(1, 8))
    message = scene.short(scene.says("InsufficientDomainCapacity"))
    assert "b has" in message
    assert set(scene.landed()) <= {"b"}
    scene.empty(f"{scene.name}-b-1")
    scene.is_whole_in("b", 2, 1)


@at_once(PREFERRED)
def test_a_group_that_no_rack_holds_runs_split_and_says_so(scene: Scene) -> None:
    scene.racks(a=[8, 8], b=[8, 4])
    scene.apply(Pods(3, 4), Pods(2, 8))
    assert scene.runs(3, 2) == {"a", "b"}
    message = scene.short(scene.says("Split"))
    assert "a (" in message
    assert "b (" in message
    landed = scene.landed()
    group = scene.group()
    for role in ("prefill", "decode"):
        assert group[role] == {rack: roles[role] for rack, roles in landed.items() if roles[role]}


@at_once(PREFERRED)
def test_a_group_that_not_even_all_racks_hold_runs_as_far_as_they_do(scene: Scene) -> None:
    scene.racks(a=[8], b=[4])
    scene.apply(Pods(2, 4), Pods(1, 8))
    message = scene.short(scene.says("InsufficientDomainCapacity"))
    assert "a has" in message
    scene.wait("two pods run", lambda: sum(map(sum, (r.values() for r in scene.landed().values()))) == 2)
    assert scene.waiting() == 1
    scene.wait("the status tells of it", lambda: scene.group().get("pending") == {"prefill": 1, "decode": 0})


@at_once(*EVERY)
def test_ten_groups_that_race_for_racks_get_one_each(scene: Scene) -> None:
    scene.racks(**{f"r{number}": [4, 2] for number in range(10)}, small=[2, 2, 2])
    scene.apply(Pods(1, 2), Pods(1, 4), groups=10)
    scene.runs(10, 10)
    homes = [set(scene.landed(group=number)) for number in range(10)]
    assert all(len(home) == 1 for home in homes), homes
    assert len(set.union(*homes)) == 10
    scene.says("Packed")
    assert scene.column() == [*(scene.group(number)["domain"] for number in range(3)), "+7"]


@at_once(*EVERY)
def test_two_groups_that_race_for_racks_get_one_each(scene: Scene) -> None:
    scene.racks(a=[8, 4], b=[4, 4, 4], c=[8, 2])
    scene.apply(Pods(2, 2), Pods(2, 4), groups=2)
    scene.runs(4, 4)
    assert [set(scene.landed(group=number)) for number in (0, 1)] in ([{"a"}, {"b"}], [{"b"}, {"a"}])


@at_once(*EVERY)
def test_ten_resources_that_race_for_racks_get_one_each(scene: Scene) -> None:
    scene.racks(**{f"r{number}": [4, 2] for number in range(10)}, small=[2, 2, 2])
    names = [f"-{number}" for number in range(10)]
    for name in names:
        scene.apply(Pods(1, 2), Pods(1, 4), suffix=name)
    homes = [scene.runs(1, 1, suffix=name) for name in names]
    assert all(len(home) == 1 for home in homes), homes
    assert len(set.union(*homes)) == 10


@at_once(*EVERY)
def test_two_resources_of_which_a_rack_holds_one_get_a_rack_each(scene: Scene) -> None:
    scene.racks(a=[8, 8], b=[8, 8])
    scene.apply(Pods(2, 2), Pods(2, 4), suffix="-x")
    scene.apply(Pods(2, 2), Pods(2, 4), suffix="-y")
    homes = [scene.runs(2, 2, suffix=suffix) for suffix in ("-x", "-y")]
    assert homes in ([{"a"}, {"b"}], [{"b"}, {"a"}])


@at_once(*EVERY)
def test_a_group_that_is_there_before_any_node_is_placed_when_they_come(scene: Scene) -> None:
    scene.apply(Pods(2, 2), Pods(1, 4))
    scene.wait("pods wait", lambda: scene.waiting() >= 1)
    scene.racks(a=[2, 2], b=[4, 4])
    # The scheduler may be faster than the operator. Where packing is required the group then moves.
    if scene.way.mode == "Required":
        scene.wait("all pods are in the rack that holds them", lambda: scene.runs(2, 1) == {"b"})
    else:
        assert scene.runs(2, 1) <= {"a", "b"}
    scene.says("Packed" if len(scene.landed()) == 1 else "Split")
