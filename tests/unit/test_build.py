from __future__ import annotations

import json
import re
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings

from disagg.api.names import RoleName
from disagg.api.resource import DisaggregatedInference, InvalidSpecError, parse
from disagg.build.pod_template import pod_templates
from disagg.build.service import endpoint
from tests.unit import strategies
from tests.unit.resources import SMG, container, objects, overlaid, resource, template

SELECTORS = {
    "prefill": {"disagg.dev/name": "llama", "disagg.dev/role": "prefill", "disagg.dev/group": "0"},
    "decode": {"disagg.dev/name": "llama", "disagg.dev/role": "decode", "disagg.dev/group": "0"},
    "router": {"disagg.dev/name": "llama", "disagg.dev/role": "router", "disagg.dev/group": "0"},
}
ROLES = tuple(SELECTORS)
ENGINE_ROLES = ("prefill", "decode")

ENGINES = {
    ("Service", "llama-prefill"),
    ("Service", "llama-decode"),
    ("Deployment", "llama-prefill"),
    ("Deployment", "llama-decode"),
}
ROUTER = {
    ("ServiceAccount", "llama-router"),
    ("Role", "llama-router"),
    ("RoleBinding", "llama-router"),
    ("Service", "llama-router"),
    ("Deployment", "llama-router"),
}
PREFILL_AUTOSCALER = ("HorizontalPodAutoscaler", "llama-prefill")
DECODE_AUTOSCALER = ("HorizontalPodAutoscaler", "llama-decode")


def deployment(role: str = "prefill", **spec: object) -> dict[str, Any]:
    return objects(resource(**spec))["Deployment", f"llama-{role}"]


def service(role: str, **spec: object) -> dict[str, Any]:
    return objects(resource(**spec))["Service", f"llama-{role}"]


def autoscaler(role: str, **autoscaling: object) -> dict[str, Any]:
    wanted = resource(**{role: {"autoscaling": {"maxReplicas": 8} | autoscaling}})
    return objects(wanted)["HorizontalPodAutoscaler", f"llama-{role}"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, ENGINES | ROUTER, id="smallest"),
        pytest.param({"router": {"kind": "none"}}, ENGINES, id="no router"),
        pytest.param(SMG, ENGINES | ROUTER, id="smg"),
        pytest.param(
            {"prefill": {"autoscaling": {"maxReplicas": 2}}},
            ENGINES | ROUTER | {PREFILL_AUTOSCALER},
            id="prefill scales",
        ),
        pytest.param(
            {"prefill": {"autoscaling": {"maxReplicas": 2}}, "decode": {"autoscaling": {"maxReplicas": 2}}},
            ENGINES | ROUTER | {PREFILL_AUTOSCALER, DECODE_AUTOSCALER},
            id="both scale",
        ),
    ],
)
def test_a_resource_becomes_these_objects(spec: dict[str, Any], expected: set[tuple[str, str]]) -> None:
    assert objects(resource(**spec)).keys() == expected


def test_what_a_pod_needs_is_applied_before_it() -> None:
    kinds = [kind for kind, _ in objects(resource(prefill={"autoscaling": {"maxReplicas": 2}}))]
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")
    assert kinds.index("Service") < kinds.index("Deployment")
    assert kinds.index("Deployment") < kinds.index("HorizontalPodAutoscaler")


# Metadata


@pytest.mark.parametrize("role", ROLES)
def test_children_are_labelled(role: str) -> None:
    wanted = {
        "disagg.dev/name": "llama",
        "disagg.dev/role": role,
        "app.kubernetes.io/name": "disagg",
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/part-of": "llama",
        "app.kubernetes.io/managed-by": "disagg",
    }
    children = {kind: obj for (kind, name), obj in objects(resource()).items() if name == f"llama-{role}"}
    in_group = {"disagg.dev/group": "0"}
    assert children["Deployment"]["metadata"]["labels"] == wanted | in_group
    of_pods = template(resource(), role)["metadata"]["labels"]
    assert of_pods.items() >= (wanted | in_group).items()
    assert of_pods.keys() - (wanted | in_group).keys() <= {"disagg.dev/kv-compatibility"}
    for kind in children.keys() - {"Deployment"}:
        assert children[kind]["metadata"]["labels"] == wanted, kind


