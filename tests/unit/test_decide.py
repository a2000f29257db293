from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from disagg.api.names import FIELD_MANAGER, SEED_MANAGER, RoleName, Workload
from disagg.api.resource import DisaggregatedInference
from disagg.build.pod_template import pod_templates
from disagg.decide.decide import decide
from disagg.decide.decisions import WorkloadDecision
from tests.unit import strategies
from tests.unit.resources import managed, observed, resource, running

AUTOSCALING = {"autoscaling": {"maxReplicas": 8}}
COUNT: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


def decided(
    wanted: DisaggregatedInference, *children: dict[str, Any], role: RoleName = RoleName.PREFILL
) -> WorkloadDecision:
    return decide(wanted, observed(*children), pod_templates(wanted)).workloads[Workload(role)]


def counted_by(*managers: str, replicas: int = 5, operation: str = "Apply") -> dict[str, Any]:
    """A prefill Deployment whose count is owned by `managers`."""
    deployment = running("prefill", replicas)
    deployment["metadata"]["managedFields"] = [managed(COUNT, manager, operation) for manager in managers]
    return deployment


# Replicas


@pytest.mark.parametrize(
    ("prefill", "replicas"),
    [
        pytest.param({}, None, id="unset"),
        pytest.param({"replicas": 3}, 3, id="set"),
        pytest.param({"replicas": 0}, 0, id="set to none"),
        pytest.param(AUTOSCALING, None, id="scaled"),
        pytest.param(AUTOSCALING | {"replicas": 3}, None, id="scaled and set"),
    ],
)
@pytest.mark.parametrize("live", [None, counted_by(FIELD_MANAGER)], ids=["new", "running"])
def test_the_count_is_the_users_unless_the_role_scales(
    prefill: dict[str, Any], replicas: int | None, live: dict[str, Any] | None
) -> None:
    wanted = resource(prefill=prefill)
    assert decided(wanted, *([live] if live else [])).replicas == replicas


def test_the_routers_count_is_its_own() -> None:
    assert decided(resource(router={"replicas": 2}), role=RoleName.ROUTER).replicas == 2


def test_without_a_router_nothing_is_decided_for_it() -> None:
    wanted = resource(router={"kind": "none"})
    assert decide(wanted, observed(), pod_templates(wanted)).workloads.keys() == {
        Workload(RoleName.PREFILL),
        Workload(RoleName.DECODE),
    }


# Seeds


@pytest.mark.parametrize("prefill", [{}, AUTOSCALING], ids=["unset", "scaled"])
def test_a_count_that_the_operator_lets_go_of_is_held_by_another_manager(prefill: dict[str, Any]) -> None:
    assert decided(resource(prefill=prefill), counted_by(FIELD_MANAGER, replicas=5)).seed == 5


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(counted_by(), id="nobody's"),
        pytest.param(counted_by(SEED_MANAGER), id="the seed's"),
        pytest.param(counted_by("kubectl", operation="Update"), id="a person's"),
        pytest.param(counted_by("kube-controller-manager", operation="Update"), id="an autoscaler's"),
        pytest.param(counted_by(FIELD_MANAGER, operation="Update"), id="ours, but not applied"),
    ],
)
def test_a_count_that_is_somebody_elses_needs_no_seed(live: dict[str, Any]) -> None:
    assert decided(resource(), live).seed is None


def test_a_count_that_the_operator_keeps_needs_no_seed() -> None:
    assert decided(resource(prefill={"replicas": 2}), counted_by(FIELD_MANAGER)).seed is None


def test_a_new_deployment_needs_no_seed() -> None:
    assert decided(resource()).seed is None


def test_a_count_that_is_zero_is_held_too() -> None:
    assert decided(resource(prefill=AUTOSCALING), counted_by(FIELD_MANAGER, replicas=0)).seed == 0


def test_the_other_roles_count_is_no_seed() -> None:
    wanted = resource(prefill=AUTOSCALING)
    assert decided(wanted, counted_by(FIELD_MANAGER), role=RoleName.DECODE).seed is None


# Rollout


@pytest.mark.parametrize(
    ("rollout", "of_one", "of_many"),
    [
        pytest.param({}, (1, 0), (0, 1), id="nothing given"),
        pytest.param({"maxSurge": 2}, (2, 0), (2, 0), id="surge given"),
        pytest.param({"maxSurge": "25%"}, ("25%", 0), ("25%", 0), id="surge given in percent"),
        pytest.param({"maxSurge": 0}, (0, 1), (0, 1), id="no surge"),
        pytest.param({"maxSurge": "0%"}, ("0%", 1), ("0%", 1), id="no percent of surge"),
        pytest.param({"maxUnavailable": 2}, (0, 2), (0, 2), id="unavailable given"),
        pytest.param({"maxUnavailable": "50%"}, (0, "50%"), (0, "50%"), id="unavailable given in percent"),
        pytest.param({"maxUnavailable": 0}, (1, 0), (1, 0), id="none unavailable"),
        pytest.param({"maxUnavailable": "0%"}, (1, "0%"), (1, "0%"), id="no percent unavailable"),
        pytest.param({"maxSurge": 3, "maxUnavailable": 2}, (3, 2), (3, 2), id="both given"),
    ],
)
def test_a_single_replica_is_replaced_by_surge_and_several_without(
    rollout: dict[str, Any], of_one: tuple[int | str, int | str], of_many: tuple[int | str, int | str]
) -> None:
    for replicas, expected in ((0, of_one), (1, of_one), (2, of_many), (10, of_many)):
        decision = decided(resource(rollout=rollout, prefill={"replicas": replicas}))
        assert (decision.max_surge, decision.max_unavailable) == expected


@pytest.mark.parametrize("prefill", [{}, AUTOSCALING], ids=["unset", "scaled"])
@pytest.mark.parametrize(("replicas", "surge"), [(1, 1), (2, 0)])
def test_a_count_that_is_not_the_operators_is_read_from_what_runs(
    prefill: dict[str, Any], replicas: int, surge: int
) -> None:
    assert decided(resource(prefill=prefill), counted_by(replicas=replicas)).max_surge == surge


def test_a_wanted_count_matters_more_than_the_one_that_runs() -> None:
    assert decided(resource(prefill={"replicas": 1}), counted_by(replicas=5)).max_surge == 1


def test_a_new_deployment_without_a_count_begins_with_one_replica() -> None:
    first = decided(resource())
    then = decided(resource(), counted_by(replicas=1))
    assert (first.max_surge, first.max_unavailable) == (then.max_surge, then.max_unavailable) == (1, 0)


@given(wanted=strategies.resources())
def test_a_rollout_can_always_go_on(wanted: DisaggregatedInference) -> None:
    for decision in decide(wanted, observed(), pod_templates(wanted)).workloads.values():
        assert not {decision.max_surge, decision.max_unavailable} <= {0, "0", "0%"}
