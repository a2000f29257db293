"""What a resource is for: a prompt computed in one pod is answered by another, for each engine, as the operator renders it."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.images import Image
from tests.real_node.release import Release
from tests.real_node.serving import MODEL, Answer, Serving, chat, total

PATH = "/v1/chat/completions"
TOKENS = 64
BOOTSTRAP_PORT = 8998
FACTS = 80


@dataclass(frozen=True)
class Dialect:
    """An engine.

    Attributes:
        version: What engine.version says.
        alone: Command of one engine that does all by itself.
        metrics: Path of the metrics.
        finished: Metric that counts requests.
    """

    version: str
    alone: list[str]
    metrics: str
    finished: str


DIALECTS = {
    "vllm": Dialect(
        "0.33.0",
        ["vllm", "serve", "tiny/model", f"--served-model-name={MODEL}", "--port=8000"],
        "/metrics",
        "vllm:request_success_total",
    ),
    "sglang": Dialect(
        "0.5.23",
        [
            *("python3", "-m", "sglang.launch_server", "--model-path=tiny/model"),
            *(f"--served-model-name={MODEL}", "--host=0.0.0.0", "--port=8000"),
            # Pages as those of the pair: what the stand-in says follows from what is in them.
            "--page-size=64",
        ],
        "/metrics",
        "sglang:num_requests_total",
    ),
    "trtllm": Dialect(
        "1.2.0",
        ["trtllm-serve", "tiny/model", "--host=0.0.0.0", "--port=8000"],
        "/prometheus/metrics",
        "trtllm_request_success_total",
    ),
}


@dataclass
class Pair:
    """A resource that is ready, and an engine of the same kind that needs no other."""

    kind: str
    serving: Serving

    @property
    def router(self) -> str:
        return f"http://{self.kind}-router{PATH}"

    def host(self, role: str) -> str:
        return self.serving.address(self.kind, role)

    def alone(self, body: dict[str, Any]) -> Answer:
        pod = self.serving.kubectl("get", "pod", self.name_alone, "--output=jsonpath={.status.podIP}")
        return self.serving.ask(f"http://{pod}:8000{PATH}", body)

    @property
    def name_alone(self) -> str:
        return f"{self.kind}-alone"

    def metrics(self) -> dict[str, str]:
        """Metrics of prefill and decode."""
        path = DIALECTS[self.kind].metrics
        calls = [{"url": f"http://{self.host(role)}:8000{path}"} for role in ("prefill", "decode")]
        prefill, decode = self.serving.call(*calls)
        return {"prefill": prefill.text, "decode": decode.text}


@pytest.fixture(scope="module")
def serving(real_cluster: Cluster, images: dict[str, Image], operator: Release) -> Iterator[Serving]:
    """All pairs start at once."""
    operator.pod()
    made = Serving(real_cluster, images, "pairs")
    made.start()
    for kind, dialect in DIALECTS.items():
        resource = made.resource(kind, engine={"kind": kind, "version": dialect.version})
        if kind == "trtllm":
            # Its router is in the engine's image.
            del resource["spec"]["router"]["image"]
        made.apply(resource)
        made.run(f"{kind}-alone", images["engine-sim"], dialect.alone)
    made.wait_ready(*DIALECTS)
    yield made
    made.end()


@pytest.fixture(params=DIALECTS)
def pair(request: pytest.FixtureRequest, serving: Serving) -> Pair:
    return Pair(request.param, serving)


@pytest.fixture
def prompt() -> str:
    """One that no engine has seen before."""
    return " ".join(f"fact {random.randrange(10**6)}" for _ in range(FACTS))  # noqa: S311 - no secret


def test_tokens_stream_through_the_router_as_decode_says_them(pair: Pair, prompt: str) -> None:
    [answer] = pair.serving.call({"url": pair.router, "body": chat(prompt, tokens=TOKENS, stream=True)})
    assert answer.says == pair.alone(chat(prompt, tokens=TOKENS)).says
    assert len(answer.events) > TOKENS / 2
    # 6 ms a token, unless they came at once.
    assert answer.arrivals[-1] - answer.arrivals[0] > 0.003 * TOKENS


def test_prefill_ran_on_the_one_and_decode_on_the_other(pair: Pair, prompt: str) -> None:
    finished = DIALECTS[pair.kind].finished
    before = pair.metrics()
    assert pair.serving.ask(pair.router, chat(prompt, tokens=TOKENS)).status == 200
    after = pair.metrics()
    assert {role: total(after[role], finished) - total(before[role], finished) for role in after} == {
        "prefill": 1,
        "decode": 1,
    }


def by_hand_vllm(pair: Pair, body: dict[str, Any]) -> Answer:
    """Prefill first, decode with what it has said."""
    asked = {"do_remote_decode": True, "do_remote_prefill": False}
    first = pair.serving.ask(
        f"http://{pair.host('prefill')}:8000{PATH}",
        body | {"max_tokens": 1, "kv_transfer_params": asked},
    )
    offer = first.body["kv_transfer_params"]
    assert offer["remote_host"] == pair.host("prefill")
    return pair.serving.ask(f"http://{pair.host('decode')}:8000{PATH}", body | {"kv_transfer_params": offer})


def by_hand_sglang(pair: Pair, body: dict[str, Any]) -> Answer:
    """Both at once, who meet in a room."""
    room = {
        "bootstrap_host": pair.host("prefill"),
        "bootstrap_port": BOOTSTRAP_PORT,
        "bootstrap_room": random.getrandbits(62),
    }
    calls = [
        {"url": f"http://{pair.host(role)}:8000{PATH}", "body": body | room} for role in ("prefill", "decode")
    ]
    prefill, decode = pair.serving.call(*calls)
    assert prefill.status == 200, prefill.text
    return decode


def by_hand_trtllm(pair: Pair, body: dict[str, Any]) -> Answer:
    """Context first; generation goes on after its token."""
    asked = {"request_type": "context_only"}
    context = pair.serving.ask(
        f"http://{pair.host('prefill')}:8000{PATH}", body | {"disaggregated_params": asked}
    ).body
    offer = context["choices"][0]["disaggregated_params"] | {"request_type": "generation_only"}
    return pair.serving.ask(
        f"http://{pair.host('decode')}:8000{PATH}",
        body | {"disaggregated_params": offer, "prompt_token_ids": context["prompt_token_ids"]},
    )


BY_HAND: dict[str, Callable[[Pair, dict[str, Any]], Answer]] = {
    "vllm": by_hand_vllm,
    "sglang": by_hand_sglang,
    "trtllm": by_hand_trtllm,
}


def test_without_a_router_the_hops_lead_to_the_same_words(pair: Pair, prompt: str) -> None:
    body = chat(prompt, tokens=TOKENS)
    assert BY_HAND[pair.kind](pair, body).says == pair.alone(body).says


def test_decode_computes_nothing_of_a_prompt_that_it_has_pulled(serving: Serving, prompt: str) -> None:
    pair = Pair("vllm", serving)
    before = pair.metrics()
    usage = serving.ask(pair.router, chat(prompt, tokens=2)).body["usage"]
    after = pair.metrics()

    def more(role: str, name: str, **labels: str) -> float:
        return total(after[role], name, **labels) - total(before[role], name, **labels)

    computed, source = "vllm:prompt_tokens_by_source_total", "local_compute"
    assert more("prefill", computed, source=source) == usage["prompt_tokens"]
    # It computes the last token once more to begin with, and vLLM counts it as pulled all the same.
    assert more("decode", computed, source=source) == 0
    assert more("decode", "vllm:external_prefix_cache_hits_total") == usage["prompt_tokens"]
    assert more("decode", "vllm:nixl_bytes_transferred_sum") > 0


def test_the_log_of_an_engine_is_read_by_kubectl(pair: Pair) -> None:
    assert "Application startup complete" in pair.serving.logs(pair.serving.pod(pair.kind, "prefill"))