def test_children_are_owned_without_blocking_the_deletion_of_the_resource() -> None:
    for child in objects(resource()).values():
        (owner,) = child["metadata"]["ownerReferences"]
        assert owner["uid"] == "u-1"
        assert owner["controller"] is True
        assert "blockOwnerDeletion" not in owner


@pytest.mark.parametrize("role", ROLES)
def test_selectors_are_minimal(role: str) -> None:
    assert deployment(role)["spec"]["selector"] == {"matchLabels": SELECTORS[role]}
    assert service(role)["spec"]["selector"] == {"disagg.dev/name": "llama", "disagg.dev/role": role}


# Groups

SCALED = {"prefill": {"autoscaling": {"maxReplicas": 8}}}


def test_each_group_has_deployments_and_autoscalers_of_its_own() -> None:
    more = objects(resource(groups=3, **SCALED)).keys() - objects(resource(**SCALED)).keys()
    assert more == {
        (kind, f"llama-{role}-{group}")
        for group in (1, 2)
        for kind, role in [
            ("Deployment", "prefill"),
            ("Deployment", "decode"),
            ("Deployment", "router"),
            ("HorizontalPodAutoscaler", "prefill"),
        ]
    }


def test_a_further_group_changes_nothing_of_those_before() -> None:
    one, two = objects(resource(groups=1, **SCALED)), objects(resource(groups=2, **SCALED))
    assert {key: two[key] for key in one} == one


def test_the_endpoint_reaches_the_routers_of_all_groups() -> None:
    made = objects(resource(groups=2))
    selector = made["Service", "llama-router"]["spec"]["selector"]
    for name in ("llama-router", "llama-router-1"):
        assert made["Deployment", name]["spec"]["template"]["metadata"]["labels"].items() >= selector.items()


