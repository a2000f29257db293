from __future__ import annotations

from typing import Any

import pytest
import typer

from disagg.cli import app
from disagg.topology.levels import PRESETS
from tests.chart.cases import EVERYTHING
from tests.chart.helm import Helm, Values


def test_pods_satisfy_the_restricted_pod_security_standard(helm: Helm) -> None:
    # https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    rendering = helm.template()
    pod, container = rendering.pod["spec"], rendering.container
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all("hostPort" not in port for port in container["ports"])
    assert all("emptyDir" in volume for volume in pod["volumes"])


def test_only_tmp_is_writable(helm: Helm) -> None:
    rendering = helm.template()
    assert rendering.container["securityContext"]["readOnlyRootFilesystem"] is True
    assert rendering.container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - in the container
    assert rendering.pod["spec"]["volumes"] == [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}]


def test_pods_do_not_learn_of_other_services(helm: Helm) -> None:
    assert helm.template().pod["spec"]["enableServiceLinks"] is False


def test_only_the_pods_get_the_token_of_the_service_account(helm: Helm) -> None:
    rendering = helm.template()
    assert rendering.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert rendering.pod["spec"]["automountServiceAccountToken"] is True


def test_default_arguments(helm: Helm) -> None:
    assert helm.template().container["args"] == [
        "operator",
        "--http-address=0.0.0.0:8080",
        "--workers=4",
        "--resync-seconds=300",
        "--topology-preset=generic",
        "--pod-group=auto",
        "--log-level=info",
        "--log-format=json",
    ]


def test_values_become_arguments(helm: Helm) -> None:
    assert helm.template(EVERYTHING).container["args"] == [
        "operator",
        "--http-address=0.0.0.0:8080",
        "--workers=16",
        "--resync-seconds=1000000",
        "--topology-preset=gke",
        "--topology-level=rack=example.com/rack",
        "--topology-level=zone=example.com/hall",
        "--pod-group=on",
        "--log-level=debug",
        "--log-format=text",
        "--leader-elect",
        "--verbose",
    ]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"operator": {"leaderElection": True}},
        {"rbac": {"scope": "namespaced"}, "watchNamespaces": ["a", "b"]},
        {"topology": {"levels": {"rack": "example.com/rack"}}, "placement": {"podGroup": "off"}},
        *({"topology": {"preset": preset}} for preset in PRESETS),
    ],
    ids=["defaults", "leader election", "two namespaces", "topology", *PRESETS],
)
def test_operator_accepts_the_arguments(helm: Helm, values: Values) -> None:
    name, *arguments = helm.template(values).container["args"]
    commands = typer.main.get_group(app).commands
    commands[name].make_context(name, arguments)


@pytest.mark.parametrize(
    ("mode", "argument"),
    [("auto", "auto"), ("on", "on"), ("off", "off"), (True, "on"), (False, "off")],
    ids=["auto", "on in quotes", "off in quotes", "on as YAML reads it", "off as YAML reads it"],
)
def test_mode_of_pod_groups_may_be_written_without_quotes(
    helm: Helm, mode: str | bool, argument: str
) -> None:
    assert f"--pod-group={argument}" in helm.template({"placement": {"podGroup": mode}}).container["args"]


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [
        ({}, []),
        ({"rbac": {"scope": "namespaced"}}, ["inference"]),
        ({"rbac": {"scope": "namespaced"}, "namespaceOverride": "elsewhere"}, ["elsewhere"]),
        ({"rbac": {"scope": "namespaced"}, "watchNamespaces": ["b", "a"]}, ["a", "b"]),
        ({"rbac": {"scope": "namespaced", "create": False}, "watchNamespaces": ["a"]}, ["a"]),
    ],
)
def test_operator_watches_the_namespaces_that_it_has_rights_in(
    helm: Helm, values: Values, namespaces: list[str]
) -> None:
    arguments = helm.template(values).container["args"]
    assert [argument for argument in arguments if argument.startswith("--namespace")] == [
        f"--namespace={namespace}" for namespace in namespaces
    ]


