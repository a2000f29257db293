"""Stand-ins of each engine, started with the arguments and environment that the operator renders, work as a pair.

Each has an address of its own, as a pod has, since both listen on the ports that are rendered.
"""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from disagg.api.names import RoleName
from disagg.build.engine_template import parts
from disagg.build.engines.engine import FILES_PATH
from e2e.cluster import wait_until
from e2e.cluster.cluster import REPOSITORY
from e2e.lifetime import bound
from e2e.real_vllm.client import Client
from e2e.real_vllm.container import Container, containers, environment
from e2e.real_vllm.network import Network
from tests.unit.resources import resource

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="addresses of their own need root")

Json = dict[str, Any]

PROMPT = "The quick brown fox jumps over the lazy dog. " * 12
SIM = ("--sim-time-scale=20", "--sim-load-seconds=0")
PORT = 8000
ENGINES: dict[str, Json] = {
    "vllm": {"engine": {"image": "vllm/vllm-openai:v0.33.0"}},
    "sglang": {
        "engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5.23"},
        "router": {"kind": "none"},
    },
    "trtllm": {"engine": {"kind": "trtllm", "image": "tensorrt-llm/release:1.2.0"}},
}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with Network(tmp_path_factory.mktemp("network")) as found:
        yield found


@dataclass(frozen=True)
class Pair:
    """Pods of a resource.

    Attributes:
        prefill: Asks the prefill pod.
        decode: Asks the decode pod.
        alone: Asks an engine that does the whole request.
    """

    prefill: Client
    decode: Client
    alone: Client


_PODS: tuple[tuple[RoleName | None, tuple[str, ...]], ...] = (
    (RoleName.PREFILL, ()),
    (RoleName.DECODE, ()),
    (None, ("--disaggregation-mode=null",)),
)
"""The pods of a pair, and an SGLang that stands alone."""


@contextmanager
def running(network: Network, engine: str, folder: Path) -> Iterator[Pair]:
    wanted = resource(**ENGINES[engine], accelerator={"perRank": 0}, kvTransfer={"transport": "tcp"})
    rendered = containers(wanted)
    with ExitStack() as stack:
        clients: dict[RoleName | None, Client] = {}
        for role, more in (
            (RoleName.PREFILL, ()),
            (RoleName.DECODE, ()),
            (None, ("--disaggregation-mode=null",)),
        ):
            of_role = role or RoleName.DECODE
            if role is None and engine != "sglang":
                # Decode of the others does a whole request by itself.
                clients[role] = clients[RoleName.DECODE]
                continue
            files = folder / str(role)
            files.mkdir()
            if (file := parts(wanted.spec, of_role).engine.config_file) is not None:
                (files / file.name).write_text(file.text)
            clients[role] = stack.enter_context(started(network, engine, rendered[of_role], files, more))
        yield Pair(clients[RoleName.PREFILL], clients[RoleName.DECODE], clients[None])


@contextmanager
def started(
    network: Network, engine: str, container: Container, files: Path, more: tuple[str, ...]
) -> Iterator[Client]:
    """A stand-in in the container's place: its command is the stand-in's, its files are in a folder of the test."""
    sandbox = network.sandbox(container.name)
    variables = environment(container, sandbox.address, str(Path(sys.executable).parent))
    # Of Python, which the image would have.
    variables |= {"PYTHONPATH": str(REPOSITORY / "operator")}
    arguments = [word.replace(FILES_PATH, str(files)) for word in container.arguments]
    process = [
        "env",
        "-i",
        *(f"{name}={value}" for name, value in variables.items()),
        *(sys.executable, "-m", "disagg.engine_sim", f"--dialect={engine}", *SIM, *arguments, *more),
    ]
    # As the kubelet writes it: an engine may look for its own address by its name.
    hosts = files / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{sandbox.address} {container.name}\n")
    script = f"mount --bind {shlex.quote(str(hosts))} /etc/hosts; exec {shlex.join(process)}"
    namespaces = [f"--{kind}=/proc/{sandbox.pid}/ns/{kind}" for kind in ("net", "uts")]
    command = ["nsenter", *namespaces, "unshare", "--mount", "sh", "-euc", script]
    log = files / "engine.log"
    with log.open("wb") as output:
        child = subprocess.Popen(bound(command), stdout=output, stderr=subprocess.STDOUT)
    client = Client(network, sandbox.address, PORT)

    def is_ready() -> bool:
        assert child.poll() is None, log.read_text()
        answer = client.get(container.ready_path)
        return answer is not None and answer.status == 200

    try:
        wait_until(f"{container.name} is ready", is_ready)
        yield client
    finally:
        child.kill()
        child.wait()


def body(**fields: Any) -> Json:
    return {"model": "llama", "prompt": PROMPT, "max_tokens": 24, "temperature": 0} | fields


def text(answer: Any) -> str:
    assert answer.status == 200, answer.body
    return str(answer.body["choices"][0]["text"])


def by_vllm(pair: Pair) -> str:
    to_prefill = {"do_remote_decode": True, "do_remote_prefill": False}
    first = pair.prefill.post("/v1/completions", body(max_tokens=1, kv_transfer_params=to_prefill))
    assert first.status == 200, first.body
    return text(
        pair.decode.post("/v1/completions", body(kv_transfer_params=first.body["kv_transfer_params"]))
    )


def by_sglang(pair: Pair) -> str:
    meeting = body(
        bootstrap_host=pair.prefill.address, bootstrap_port=8998, bootstrap_room=random.getrandbits(63)
    )
    with ThreadPoolExecutor(1) as pool:
        leg = pool.submit(pair.prefill.post, "/v1/completions", meeting)
        said = text(pair.decode.post("/v1/completions", meeting))
        assert leg.result().status == 200
    return said


def by_trtllm(pair: Pair) -> str:
    context = {"request_type": "context_only"}
    first = pair.prefill.post("/v1/completions", body(disaggregated_params=context))
    assert first.status == 200, first.body
    handed: Mapping[str, Any] = first.body["choices"][0]["disaggregated_params"]
    generation = dict(handed) | {"request_type": "generation_only"}
    prompt = first.body["prompt_token_ids"]
    return text(pair.decode.post("/v1/completions", body(prompt=prompt, disaggregated_params=generation)))


BY: dict[str, Callable[[Pair], str]] = {"vllm": by_vllm, "sglang": by_sglang, "trtllm": by_trtllm}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pair_as_rendered_says_what_one_engine_says(network: Network, engine: str, tmp_path: Path) -> None:
    with running(network, engine, tmp_path) as pair:
        said = BY[engine](pair)
        assert said == text(pair.alone.post("/v1/completions", body()))
        assert said