def test_a_router_pairs_pods_of_its_own_group_only() -> None:
    (container,) = objects(resource(groups=2))["Deployment", "llama-router-1"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["args"].count("disagg.dev/group=1") == 2
    assert "disagg.dev/group=0" not in container["args"]


def test_an_autoscaler_reads_the_signal_of_its_group() -> None:
    spec = objects(resource(groups=2, **SCALED))["HorizontalPodAutoscaler", "llama-prefill-1"]["spec"]
    (metric,) = spec["metrics"]
    assert metric["external"]["metric"]["selector"]["matchLabels"]["disagg.dev/group"] == "1"
    assert spec["scaleTargetRef"]["name"] == "llama-prefill-1"


def test_groups_are_packed_each_for_itself() -> None:
    packed = objects(resource(groups=2, topologyConstraint={"packDomain": "rack"}))
    for role in ENGINE_ROLES:
        for name, number in ((f"llama-{role}", "0"), (f"llama-{role}-1", "1")):
            pod = packed["Deployment", name]["spec"]["template"]
            term, *_ = pod["spec"]["affinity"]["podAffinity"][
                "preferredDuringSchedulingIgnoredDuringExecution"
            ]
            selector = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
            assert selector["disagg.dev/group"] == number
            assert pod["metadata"]["labels"].items() >= selector.items()


def test_a_constraint_changes_no_other_object() -> None:
    free, packed = objects(resource()), objects(resource(topologyConstraint={"packDomain": "rack"}))
    changed = {key for key in free if free[key] != packed[key]}
    assert changed == {("Deployment", f"llama-{role}") for role in ENGINE_ROLES}
    assert packed.keys() == free.keys()


def test_a_new_group_that_is_packed_begins_with_its_minimum() -> None:
    """The autoscaler would bring the rest when the first pods have their places."""
    prefill = {"autoscaling": {"minReplicas": 3, "maxReplicas": 8}}
    assert "replicas" not in deployment(prefill=prefill)["spec"]
    packed = deployment(prefill=prefill, topologyConstraint={"packDomain": "rack"})
    assert packed["spec"]["replicas"] == 3


# Services


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_engines_have_headless_services_that_do_not_remap_ports(role: str) -> None:
    spec = service(role)["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["ports"] == [{"name": "http", "port": 8000, "targetPort": 8000, "protocol": "TCP"}]


def test_clients_call_the_router() -> None:
    spec = service("router")["spec"]
    assert spec["type"] == "ClusterIP"
    assert spec["ports"] == [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]


def test_the_type_and_port_of_the_routers_service_are_the_users() -> None:
    spec = service("router", router={"service": {"type": "LoadBalancer", "port": 8443}})["spec"]
    assert (spec["type"], spec["ports"][0]["port"]) == ("LoadBalancer", 8443)


@pytest.mark.parametrize(
    ("port", "url"),
    [(80, "http://llama-router.inference.svc"), (8443, "http://llama-router.inference.svc:8443")],
)
def test_the_endpoint_is_the_routers_service(port: int, url: str) -> None:
    assert endpoint(resource(router={"service": {"port": port}})) == url


# Replicas


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_an_unset_count_is_not_applied(role: str) -> None:
    assert "replicas" not in deployment(role)["spec"]


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_a_count_is_not_applied_while_the_role_scales(role: str) -> None:
    assert (
        "replicas"
        not in deployment(role, **{role: {"replicas": 3, "autoscaling": {"maxReplicas": 8}}})["spec"]
    )


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("replicas", [0, 3])
def test_a_set_count_is_applied(role: str, replicas: int) -> None:
    assert deployment(role, **{role: {"replicas": replicas}})["spec"]["replicas"] == replicas


def test_there_is_one_router_unless_the_user_wants_more() -> None:
    assert deployment("router")["spec"]["replicas"] == 1


# Rollout


def test_the_rollout_is_the_users() -> None:
    rollout = {"maxSurge": "25%", "maxUnavailable": 2}
    assert deployment(rollout=rollout)["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": rollout,
    }


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_a_rollout_has_longer_than_a_model_takes_to_load(role: str) -> None:
    probe = container(resource(), role)["startupProbe"]
    startup = probe["periodSeconds"] * probe["failureThreshold"]
    assert startup == 3600
    assert deployment(role)["spec"]["progressDeadlineSeconds"] > startup


# Autoscalers


@pytest.mark.parametrize(
    ("role", "metric", "target"),
    [("prefill", "disagg_queue_depth", "4"), ("decode", "disagg_kv_cache_usage", "80")],
)
def test_each_role_scales_by_its_own_signal(role: str, metric: str, target: str) -> None:
    assert autoscaler(role)["spec"]["metrics"] == [
        {
            "type": "External",
            "external": {
                "metric": {"name": metric, "selector": {"matchLabels": SELECTORS[role]}},
                "target": {"type": "AverageValue", "averageValue": target},
            },
        }
    ]


@pytest.mark.parametrize(
    ("role", "field", "target"), [("prefill", "queueDepth", 9), ("decode", "kvCacheUtilization", 60)]
)
def test_the_target_is_the_users(role: str, field: str, target: int) -> None:
    (metric,) = autoscaler(role, **{field: target})["spec"]["metrics"]
    assert metric["external"]["target"]["averageValue"] == str(target)


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_an_autoscaler_moves_its_deployment_within_bounds(role: str) -> None:
    spec = autoscaler(role, minReplicas=2)["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"llama-{role}"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 8)


def test_at_least_one_replica_stays() -> None:
    assert autoscaler("prefill")["spec"]["minReplicas"] == 1


def test_it_scales_up_fast_and_down_slowly() -> None:
    behavior = autoscaler("decode")["spec"]["behavior"]
    up, down = behavior["scaleUp"], behavior["scaleDown"]
    assert up["stabilizationWindowSeconds"] == 0
    assert {(policy["type"], policy["value"]) for policy in up["policies"]} == {("Percent", 100), ("Pods", 4)}
    assert up["selectPolicy"] == "Max"
    assert down["stabilizationWindowSeconds"] == 300
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]


# Router


def test_vllm_router_pairs_the_pods_of_the_resource() -> None:
    router = container(resource(router={"args": ["--policy=cache_aware"]}), "router")
    assert router["image"] == "vllm/vllm-router:v0.1.17"
    assert router["command"] == ["vllm-router"]
    assert router["args"] == [
        "--vllm-pd-disaggregation",
        "--kv-connector=nixl",
        "--health-check-interval-secs=5",
        "--host=0.0.0.0",
        "--port=8080",
        "--prometheus-host=0.0.0.0",
        "--prometheus-port=29000",
        "--service-discovery",
        "--service-discovery-namespace=inference",
        "--service-discovery-port=8000",
        "--prefill-selector",
        "disagg.dev/name=llama",
        "disagg.dev/role=prefill",
        "disagg.dev/group=0",
        "--decode-selector",
        "disagg.dev/name=llama",
        "disagg.dev/role=decode",
        "disagg.dev/group=0",
        "--policy=cache_aware",
    ]


def test_smg_starts_by_its_image() -> None:
    router = container(resource(**SMG), "router")
    assert router["image"] == "smg:1.13.0"
    assert "command" not in router
    assert router["args"][0] == "--pd-disaggregation"
    assert not [arg for arg in router["args"] if "vllm" in arg or "kv-connector" in arg]


def test_smg_without_an_image_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match=r"spec\.router: .*image is required when kind is smg"):
        resource(**overlaid(SMG, {"router": {"image": None}}))


def test_the_routers_image_is_the_users() -> None:
    assert container(resource(router={"image": "mine:1"}), "router")["image"] == "mine:1"


def test_the_router_may_read_pods_of_its_namespace_and_nothing_else() -> None:
    made = objects(resource())
    assert made["Role", "llama-router"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    binding = made["RoleBinding", "llama-router"]
    assert binding["roleRef"]["name"] == "llama-router"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "llama-router", "namespace": "inference"}
    ]
    assert template(resource(), "router")["spec"]["serviceAccountName"] == "llama-router"