def test_operator_learns_its_name_and_namespace(helm: Helm) -> None:
    def field(path: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": path}}

    assert helm.template().container["env"] == [
        {"name": "POD_NAME", "valueFrom": field("metadata.name")},
        {"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")},
    ]


def test_probes_ask_the_port_that_the_operator_listens_on(helm: Helm) -> None:
    container = helm.template().container
    assert container["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    assert {name: container[name]["httpGet"] for name in container if name.endswith("Probe")} == {
        "startupProbe": {"path": "/healthz", "port": "http"},
        "livenessProbe": {"path": "/healthz", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
    }


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "disagg/disagg:0.1.0"),
        ({"tag": "main"}, "disagg/disagg:main"),
        ({"registry": "registry.example.com:5000"}, "registry.example.com:5000/disagg/disagg:0.1.0"),
        ({"repository": "mirror/operator", "tag": "2"}, "mirror/operator:2"),
        ({"digest": "sha256:" + "a" * 64}, "disagg/disagg@sha256:" + "a" * 64),
        ({"digest": "sha256:" + "a" * 64, "tag": "main"}, "disagg/disagg@sha256:" + "a" * 64),
    ],
    ids=["app version", "tag", "registry", "repository", "digest", "digest wins over tag"],
)
def test_image(helm: Helm, image: Values, expected: str) -> None:
    assert helm.template({"image": image}).container["image"] == expected


def test_two_operators_never_work_at_once_without_leader_election(helm: Helm) -> None:
    assert helm.template().one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_leader_election_allows_a_rolling_update(helm: Helm) -> None:
    strategy = helm.template({"operator": {"leaderElection": True}}).one("Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


@pytest.mark.parametrize(
    "key",
    [
        "affinity",
        "imagePullSecrets",
        "nodeSelector",
        "priorityClassName",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
    ],
)
def test_value_reaches_the_pod(helm: Helm, key: str) -> None:
    assert helm.template(EVERYTHING).pod["spec"][key] == EVERYTHING[key]


def test_security_contexts_add_to_the_defaults(helm: Helm) -> None:
    rendering = helm.template(EVERYTHING)
    assert rendering.pod["spec"]["securityContext"] == {
        "fsGroup": 1000,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert rendering.container["securityContext"]["runAsUser"] == 1000


def test_extras_come_after_the_charts_own(helm: Helm) -> None:
    rendering = helm.template(EVERYTHING)
    assert rendering.container["env"][-1] == EVERYTHING["extraEnv"][0]
    assert rendering.container["volumeMounts"][-1] == EVERYTHING["extraVolumeMounts"][0]
    assert rendering.pod["spec"]["volumes"][-1] == EVERYTHING["extraVolumes"][0]


def test_resources_can_be_set(helm: Helm) -> None:
    assert helm.template(EVERYTHING).container["resources"]["requests"]["cpu"] == 1


def test_metrics_service_selects_the_operators_pods(helm: Helm) -> None:
    rendering = helm.template({"metrics": {"service": {"enabled": True, "annotations": {"a": "b"}}}})
    service = rendering.one("Service")
    assert service["spec"]["selector"].items() <= rendering.pod["metadata"]["labels"].items()
    assert service["spec"]["ports"] == [
        {"name": "metrics", "port": 8080, "targetPort": "http", "protocol": "TCP"}
    ]
    assert service["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "disagg"),
        ({"name": "robot"}, "robot"),
        ({"create": False, "name": "robot"}, "robot"),
        ({"create": False}, "default"),
    ],
)
def test_pods_and_bindings_use_the_same_service_account(helm: Helm, values: Values, name: str) -> None:
    rendering = helm.template({"serviceAccount": values})
    assert rendering.pod["spec"]["serviceAccountName"] == name
    (subject,) = rendering.one("ClusterRoleBinding")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": name, "namespace": "inference"}
    accounts = [account["metadata"]["name"] for account in rendering.all("ServiceAccount")]
    assert accounts == ([] if values.get("create") is False else [name])
