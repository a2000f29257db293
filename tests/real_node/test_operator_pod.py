"""The operator as people run it: its image, in a pod, installed by helm, with no rights but the chart's."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from e2e.cluster import Cluster, CommandError, wait_until
from e2e.images import Image
from e2e.operator_process import CRD
from tests.real_node.release import OPERATOR, Object, Release, is_ready, name_of

SIMULATED = {"node.disagg.dev/kind": "simulated"}


@dataclass
class Model:
    """A resource that asks for GPUs, seen from its namespace."""

    cluster: Cluster
    namespace: str

    def kubectl(self, *arguments: str, input_text: str | None = None) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, input=input_text)

    def apply(self, *, prefill: int) -> None:
        resource = {
            "apiVersion": "disagg.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "metadata": {"name": "llama"},
            "spec": {
                "model": {"uri": "hf://a/b"},
                "engine": {"image": "vllm/vllm-openai:v0.32.0"},
                "prefill": {"replicas": prefill},
                "decode": {"replicas": 1},
                # It asks for no GPU, and its image is nowhere to be had: a simulated node runs it.
                "router": {"podTemplate": {"spec": {"nodeSelector": SIMULATED}}},
                "topologyConstraint": {"packDomain": "rack"},
            },
        }
        self.kubectl("apply", "-f", "-", input_text=json.dumps(resource))

    def wait_ready(self) -> None:
        self.kubectl("wait", "--for=condition=Ready", "dinf/llama", "--timeout=90s")

    def pods(self) -> dict[str, Object]:
        """The pods by uid."""
        own = "--selector=disagg.dev/name=llama"
        items = json.loads(self.kubectl("get", "pods", own, "--output=json"))["items"]
        return {item["metadata"]["uid"]: item for item in items}


@pytest.fixture(scope="module")
def namespace(real_cluster: Cluster) -> Iterator[str]:
    real_cluster.kubectl("create", "namespace", "serving")
    yield "serving"
    real_cluster.kubectl("delete", "namespace", "serving", "--wait=false")


@pytest.fixture
def model(real_cluster: Cluster, release: Release, namespace: str) -> Model:
    """It is ready, by the work of the operator's pod."""
    release.pod()
    real_cluster.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=60s")
    made = Model(real_cluster, namespace)
    made.apply(prefill=2)
    wait_until("there are pods", lambda: len(made.pods()) == 4)
    made.wait_ready()
    return made


@pytest.mark.real_node
def test_its_image_adds_less_than_150_mb_to_its_base(images: dict[str, Image]) -> None:
    assert images["operator"].added < 150e6


def test_the_pod_has_no_more_rights_than_it_needs(release: Release) -> None:
    assert release.pod()["spec"]["nodeName"] == "real"
    status = dict(line.split(":", 1) for line in release.run("cat", "/proc/1/status").splitlines())
    assert set(status["Uid"].split()) == {"65532"}
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    with pytest.raises(CommandError, match="Read-only file system"):
        release.run("touch", "/opt/disagg/new")


def test_its_probes_and_metrics_answer(release: Release) -> None:
    ask = (
        "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/{}', timeout=5).read().decode())"
    )
    assert release.run("python3", "-c", ask.format("readyz")).strip() == "ok"
    assert "disagg_operator_" in release.run("python3", "-c", ask.format("metrics"))
    assert '"starting"' in release.kubectl("logs", f"pod/{release.pod()['metadata']['name']}")


def test_a_gpu_resource_becomes_ready_on_the_racks(model: Model) -> None:
    nodes = [pod["spec"]["nodeName"] for pod in model.pods().values()]
    assert len(nodes) == 4
    assert all(node.startswith("gpu-r") for node in nodes)
    engines = {pod["spec"]["nodeName"][:6] for pod in model.pods().values() if "router" not in name_of(pod)}
    assert len(engines) == 1


def test_the_chart_gives_it_every_right_that_it_uses(model: Model) -> None:
    requests = list(model.cluster.audit().events(username=OPERATOR))
    assert any(request.is_write for request in requests)
    refused = [request for request in requests if request.code == 403]
    assert [(request.verb, request.path) for request in refused] == []


def test_when_its_pod_is_deleted_another_takes_over_and_nothing_restarts(
    release: Release, model: Model
) -> None:
    before, operator = set(model.pods()), release.pod()["metadata"]
    release.kubectl("delete", "pod", operator["name"], "--wait=false")
    wait_until("another pod is there", lambda: release.pod()["metadata"]["uid"] != operator["uid"])

    model.apply(prefill=3)
    wait_until("the new operator has scaled it", lambda: len(model.pods()) == 5)
    model.wait_ready()
    assert before <= set(model.pods())


def test_an_uninstall_leaves_serving_alone(release: Release, model: Model) -> None:
    before = model.pods()
    began = datetime.now(UTC)
    release.uninstall()
    wait_until("the operator is gone", lambda: not release.pods())
    assert model.kubectl("get", "dinf", "llama", "--output=name")
    assert model.kubectl("get", "service", "llama-router", "--output=name")
    assert {uid: is_ready(pod) for uid, pod in model.pods().items()} == dict.fromkeys(before, True)

    release.install()
    release.pod()
    events = model.cluster.audit().events(username=OPERATOR, verb="patch", since=began)
    reworked = {event.resource for event in events if event.resource == "deployments"}
    model.wait_ready()
    assert reworked == set()
    assert set(model.pods()) == set(before)


ENGINE = """\
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print("serving", flush=True)
http.server.HTTPServer(("", 8000), Handler).serve_forever()
"""


@pytest.mark.usefixtures("release")
def test_engines_that_need_no_gpu_run_in_containers(
    real_cluster: Cluster, images: dict[str, Image], namespace: str
) -> None:
    resource = {
        "apiVersion": "disagg.dev/v1alpha1",
        "kind": "DisaggregatedInference",
        "metadata": {"name": "cpu"},
        "spec": {
            "model": {"uri": "/models/tiny"},
            "engine": {"kind": "custom", "image": images["base"].ref, "args": ["python3", "-c", ENGINE]},
            "accelerator": {"perRank": 0},
            "prefill": {"replicas": 1},
            "decode": {"replicas": 1},
            "router": {"kind": "none"},
        },
    }
    model = Model(real_cluster, namespace)
    model.kubectl("apply", "-f", "-", input_text=json.dumps(resource))
    model.kubectl("wait", "--for=condition=Ready", "dinf/cpu", "--timeout=90s")
    pods = json.loads(model.kubectl("get", "pods", "-l", "disagg.dev/name=cpu", "--output=json"))["items"]
    assert [pod["spec"]["nodeName"] for pod in pods] == ["real", "real"]
    assert {model.kubectl("logs", name_of(pod)).splitlines()[0] for pod in pods} == {"serving"}
    model.kubectl("delete", "dinf", "cpu")