# Pods


@pytest.mark.parametrize("role", ROLES)
def test_the_service_reaches_a_port_of_the_container(role: str) -> None:
    (port,) = service(role)["spec"]["ports"]
    assert port["targetPort"] in [found["containerPort"] for found in container(resource(), role)["ports"]]


@pytest.mark.parametrize("role", ROLES)
def test_health_is_asked_of_the_http_port(role: str) -> None:
    main = container(resource(), role)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert main[probe]["httpGet"]["port"] == "http"


@pytest.mark.parametrize("role", ROLES)
def test_other_services_do_not_leak_into_the_environment(role: str) -> None:
    assert template(resource(), role)["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_a_pod_serves_on_while_routers_learn_that_it_goes(role: str) -> None:
    pod = template(resource(), role)["spec"]
    seconds = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 0 < seconds < pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("kind", ["vllm", "custom"])
@pytest.mark.parametrize("role", ENGINE_ROLES)
def test_ranks_share_memory(role: str, kind: str) -> None:
    pod = template(resource(engine={"kind": kind}), role)["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "shm"]
    assert volume["emptyDir"]["medium"] == "Memory"
    assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]  # noqa: S108


@pytest.mark.parametrize(
    ("accelerator", "tensor", "limits"),
    [
        ({}, 1, {"nvidia.com/gpu": "1"}),
        ({}, 4, {"nvidia.com/gpu": "4"}),
        ({"perRank": 2}, 4, {"nvidia.com/gpu": "8"}),
        ({"resource": "amd.com/gpu"}, 2, {"amd.com/gpu": "2"}),
        ({"perRank": 0}, 4, None),
    ],
)
def test_a_pod_takes_an_accelerator_a_rank(
    accelerator: dict[str, Any], tensor: int, limits: dict[str, str] | None
) -> None:
    wanted = resource(accelerator=accelerator, decode={"parallelism": {"tensor": tensor}})
    assert container(wanted, "decode")["resources"].get("limits") == limits


def test_accelerators_add_to_the_users_resources() -> None:
    resources = {"requests": {"cpu": "8"}, "limits": {"memory": "64Gi"}}
    assert container(resource(prefill={"resources": resources}))["resources"] == {
        "requests": {"cpu": "8"},
        "limits": {"memory": "64Gi", "nvidia.com/gpu": "1"},
    }


def test_the_routers_resources_are_the_users() -> None:
    wanted = resource(router={"resources": {"requests": {"cpu": "1"}}})
    assert container(wanted, "router")["resources"] == {"requests": {"cpu": "1"}}
    assert "resources" not in container(resource(), "router")


def test_the_image_of_a_role_wins_over_the_engines() -> None:
    wanted = resource(prefill={"image": "mine:1"})
    assert container(wanted, "prefill")["image"] == "mine:1"
    assert container(wanted, "decode")["image"] == "vllm/vllm-openai:v0.32.0"


# The user's overlay


@pytest.mark.parametrize("role", ROLES)
def test_the_overlay_has_the_last_word(role: str) -> None:
    main = container(resource(), role)["name"]
    overlay = {
        "metadata": {
            "annotations": {"a": "b"},
            "labels": {"team": "ml", "app.kubernetes.io/part-of": "mine"},
        },
        "spec": {
            "containers": [{"name": main, "image": "mine:1", "livenessProbe": None}],
            "priorityClassName": "p",
        },
    }
    pod = template(resource(**{role: {"podTemplate": overlay}}), role)
    assert pod["metadata"]["annotations"]["a"] == "b"
    assert pod["metadata"]["labels"]["team"] == "ml"
    assert pod["metadata"]["labels"]["app.kubernetes.io/part-of"] == "mine"
    assert pod["spec"]["priorityClassName"] == "p"
    assert pod["spec"]["containers"][0]["image"] == "mine:1"
    assert "livenessProbe" not in pod["spec"]["containers"][0]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": dict.fromkeys(SELECTORS["prefill"], "mine")},
        {"labels": {"$patch": "replace"}},
        {"labels": None},
        {"$patch": "delete"},
        None,
    ],
    ids=["changed", "replaced", "removed", "metadata emptied", "metadata removed"],
)
def test_a_deployment_selects_its_pods_whatever_the_overlay_says(
    role: str, metadata: dict[str, Any] | None
) -> None:
    pod = template(resource(**{role: {"podTemplate": {"metadata": metadata}}}), role)
    assert pod["metadata"]["labels"].items() >= SELECTORS[role].items()


