"""How pods are told where their group is packed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from disagg.api.names import ENGINE_ROLES, GROUP_LABEL, NAME_LABEL, PLACEMENT, RoleName, Workload
from disagg.api.topology_constraint import PackMode
from disagg.build.deployment import deployment
from disagg.build.placement import placed
from disagg.build.pod_template import pod_templates
from disagg.decide.decide import decide
from disagg.decide.decisions import GroupDecision, Mechanism, Placement, Template
from tests.unit.racks import RACK
from tests.unit.resources import observed, resource

PLACED = Placement(RACK, PackMode.PREFERRED, Mechanism.POD_AFFINITY, RoleName.DECODE, "r1")
REQUIRED = replace(PLACED, mode=PackMode.REQUIRED)
GROUPED = replace(REQUIRED, mechanism=Mechanism.POD_GROUP)
WIDER = replace(PLACED, wider_key="example.com/row", wider_domain="row-1")
PLANNED = replace(PLACED, nodes=("n1", "n2"))
CONFINED = replace(PLACED, within=("r1", "r2"))
ANYWHERE = replace(PLACED, domain=None)

SELECTOR = {"matchLabels": {NAME_LABEL: "llama", GROUP_LABEL: "0", PLACEMENT: PLACED.identity}}
ATTRACTION = {"labelSelector": SELECTOR, "topologyKey": RACK}
PREFERRED, HARD = (
    "preferredDuringSchedulingIgnoredDuringExecution",
    "requiredDuringSchedulingIgnoredDuringExecution",
)


def template(placement: Placement, role: RoleName = RoleName.DECODE, **spec: object) -> Template:
    wanted = resource(**spec)
    return placed(wanted, pod_templates(wanted), {0: GroupDecision(placement)})[Workload(role)]


def affinity(placement: Placement, role: RoleName = RoleName.DECODE, **spec: object) -> dict[str, Any]:
    return dict(template(placement, role, **spec).body["spec"]["affinity"])


def attraction(placement: Placement) -> dict[str, Any]:
    return dict(affinity(placement)["podAffinity"])


def steer(placement: Placement, role: RoleName = RoleName.DECODE) -> list[tuple[int, str, list[str]]]:
    """Weight, label and values of each term."""
    found = []
    for term in affinity(placement, role).get("nodeAffinity", {}).get(PREFERRED, []):
        (expression,) = term["preference"]["matchExpressions"]
        assert expression["operator"] == "In"
        found.append((term["weight"], expression["key"], expression["values"]))
    return found


def overlaid(spec: dict[str, Any]) -> dict[str, Any]:
    return {"decode": {"podTemplate": {"spec": spec}}}


# What pods are told


def test_pods_that_may_run_elsewhere_would_rather_be_with_their_group() -> None:
    assert attraction(PLACED) == {PREFERRED: [{"weight": 100, "podAffinityTerm": ATTRACTION}]}


def test_pods_that_must_be_with_their_group_are() -> None:
    assert attraction(REQUIRED) == {HARD: [ATTRACTION]}


def test_pods_that_find_no_room_would_rather_be_near_their_group() -> None:
    near = {"weight": 10, "podAffinityTerm": ATTRACTION | {"topologyKey": "example.com/row"}}
    assert attraction(WIDER)[PREFERRED] == [*attraction(PLACED)[PREFERRED], near]


def test_a_pod_counts_for_its_own_term() -> None:
    """Else the first pod would wait for another, for ever."""
    labels = template(REQUIRED).body["metadata"]["labels"]
    assert labels.items() >= SELECTOR["matchLabels"].items()


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_both_roles_are_steered_to_the_domain(role: RoleName) -> None:
    assert steer(PLACED, role) == [(100, RACK, ["r1"])]


def test_the_nodes_of_a_plan_are_for_the_first_role_and_filled_in_order() -> None:
    domain = (100, RACK, ["r1"])
    nodes = [(weight, "kubernetes.io/hostname", [node]) for node, weight in [("n1", 100), ("n2", 60)]]
    assert steer(PLANNED, RoleName.DECODE) == [domain, *nodes]
    assert steer(PLANNED, RoleName.PREFILL) == [domain]


WITHIN = {"key": RACK, "operator": "In", "values": ["r1", "r2"]}


def confinement(placement: Placement, own: object = None) -> object:
    """What a pod is confined to, with a required node affinity of the user's."""
    overlay = {"affinity": {"nodeAffinity": {HARD: own}}} if own else {}
    decode = {"podTemplate": {"spec": overlay}}
    return affinity(placement, decode=decode)["nodeAffinity"].get(HARD)


