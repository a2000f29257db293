"""Plays the other demo: pods that run, on a node of this machine, with a stand-in for the engine."""

import json
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from e2e.cluster import Cluster, ClusterError, CommandError, WaitError
from e2e.cluster.cluster import REPOSITORY
from e2e.cluster.node.machine import ensure_packages
from e2e.demo.steps import step
from e2e.demo.story import python
from e2e.images import Image, build
from e2e.operator_process import install_operator

EXAMPLE: Final = REPOSITORY / "examples" / "engine-sim.yaml"
NAMESPACE: Final = "inference"
RESOURCE: Final = "chat"
QUESTION: Final = "Why does an answer begin late and then come fast?"
TOKENS: Final = 80

_IMAGES: Final = ("operator", "engine-sim", "router")
_POLL_SECONDS: Final = 0.5
_ENGINE_PORT: Final = 8000


class Pods:
    """The demo on one cluster, which has a real node.

    Args:
        cluster: Where it plays; it need not run yet.
        console: Where it is told.
    """

    def __init__(self, cluster: Cluster, console: Console) -> None:
        self._cluster = cluster
        self._console = console

    def play(self, *, seconds: float) -> None:
        """Bring everything up, apply the example, and ask it something. All of it stays up.

        Args:
            seconds: How long the resource may take.

        Raises:
            ClusterError: If something does not work, or the resource is not ready in time.
        """
        ensure_packages(self._console)
        images = self._images()
        with step(self._console, "cluster", "control plane, simulated nodes and a real one") as done:
            self._cluster.up()
            for image in images.values():
                self._cluster.load_image(image.archive)
            done(f"{self._cluster.server}, with a real node that has the images")
        with step(self._console, "chart", "helm install disagg charts/disagg --wait") as done:
            install_operator(self._cluster, images["operator"])
            done("helm install disagg charts/disagg; the operator is a pod, with the rights of the chart")
        with step(self._console, "resource", "kubectl apply") as done:
            self._apply(images)
            done(f"kubectl apply -f {EXAMPLE.relative_to(REPOSITORY)}, with the images just built")
        with step(self._console, "ready", "kubectl wait --for=condition=Ready") as done:
            self._wait(seconds)
            done(self._kubectl("get", "dinf", RESOURCE, "--no-headers").strip())
        self._ask()
        self._tell_who_worked()

    def objects(self) -> str:
        """The objects, as kubectl shows them."""
        pods = "--output=custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,IP:.status.podIP,PHASE:.status.phase"
        tables = (("dinf", "--output=wide"), ("deployments",), ("services",), ("pods", pods))
        return "\n".join(self._kubectl("get", *table) for table in tables)

    def commands(self, where: str) -> dict[str, str]:
        """What to try next, as shell commands for the root of the repository.

        Args:
            where: Options that name the cluster, such as `--name pods`.

        Returns:
            Command by what it does.
        """
        kubectl = f"{python()} -m e2e.cluster kubectl {where} -n {NAMESPACE}"
        crash = {"spec": {"decode": {"args": ["--no-such-flag"]}}}
        return {
            "ask it something": f"{python()} -m e2e.cluster enter {where} {shlex.join(self._question())}",
            "read an engine's log": f"{kubectl} logs -l disagg.dev/role=decode --tail 20",
            "break a rollout of decode: what is old goes on answering": f"{kubectl} patch dinf {RESOURCE}"
            f" --type merge --patch {shlex.quote(json.dumps(crash))}",
            "read why it is not ready": f"{kubectl} describe dinf {RESOURCE}",
        }

    def _images(self) -> dict[str, Image]:
        images = dict[str, Image]()
        for name in _IMAGES:
            with step(self._console, "image", f"buildah build images/{name}") as done:
                images[name] = build(name)
                done(images[name].summary)
        return images

    def _apply(self, images: dict[str, Image]) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self._cluster.kubectl("apply", "--filename=-", input=json.dumps(namespace))
        self._kubectl("apply", "--filename=-", stdin=yaml.safe_dump(with_images(EXAMPLE, images)))

    def _wait(self, seconds: float) -> None:
        """Wait until the resource is ready, and tell each change of its condition."""
        began, told = time.monotonic(), ""
        while True:
            ready = self._ready()
            if ready["status"] == "True":
                return
            if ready["message"] != told:
                told = ready["message"]
                self._say(f"{time.monotonic() - began:5.1f} s  {ready['reason']}: {told}")
            if time.monotonic() - began > seconds:
                raise WaitError(f"{RESOURCE} is not ready after {seconds:.0f} s: {told}")
            time.sleep(_POLL_SECONDS)

    def _ready(self) -> dict[str, str]:
        resource = json.loads(self._kubectl("get", "dinf", RESOURCE, "--output=json"))
        conditions = resource.get("status", {}).get("conditions", [])
        found = next((item for item in conditions if item["type"] == "Ready"), None)
        return found or {"status": "Unknown", "reason": "no status yet", "message": ""}

    def _question(self) -> list[str]:
        """A streamed chat completion, by curl, from where the cluster's Services can be reached."""
        address = self._kubectl("get", "service", f"{RESOURCE}-router", "--output=jsonpath={.spec.clusterIP}")
        body = {
            "model": RESOURCE,
            "stream": True,
            "max_tokens": TOKENS,
            "messages": [{"role": "user", "content": QUESTION}],
        }
        url = f"http://{address}/v1/chat/completions"
        return ["curl", "-sN", url, "-H", "Content-Type: application/json", "-d", json.dumps(body)]

    def _ask(self) -> None:
        """Ask, and show the words as they come: the engine is a stand-in, so they mean nothing."""
        command = self._question()
        self._say(f"$ {shlex.join(command)}")
        began, first = time.monotonic(), None
        with subprocess.Popen(
            self._cluster.client_command(*command), stdout=subprocess.PIPE, text=True
        ) as asked:
            lines = list[str]()
            for line in asked.stdout or ():
                lines.append(line)
                if word := word_of(line):
                    first = first or time.monotonic() - began
                    self._console.print(word, end="", markup=False, highlight=False, style="green")
        self._console.print()
        if first is None:
            raise ClusterError(f"no token came back: {''.join(lines) or 'nothing did'}")
        self._say(f"time to first token {first * 1000:.0f} ms, all of it {time.monotonic() - began:.1f} s")

    def _tell_who_worked(self) -> None:
        for role, metric, what in (
            ("prefill", "vllm:prompt_tokens_total", "prompt tokens computed"),
            ("decode", "vllm:generation_tokens_total", "tokens generated"),
        ):
            amounts = {name: self._metric(address, metric) for name, address in self._addresses(role).items()}
            told = ", ".join(f"{amount:.0f} by {name}" for name, amount in amounts.items() if amount)
            self._say(f"{role}: {what}: {told or 'none'}")

    def _addresses(self, role: str) -> dict[str, str]:
        selector = f"--selector=disagg.dev/name={RESOURCE},disagg.dev/role={role}"
        pods = json.loads(self._kubectl("get", "pods", selector, "--output=json"))["items"]
        return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}

    def _metric(self, address: str, name: str) -> float:
        command = self._cluster.client_command(
            "curl", "-sf", "--max-time", "10", f"http://{address}:{_ENGINE_PORT}/metrics"
        )
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        if asked.returncode:
            raise CommandError(("curl",), asked.returncode, asked.stdout, asked.stderr)
        families = text_string_to_metric_families(asked.stdout)
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._cluster.kubectl(f"--namespace={NAMESPACE}", *arguments, input=stdin)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def with_images(example: Path, images: dict[str, Image]) -> dict[str, Any]:
    """An example, with images that are on the node."""
    resource: dict[str, Any] = yaml.safe_load(example.read_text())
    resource["spec"]["engine"]["image"] = images["engine-sim"].ref
    resource["spec"]["router"] = {"image": images["router"].ref}
    return resource


def word_of(line: str) -> str:
    """What a line of a streamed chat completion adds to the answer; "" if nothing."""
    data = line.removeprefix("data: ").strip()
    if data == line.strip() or data == "[DONE]":
        return ""
    choices = json.loads(data).get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")
