"""The chart on a real API server, which is this module's own: the CRD and the ClusterRoles are there only once."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster, CommandError, Options
from tests.chart.helm import CHART, ROOT, Object
from tests.chart.test_notes import resource_in

CRD = "disaggregatedinferences.disagg.dev"
CLUSTER_WIDE = "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding"
PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster") / "state", Options()) as running:
        yield running


@dataclass
class Release:
    """The release `disagg` in a namespace of its own."""

    cluster: Cluster
    namespace: str

    def install(self, *arguments: str, chart: Path = CHART) -> str:
        return self._change("install", chart, arguments)

    def upgrade(self, *arguments: str, chart: Path = CHART) -> str:
        return self._change("upgrade", chart, arguments)

    def uninstall(self) -> None:
        self.cluster.helm(
            "uninstall", "disagg", "--namespace", self.namespace, "--wait", "--ignore-not-found"
        )

    def kubectl(self, *arguments: str, input_text: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, input=input_text)

    def get(self, *arguments: str) -> Object:
        obj: Object = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return obj

    def exists(self, *arguments: str) -> bool:
        return bool(self.kubectl("get", *arguments, "--ignore-not-found").strip())

    def names(self, kind: str) -> list[str]:
        """Names of the objects of a kind that belong to this release, in all namespaces."""
        items = self.get(kind, "--all-namespaces", "--selector=app.kubernetes.io/instance=disagg")["items"]
        return [item["metadata"]["name"] for item in items]

    def wait_until_served(self) -> None:
        """Wait until the API server answers requests for the resource."""
        self.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=60s")
        eventually(self._is_served)

    def delete_crd(self) -> None:
        if not self.exists("crd", CRD):
            return
        # To delete a CRD the API server lists the instances. If its storage has not been read before, that fails, and
        # it tries again after ever longer pauses, up to minutes: keep reading.
        self.wait_until_served()
        self.kubectl("delete", "crd", CRD, "--wait=false")
        eventually(lambda: not self._is_served() and not self.exists("crd", CRD))

    def create_resource(self) -> None:
        self.wait_until_served()
        resource = {
            "apiVersion": "disagg.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "metadata": {"name": "llama"},
            "spec": {"model": {"uri": "hf://a/b"}, "engine": {"image": "vllm"}},
        }
        self.kubectl("create", "-f", "-", input_text=json.dumps(resource))

    @property
    def robot(self) -> str:
        """The operator, as a user."""
        return f"system:serviceaccount:{self.namespace}:disagg"

    def may(self, user: str, *arguments: str) -> bool:
        try:
            self.kubectl("auth", "can-i", *arguments, f"--as={user}")
        except CommandError as refusal:
            if refusal.stdout.strip() != "no":
                raise
            return False
        return True

    def _is_served(self) -> bool:
        try:
            self.kubectl("get", CRD, "--all-namespaces")
        except CommandError:
            return False
        return True

    def _change(self, verb: str, chart: Path, arguments: tuple[str, ...]) -> str:
        return self.cluster.helm(verb, "disagg", str(chart), "--namespace", self.namespace, *arguments)


@pytest.fixture
def release(cluster: Cluster, namespace: str) -> Iterator[Release]:
    release = Release(cluster, namespace)
    yield release
    release.uninstall()
    release.delete_crd()


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A copy of the chart that a test may change."""
    return shutil.copytree(CHART, tmp_path / "disagg")


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def add_field(chart: Path, name: str) -> None:
    """Give the spec of the CRD in `chart` another field."""
    file = chart / "files" / "crds" / "disagg.dev_disaggregatedinferences.yaml"
    crd: Any = yaml.safe_load(file.read_text())
    (version,) = crd["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][name] = {"type": "string"}
    file.write_text(yaml.safe_dump(crd))


def test_install_succeeds_once_the_operator_is_ready(release: Release) -> None:
    release.install("--wait", "--timeout=60s")
    assert release.get("deployment", "disagg")["status"]["readyReplicas"] == 1


def test_operator_runs_where_pod_security_is_restricted(release: Release) -> None:
    release.kubectl("label", "namespace", release.namespace, "pod-security.kubernetes.io/enforce=restricted")
    release.install("--wait", "--timeout=60s")
    assert release.get("deployment", "disagg")["status"]["readyReplicas"] == 1


def test_resource_of_the_notes_is_accepted(release: Release) -> None:
    notes = release.install()
    release.wait_until_served()
    release.kubectl("apply", "-f", "-", input_text=yaml.safe_dump(resource_in(notes)))
    assert "hf://Qwen/Qwen3-0.6B" in release.kubectl("get", "dinf")


def test_upgrade_to_the_same_values_changes_nothing(release: Release) -> None:
    def objects() -> list[Object]:
        kinds = f"deployment,crd,serviceaccount,{CLUSTER_WIDE}"
        found: list[Object] = release.get(kinds, "--selector=helm.sh/chart")["items"]
        for obj in found:
            if obj["kind"] == "ValidatingAdmissionPolicy":
                # Kubernetes applies its status: Helm's next apply sorts the managers anew, which is a new version.
                del obj["metadata"]["resourceVersion"]
        return found

    release.install("--wait", "--timeout=60s")
    checked = "--for=jsonpath={.status.observedGeneration}=1"
    for policy in ("disagg-pod-labels", "disagg-pod-deletion"):
        release.kubectl("wait", checked, f"validatingadmissionpolicy/{policy}", "--timeout=60s")
    before = objects()
    release.upgrade()
    assert len(before) == 12
    assert objects() == before


def test_upgrade_changes_the_served_schema(release: Release, chart: Path) -> None:
    def spec_with_the_field() -> Object:
        change = '{"spec": {"fromTheNextRelease": "x"}}'
        answer = release.kubectl(
            "patch", "dinf", "llama", "--type=merge", f"--patch={change}", "--dry-run=server", "--output=json"
        )
        return dict(json.loads(answer)["spec"])

    release.install()
    release.create_resource()
    assert "fromTheNextRelease" not in spec_with_the_field()
    add_field(chart, "fromTheNextRelease")
    release.upgrade(chart=chart)
    eventually(lambda: "fromTheNextRelease" in spec_with_the_field())


def test_uninstall_keeps_the_crd_and_the_resources(release: Release) -> None:
    release.install()
    release.create_resource()
    release.uninstall()
    assert release.exists("dinf", "llama")
    assert release.names("deployment,serviceaccount") == []
    assert release.names(CLUSTER_WIDE) == []


def test_reinstall_adopts_the_crd_that_an_uninstall_kept(release: Release, chart: Path) -> None:
    release.install()
    release.create_resource()
    release.uninstall()
    add_field(chart, "fromTheNextRelease")
    release.install(chart=chart)
    assert "fromTheNextRelease" in release.kubectl("get", "crd", CRD, "--output=yaml")
    assert release.exists("dinf", "llama")


def test_uninstall_deletes_the_crd_if_told_so(release: Release) -> None:
    release.install("--set", "crds.keep=false")
    release.wait_until_served()
    release.uninstall()
    assert not release.exists("crd", CRD)


def test_crd_stays_when_the_release_gives_it_up(release: Release) -> None:
    release.install()
    release.create_resource()
    release.upgrade("--set", "crds.enabled=false")
    assert release.exists("dinf", "llama")


def test_crd_of_somebody_else_is_not_overwritten(release: Release) -> None:
    release.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    with pytest.raises(CommandError, match="exists and cannot be imported"):
        release.install()


def test_crd_of_somebody_else_is_taken_over_on_request(release: Release, chart: Path) -> None:
    release.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    add_field(chart, "fromTheNextRelease")
    # kubectl owns the fields that differ.
    release.install("--take-ownership", "--force-conflicts", chart=chart)
    assert "fromTheNextRelease" in release.kubectl("get", "crd", CRD, "--output=yaml")


def test_crd_can_be_installed_apart_from_the_operator(release: Release) -> None:
    crd = release.cluster.helm("template", str(CHART), "--show-only", "templates/crds.yaml")
    release.kubectl("apply", "--server-side", "-f", "-", input_text=crd)
    release.install("--set", "crds.enabled=false")
    release.create_resource()


def test_leader_election_can_be_turned_on_and_off(release: Release) -> None:
    release.install()
    release.upgrade("--set", "operator.leaderElection=true", "--set", "replicaCount=2")
    assert release.get("deployment", "disagg")["spec"]["strategy"]["type"] == "RollingUpdate"
    release.upgrade("--set", "operator.leaderElection=false", "--set", "replicaCount=1")
    assert release.get("deployment", "disagg")["spec"]["strategy"] == {"type": "Recreate"}


def test_misspelt_volume_source_is_refused_by_the_api_server(release: Release) -> None:
    with pytest.raises(CommandError, match="emptyDirr"):
        release.install("--set-json", 'extraVolumes=[{"name": "cache", "emptyDirr": {}}]')


def test_operator_may_give_routers_their_rights(release: Release) -> None:
    release.install()
    operator = f"--as={release.robot}"
    release.kubectl("create", "role", "router", "--verb=get,list,watch", "--resource=pods", operator)
    release.kubectl("create", "rolebinding", "router", "--role=router", "--serviceaccount=a:b", operator)
    assert release.exists("rolebinding", "router")


def test_operator_may_give_nobody_rights_that_it_lacks(release: Release) -> None:
    release.install()
    with pytest.raises(CommandError, match="attempting to grant RBAC permissions not currently held"):
        release.kubectl(
            "create", "role", "thief", "--verb=get", "--resource=secrets", f"--as={release.robot}"
        )


@pytest.mark.parametrize(
    "denied",
    [
        ("patch", f"{CRD}/llama"),
        ("update", f"{CRD}/llama", "--subresource=finalizers"),
        ("get", "secrets"),
        ("create", "pods"),
        ("update", "pods"),
        ("patch", "pods", "--subresource=status"),
        ("patch", "nodes"),
        ("patch", "crd"),
        ("create", "leases"),
    ],
    ids=" ".join,
)
def test_operator_may_not(release: Release, denied: tuple[str, ...]) -> None:
    release.install()
    assert not release.may(release.robot, *denied)


def test_operator_may_use_its_lease_and_no_other(release: Release) -> None:
    release.install("--set", "operator.leaderElection=true")
    assert release.may(release.robot, "create", "leases")
    assert release.may(release.robot, "update", "leases/disagg-operator")
    assert not release.may(release.robot, "update", "leases/other")
    assert not release.may(release.robot, "update", "leases/disagg-operator", "--namespace=kube-system")


@pytest.mark.parametrize(
    ("role", "allowed", "denied"),
    [("view", "list", "create"), ("edit", "create", None), ("admin", "deletecollection", None)],
)
def test_user_with_the_built_in_role_may(
    release: Release, role: str, allowed: str, denied: str | None
) -> None:
    release.install()
    release.kubectl("create", "rolebinding", role, f"--clusterrole={role}", "--user=jane")
    eventually(lambda: release.may("jane", allowed, CRD))
    assert denied is None or not release.may("jane", denied, CRD)


def test_namespaced_scope_works_in_its_namespace_alone(release: Release) -> None:
    release.install("--set", "rbac.scope=namespaced")
    assert release.may(release.robot, "create", "deployments")
    assert not release.may(release.robot, "create", "deployments", "--namespace=default")
    assert not release.may(release.robot, "list", CRD, "--all-namespaces")
    assert release.may(release.robot, "list", "pods")
    assert not release.may(release.robot, "patch", "pods")
    assert not release.may(release.robot, "list", "nodes")


def test_namespaced_scope_without_crd_makes_nothing_cluster_wide(release: Release) -> None:
    release.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    release.install("--set", "rbac.scope=namespaced", "--set", "crds.enabled=false")
    assert release.names(f"{CLUSTER_WIDE},crd") == []


def test_namespaced_scope_is_installed_by_an_admin_of_the_namespace(release: Release) -> None:
    release.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    # Nobody may grant what they lack: the built-in role covers all but the rights on our kind.
    own: Object = {
        "kind": "Role",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "installer"},
    }
    own["rules"] = [
        {
            "apiGroups": ["disagg.dev"],
            "resources": ["disaggregatedinferences"],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": ["disagg.dev"], "resources": ["disaggregatedinferences/status"], "verbs": ["patch"]},
    ]
    release.kubectl("create", "-f", "-", input_text=json.dumps(own))
    release.kubectl("create", "rolebinding", "installer", "--role=installer", "--user=jane")
    release.kubectl("create", "rolebinding", "admin", "--clusterrole=admin", "--user=jane")
    settings = "rbac.scope=namespaced,crds.enabled=false,operator.leaderElection=true"
    release.install("--kube-as-user=jane", "--set", settings)
    assert release.exists("deployment", "disagg")