def test_pods_may_run_anywhere_where_the_scheduler_sees_all_nodes() -> None:
    assert confinement(PLACED) is None


def test_pods_are_confined_to_domains_that_the_scheduler_sees_whole() -> None:
    assert confinement(CONFINED) == {"nodeSelectorTerms": [{"matchExpressions": [WITHIN]}]}


def test_each_alternative_of_the_user_is_confined() -> None:
    pool = {"key": "pool", "operator": "In", "values": ["a"]}
    name = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    own = {"nodeSelectorTerms": [{"matchExpressions": [pool]}, {"matchFields": name}]}
    assert confinement(CONFINED, own) == {
        "nodeSelectorTerms": [
            {"matchExpressions": [pool, WITHIN]},
            {"matchFields": name, "matchExpressions": [WITHIN]},
        ]
    }


def test_the_wider_domain_weighs_less() -> None:
    assert steer(WIDER) == [(100, RACK, ["r1"]), (10, "example.com/row", ["row-1"])]


def test_a_wider_level_without_a_value_steers_nowhere() -> None:
    assert steer(replace(WIDER, wider_domain=None)) == steer(PLACED)


def test_where_no_domain_is_known_pods_attract_each_other_alone() -> None:
    assert affinity(ANYWHERE).keys() == {"podAffinity"}


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_pods_of_a_gang_name_it(role: RoleName) -> None:
    """And attract each other: a PodGroup that is gone, or not served, leaves them together."""
    spec = template(GROUPED, role).body["spec"]
    assert spec["schedulingGroup"] == {"podGroupName": f"llama-group-0-{PLACED.identity}"}
    assert spec["affinity"] == affinity(REQUIRED, role)


@pytest.mark.parametrize("placement", [PLACED, REQUIRED])
def test_other_pods_name_no_gang(placement: Placement) -> None:
    assert "schedulingGroup" not in template(placement).body["spec"]


def test_groups_do_not_attract_each_other() -> None:
    wanted = resource(groups=2)
    groups = {0: GroupDecision(PLACED), 1: GroupDecision(GROUPED)}
    body = placed(wanted, pod_templates(wanted), groups)[Workload(RoleName.DECODE, 1)].body
    (term,) = body["spec"]["affinity"]["podAffinity"][HARD]
    assert term["labelSelector"]["matchLabels"][GROUP_LABEL] == "1"
    assert body["spec"]["schedulingGroup"]["podGroupName"].startswith("llama-group-1-")


# What they are not


@pytest.mark.parametrize(
    "groups", [{}, {0: GroupDecision()}, {1: GroupDecision(PLACED)}], ids=["free", "other", "none"]
)
def test_without_a_placement_templates_are_what_they_are(groups: dict[int, GroupDecision]) -> None:
    templates = pod_templates(resource())
    assert placed(resource(), templates, groups) == templates


def test_a_router_is_told_nothing() -> None:
    router = Workload(RoleName.ROUTER)
    templates = pod_templates(resource())
    assert placed(resource(), templates, {0: GroupDecision(PLACED)})[router] == templates[router]


def test_the_templates_that_are_given_are_not_changed() -> None:
    wanted = resource(**overlaid({"affinity": {"podAffinity": {PREFERRED: []}}}))
    templates = pod_templates(wanted)
    before = deepcopy(templates)
    placed(wanted, templates, {0: GroupDecision(GROUPED)})
    assert templates == before