# Inputs of a template


def inputs(**spec: object) -> dict[str, str]:
    return {str(role): found.inputs for role, found in pod_templates(resource(**spec)).items()}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "field", [{"image": "mine:1"}, {"args": ["-v"]}, {"podTemplate": {"spec": {}}}], ids=str
)
def test_a_field_of_a_role_changes_the_pods_of_that_role_only(role: str, field: dict[str, Any]) -> None:
    before, after = inputs(), inputs(**{role: field})
    assert {name for name in before if before[name] != after[name]} == {role}


@pytest.mark.parametrize(
    "spec",
    [
        {"model": {"servedName": "mine"}},
        {"engine": {"image": "mine:1"}},
        {"accelerator": {"perRank": 0}},
    ],
    ids=str,
)
def test_a_common_field_changes_the_pods_of_both_engine_roles(spec: dict[str, Any]) -> None:
    before, after = inputs(), inputs(**spec)
    assert {name for name in before if before[name] != after[name]} == {"prefill", "decode"}


@pytest.mark.parametrize(
    "spec",
    [
        {"prefill": {"replicas": 3}},
        {"decode": {"autoscaling": {"maxReplicas": 3}}},
        {"router": {"replicas": 3, "service": {"port": 81}}},
        {"rollout": {"maxSurge": 1}},
        {"paused": True},
        {"engine": {"kind": "vllm", "args": []}},
        {"accelerator": {"resource": "nvidia.com/gpu", "perRank": 1}},
    ],
    ids=str,
)
def test_what_no_pod_is_made_from_changes_no_pods(spec: dict[str, Any]) -> None:
    assert inputs(**spec) == inputs()


