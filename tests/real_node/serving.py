"""A namespace with resources, engines of no resource, and a pod to call them from."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from e2e.cluster import Cluster, wait_until
from e2e.images import Image
from tests.real_node.release import Object, is_ready, name_of

MODEL: Final = "model"
"""Name that requests ask for."""
CLIENT: Final = "client"
SIM_ARGS: Final = "--sim-profile qwen3-0.6b-l4 --sim-mean-tokens 0"
"""A token takes 6 ms, and answers end by their length."""
READ_ONLY: Final = {"readOnlyRootFilesystem": True}

_SCRIPT: Final = Path(__file__).with_name("client_script.py").read_text()
_SAMPLE: Final = re.compile(r"^([a-z_:]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What came back of a call.

    Attributes:
        status: HTTP status; 0 if the connection broke.
        text: Body, as it is.
        arrivals: When each event of a stream came, in seconds from the call.
        headers: Names in lower case.
    """

    status: int
    text: str
    arrivals: list[float]
    headers: dict[str, str]

    @property
    def body(self) -> Any:  # noqa: ANN401 - JSON
        assert self.status == 200, f"{self.status}: {self.text}"
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """Events of a stream that is whole."""
        assert self.status == 200, f"{self.status}: {self.text}"
        lines = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: ")]
        assert lines[-1:] == ["[DONE]"], self.text[-500:]
        return [json.loads(line) for line in lines[:-1]]

    @property
    def says(self) -> str:
        """The words of a chat completion, whether it is a stream or not."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            choices = [event["choices"][0] for event in self.events if event["choices"]]
            return "".join(choice["delta"].get("content") or "" for choice in choices)
        return str(self.body["choices"][0]["message"]["content"])


def chat(prompt: str, *, tokens: int, **fields: object) -> dict[str, Any]:
    """A chat completion of so many tokens."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        **fields,
    }


def total(metrics: str, name: str, **labels: str) -> float:
    """Sum over the samples of a metric with these labels."""
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    return sum(
        float(value)
        for found, has, value in _SAMPLE.findall(metrics)
        if found == name and wanted <= set(has.split(","))
    )


@dataclass
class Serving:
    """A namespace."""

    cluster: Cluster
    images: Mapping[str, Image]
    namespace: str
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))

    def kubectl(self, *arguments: str, input_text: str | None = None) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, input=input_text)

    def start(self) -> None:
        """Make the namespace, and the pod to call from."""
        self.cluster.kubectl("create", "namespace", self.namespace)
        self.run(CLIENT, self.images["base"], ["sleep", "infinity"])
        self.kubectl("wait", "--for=condition=Ready", f"pod/{CLIENT}", "--timeout=60s")

    def end(self) -> None:
        # First: of what is in a namespace that goes, an operator may not even tell.
        self.kubectl("delete", "dinf", "--all", "--timeout=60s")
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def run(self, name: str, image: Image, command: list[str]) -> None:
        """A pod of nobody's."""
        container = {
            "name": name,
            "image": image.ref,
            "command": command,
            "env": [{"name": "DISAGG_SIM_ARGS", "value": SIM_ARGS}],
        }
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def apply(self, *objects: Object) -> None:
        manifest = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", input_text=json.dumps(manifest))

    def wait_ready(self, *names: str, seconds: int = 120) -> None:
        for name in names:
            self.kubectl("wait", "--for=condition=Ready", f"dinf/{name}", f"--timeout={seconds}s")

    def pods(self, name: str, role: str) -> list[Object]:
        labels = f"--selector=disagg.dev/name={name},disagg.dev/role={role}"
        found: list[Object] = json.loads(self.kubectl("get", "pods", labels, "--output=json"))["items"]
        return found

    def pod(self, name: str, role: str) -> Object:
        """The only pod of a role, once it is ready."""

        def only_ready() -> Object:
            pods = self.pods(name, role)
            return pods[0] if len(pods) == 1 and is_ready(pods[0]) else {}

        return wait_until(f"one {role} pod of {name} is ready", only_ready)

    def address(self, name: str, role: str) -> str:
        ip: str = self.pod(name, role)["status"]["podIP"]
        return ip

    def condition(self, name: str, kind: str) -> dict[str, str]:
        """A condition of a resource, or one without a status."""
        status = json.loads(self.kubectl("get", "dinf", name, "--output=json")).get("status", {})
        found: dict[str, str] = {"status": "", "reason": "", "message": ""}
        for condition in status.get("conditions", []):
            if condition["type"] == kind:
                found |= condition
        return found

    def logs(self, pod: Object, *options: str) -> str:
        return self.kubectl("logs", name_of(pod), *options)

    def call(self, *calls: Mapping[str, Any]) -> list[Answer]:
        """Make calls, all at once, from the pod of this namespace."""
        command = ("exec", CLIENT, "--", "python3", "-c", _SCRIPT, json.dumps(calls))
        return [Answer(**answer) for answer in json.loads(self.kubectl(*command))]

    def ask(self, url: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Make one call."""
        return self.call({"url": url, "body": body})[0]

    def load(self, url: str, body: Mapping[str, Any], *, streams: int) -> Future[list[Answer]]:
        """Make the same call again and again, so many at once, until `rest`."""
        return self.threads.submit(self.call, {"url": url, "body": body, "streams": streams})

    def rest(self, answers: Future[list[Answer]]) -> list[Answer]:
        """End a load; returns all of its answers."""
        self.kubectl("exec", CLIENT, "--", "touch", "/tmp/stop")  # noqa: S108 - in its container
        return answers.result(120)

    @contextmanager
    def under_load(self, url: str, body: Mapping[str, Any], *, streams: int) -> Iterator[list[Answer]]:
        """Make the same call again and again, so many at once; the answers are there at the end."""
        answers = list[Answer]()
        load = self.load(url, body, streams=streams)
        try:
            yield answers
        finally:
            answers += self.rest(load)

    def resource(self, name: str, *, engine: Object | None = None, **spec: object) -> Object:
        """A resource whose engine is the stand-in, small, and as locked up as it can be."""
        env = [{"name": "DISAGG_SIM_ARGS", "value": SIM_ARGS}]
        role = {
            "replicas": 1,
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "2Gi"}},
            "podTemplate": _with_security("engine"),
        }
        router = {"podTemplate": _with_security("router"), "image": self.images["router"].ref}
        return {
            "apiVersion": "disagg.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "metadata": {"name": name},
            "spec": {
                "model": {"uri": "hf://tiny/model"},
                "engine": {"image": self.images["engine-sim"].ref, "env": env} | (engine or {}),
                "accelerator": {"perRank": 0},
                "kvTransfer": {"transport": "tcp"},
                "prefill": role,
                "decode": role,
                "router": router,
            }
            | spec,
        }


def _with_security(container: str) -> Object:
    return {"spec": {"containers": [{"name": container, "securityContext": READ_ONLY}]}}


def failed(answers: Iterable[Answer], *, events: int) -> list[Answer]:
    """Streams that are not whole, or shorter than so many events."""
    return [
        answer
        for answer in answers
        if answer.status != 200 or "[DONE]" not in answer.text or len(answer.arrivals) < events
    ]