# What the user has asked for

TERM = {"weight": 1, "podAffinityTerm": {"topologyKey": "a", "labelSelector": {}}}
NODES = {HARD: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}


def test_own_terms_come_first() -> None:
    own = {"podAffinity": {PREFERRED: [TERM]}}
    assert affinity(PLACED, **overlaid({"affinity": own}))["podAffinity"][PREFERRED] == [
        TERM,
        *attraction(PLACED)[PREFERRED],
    ]


@pytest.mark.parametrize("own", [{"nodeAffinity": NODES}, {"podAntiAffinity": {PREFERRED: [TERM]}}], ids=str)
def test_own_affinities_stay_beside(own: dict[str, Any]) -> None:
    found = affinity(PLACED, **overlaid({"affinity": own}))
    for kind, rules in own.items():
        assert found[kind].items() >= rules.items()
    assert found["podAffinity"] == attraction(PLACED)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"pool": "gpu"}},
        {"tolerations": [{"operator": "Exists"}]},
        {
            "topologySpreadConstraints": [
                {"maxSkew": 2, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        },
        {"topologySpreadConstraints": []},
        {"priorityClassName": "high"},
    ],
    ids=str,
)
def test_own_fields_stay(spec: dict[str, Any]) -> None:
    assert template(PLACED, **overlaid(spec)).body["spec"].items() >= spec.items()


def test_the_schedulers_own_spreading_is_off() -> None:
    (spread,) = template(PLACED).body["spec"]["topologySpreadConstraints"]
    # No pod has an empty name. Without any selector, the API server would warn whoever scales the Deployment.
    assert spread["labelSelector"] == {"matchLabels": {NAME_LABEL: ""}}
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"


@pytest.mark.parametrize(
    "own",
    [
        None,
        {},
        {"$patch": "replace"},
        {"$patch": "replace", "podAffinity": None},
        {"podAffinity": {PREFERRED: None}},
        {"$patch": "replace", "podAffinity": {PREFERRED: None}},
    ],
    ids=str,
)
def test_nothing_of_ones_own_is_nothing(own: object) -> None:
    assert affinity(PLACED, **overlaid({"affinity": own})) == affinity(PLACED)


@pytest.mark.parametrize(
    "own", ["a", ["a"], {PREFERRED: 1}, {PREFERRED: "a"}, {PREFERRED: {"a": 1}}], ids=str
)
def test_what_the_api_server_will_refuse_is_left_to_it(own: object) -> None:
    assert affinity(PLACED, **overlaid({"affinity": {"podAffinity": own}}))["podAffinity"] == own


# When pods restart


def test_the_inputs_are_those_of_the_template_and_the_placement() -> None:
    plain = pod_templates(resource())[Workload(RoleName.DECODE)].inputs
    hashed, _, digest = template(PLACED).inputs.partition("-")
    assert (hashed, len(digest)) == (plain, 8)


CHANGES = [
    REQUIRED,
    GROUPED,
    WIDER,
    PLANNED,
    ANYWHERE,
    replace(PLACED, domain="r2"),
    replace(PLACED, moves=1),
]


@pytest.mark.parametrize("other", CHANGES, ids=str)
def test_another_placement_is_another_input(other: Placement) -> None:
    assert template(other).inputs != template(PLACED).inputs


@pytest.mark.parametrize("placement", [PLACED, *CHANGES], ids=str)
@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_what_is_told_is_valid(placement: Placement, role: RoleName) -> None:
    wanted = resource()
    templates = placed(wanted, pod_templates(wanted), {0: GroupDecision(placement)})
    decision = decide(wanted, observed(), templates).workloads[Workload(role)]
    made = deployment(wanted, Workload(role), decision, placement)
    # Of PodGroups the schema does not know yet.
    made["spec"]["template"]["spec"].pop("schedulingGroup", None)
    kubernetes_validate.validate(made, "1.37", strict=True)