# For any spec that the API server would take

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@given(wanted=strategies.resources())
@settings(max_examples=50)
def test_each_object_is_valid(wanted: DisaggregatedInference) -> None:
    for obj in objects(wanted).values():
        kubernetes_validate.validate(obj, "1.37", strict=True)


@given(wanted=strategies.resources())
def test_names_and_labels_are_valid(wanted: DisaggregatedInference) -> None:
    for (kind, name), obj in objects(wanted).items():
        assert len(name) <= 63
        assert kind != "Service" or DNS_1035.fullmatch(name)
        for value in obj["metadata"]["labels"].values():
            assert len(value) <= 63
            assert LABEL_VALUE.fullmatch(value)


@given(wanted=strategies.resources())
def test_no_object_has_a_label_of_its_parent(wanted: DisaggregatedInference) -> None:
    for obj in objects(wanted).values():
        assert not [key for key in obj["metadata"]["labels"] if key.endswith("/instance")]


@given(wanted=strategies.raws())
def test_the_same_resource_becomes_the_same_objects(wanted: dict[str, Any]) -> None:
    assert json.dumps(list(objects(parse(wanted)).values())) == json.dumps(
        list(objects(parse(wanted)).values())
    )


@given(wanted=strategies.resources())
def test_each_deployment_selects_its_own_pods(wanted: DisaggregatedInference) -> None:
    for (kind, _), obj in objects(wanted).items():
        if kind == "Deployment":
            selector = obj["spec"]["selector"]["matchLabels"]
            assert obj["spec"]["template"]["metadata"]["labels"].items() >= selector.items()


@given(wanted=strategies.raws(), other=strategies.specs())
def test_pods_do_not_depend_on_counts_rollout_or_service(
    wanted: dict[str, Any], other: dict[str, Any]
) -> None:
    changed = overlaid(
        wanted, {"spec": {field: other[field] for field in ("rollout", "paused") if field in other}}
    )
    for role, fields in {
        "prefill": ("replicas", "autoscaling"),
        "decode": ("replicas", "autoscaling"),
        "router": ("replicas", "service"),
    }.items():
        moved = {field: other[role][field] for field in fields if field in other.get(role, {})}
        changed = overlaid(changed, {"spec": {role: moved}})
    assert pod_templates(parse(changed)) == pod_templates(parse(wanted))


@given(wanted=strategies.resources())
def test_a_role_has_an_autoscaler_or_a_count_but_never_both(wanted: DisaggregatedInference) -> None:
    made = objects(wanted)
    for role in (RoleName.PREFILL, RoleName.DECODE):
        name = f"{wanted.metadata.name}-{role}"
        scaled = ("HorizontalPodAutoscaler", name) in made
        # What is packed begins with the minimum of its autoscaler.
        is_packed = wanted.spec.topology_constraint is not None
        assert is_packed or not (scaled and "replicas" in made["Deployment", name]["spec"])
