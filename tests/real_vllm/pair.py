"""What a router does with a pair of vLLM pods, and the resource that they are rendered from."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from disagg.api.names import RoleName
from disagg.api.resource import DisaggregatedInference, parse
from e2e.real_vllm import Answer, Container, Installation, Network, Pod, containers
from tests.unit.resources import overlaid

Numbers = dict[str, str]
"""What was measured, by what it is: shown at the end of a run."""

CLAIM = "models"
"""PersistentVolumeClaim that holds the model."""
MODEL = "tiny-llama"
"""Its folder in it, and the name that requests ask for."""

_RESOURCE: dict[str, Any] = {
    "apiVersion": "disagg.dev/v1alpha1",
    "kind": "DisaggregatedInference",
    "metadata": {"name": "tiny", "namespace": "default"},
    "spec": {
        "model": {"uri": f"pvc://{CLAIM}/{MODEL}"},
        "engine": {
            "image": "vllm/vllm-openai-cpu:v0.32.0",
            # Two engines share few cores here: one thread each, wherever it may run.
            "env": [
                {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"},
                {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"},
                {"name": "OMP_NUM_THREADS", "value": "1"},
            ],
            "args": ["--enforce-eager", "--dtype=float32"],
        },
        "accelerator": {"perRank": 0},
        "kvTransfer": {"transport": "tcp"},
    },
}


def resource(**spec: object) -> DisaggregatedInference:
    """A pair on CPUs, with fields laid over its spec."""
    return parse(overlaid(_RESOURCE, {"spec": spec}))


@dataclass(frozen=True)
class Starter:
    """Starts pods.

    Attributes:
        network: Where they get their addresses.
        vllm: What their image has.
        claims: Name of a PersistentVolumeClaim -> the folder that stands for it.
        folder: Gets a folder for each pod.
    """

    network: Network
    vllm: Installation
    claims: Mapping[str, Path]
    folder: Path

    def __call__(self, role: str, wanted: DisaggregatedInference) -> Pod:
        """Start a resource's pod of a role, and leave it to the caller to wait for it."""
        return self.start(containers(wanted)[RoleName(role)])

    def start(self, container: Container) -> Pod:
        """Start a container."""
        folder = self.folder / f"{next(_pods)}-{container.name}"
        folder.mkdir()
        return Pod(self.network, container, self.vllm, claims=self.claims, folder=folder)


_numbers = count(1)
_pods = count(1)


def prompt(characters: int = 300) -> str:
    """A prompt that no pod has seen before, so that it is in nobody's prefix cache; each character is a token."""
    number = next(_numbers)
    draw = random.Random(number)  # noqa: S311 - the same in each run is what is wanted
    return f"{number} " + "".join(
        draw.choices(string.ascii_lowercase + " ", k=characters - len(f"{number} "))
    )


def request(text: str, tokens: int = 16) -> dict[str, Any]:
    """A client's request: the likeliest tokens, as many as asked for."""
    return {"model": MODEL, "prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def alone(pod: Pod, text: str, tokens: int = 16) -> str:
    """What an engine answers that does the whole request."""
    return text_of(pod.client.post("/v1/completions", request(text, tokens)))


def prefilled(pod: Pod, text: str, request_id: str = "") -> dict[str, Any]:
    """Let prefill compute a prompt's KV cache: the parameters by which decode gets it."""
    remote = dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port"))
    body = request(text, 1) | {
        "min_tokens": 1,
        "stream": False,
        "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False, **remote},
    }
    answer = pod.client.post("/v1/completions", body, {"X-Request-Id": request_id or _id(text)})
    assert answer.status == 200, answer
    return dict(answer.body["kv_transfer_params"])


def decoded(pod: Pod, text: str, parameters: Mapping[str, Any], tokens: int = 16) -> Answer:
    """Let decode answer with the KV cache that prefill has."""
    body = request(text, tokens) | {"kv_transfer_params": dict(parameters)}
    return pod.client.post("/v1/completions", body, {"X-Request-Id": _id(text)})


def transferred(prefill: Pod, decode: Pod, text: str, tokens: int = 16) -> Answer:
    """Both, one after the other, as a router does."""
    return decoded(decode, text, prefilled(prefill, text), tokens)


def text_of(answer: Answer) -> str:
    """The text of an answer that is one."""
    assert answer.status == 200, answer
    return str(answer.body["choices"][0]["text"])


def _id(text: str) -> str:
    return f"request-{text.split(' ', 1)[0]}"
