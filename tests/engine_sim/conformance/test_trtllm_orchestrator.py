"""`trtllm-serve disaggregated`: TensorRT-LLM's own router."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from tests.engine_sim.conformance.trtllm import (
    MODEL,
    SIM,
    Orchestrator,
    completion,
    config,
    exit_of,
    start,
    written,
)
from tests.engine_sim.processes import DEADLINE, Engine, Engines, eventually

WORDS = "the cache of a network is a place for all the blocks that a request may want again "


class Group:
    """Workers and the orchestrator before them."""

    def __init__(self, engines: Engines, contexts: int, generations: int, *arguments: str) -> None:
        self.contexts = [
            start(engines, config("context", perf_metrics_max_requests=99)) for _ in range(contexts)
        ]
        self.generations = [start(engines, config(perf_metrics_max_requests=99)) for _ in range(generations)]
        self.router = engines.keep(Orchestrator(engines, self.contexts, self.generations, *arguments))
        for engine in (*self.contexts, *self.generations, self.router):
            engine.ready()

    def served(self) -> list[list[int]]:
        """Requests of each worker since the last time."""
        return [
            [len(engine.get("/perf_metrics").body) for engine in side]
            for side in (self.contexts, self.generations)
        ]


@pytest.fixture(scope="module")
def group(shared_engines: Engines) -> Group:
    return Group(shared_engines, 2, 2)


def single(group: Group, prompt: Any, **fields: Any) -> str:
    """What one engine alone says."""
    text = group.generations[0].post("/v1/completions", completion(prompt, **fields)).text
    group.served()
    return text


# Requests.


def test_each_role_has_its_part_of_a_request_in_turn(group: Group) -> None:
    whole = single(group, WORDS, ignore_eos=True)
    replies = [group.router.post("/v1/completions", completion(WORDS, ignore_eos=True)) for _ in range(4)]
    assert [(reply.status, reply.text) for reply in replies] == [(200, whole)] * 4
    assert group.served() == [[2, 2], [2, 2]]
    assert all(engine.state()["leases"] == 0 for engine in group.contexts)


def test_a_stream(group: Group) -> None:
    whole = single(group, WORDS * 2)
    events = group.router.stream("/v1/completions", completion(WORDS * 2))
    assert (events.text, events.done) == (whole, True)


def test_a_chat(group: Group) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": WORDS}], "max_tokens": 9}
    whole = group.generations[0].post("/v1/chat/completions", body).text
    assert group.router.post("/v1/chat/completions", body).text == whole
    events = group.router.stream("/v1/chat/completions", body)
    said = [choice["delta"]["content"] for chunk in events.chunks for choice in chunk["choices"]]
    assert "".join(said) == whole


def test_a_list_of_one_prompt_is_that_prompt(group: Group) -> None:
    whole = single(group, WORDS)
    for prompt in ([WORDS], [[1000] * 40]):
        reply = group.router.post("/v1/completions", completion(prompt))
        assert reply.status == 200
        assert reply.text == (whole if prompt == [WORDS] else single(group, [1000] * 40))


def test_what_a_client_says_of_roles_is_overwritten(group: Group) -> None:
    params = {"request_type": "generation_only", "encoded_opaque_state": "x", "ctx_request_id": 1}
    reply = group.router.post("/v1/completions", completion(WORDS, disaggregated_params=params))
    assert (reply.status, reply.text) == (200, single(group, WORDS))


def test_an_answer_that_ends_with_the_context_is_the_context_workers(group: Group) -> None:
    stop = single(group, WORDS).split()[0]
    group.served()
    reply = group.router.post("/v1/completions", completion(WORDS, stop=[stop]))
    assert (reply.status, reply.finish_reason) == (200, "stop")
    assert "disaggregated_params" not in reply.body["choices"][0]
    events = group.router.stream("/v1/completions", completion(WORDS, stop=[stop]))
    assert (events.chunks, events.done) == ([], True)
    assert group.served()[1] == [0, 0]


# What goes wrong.


@pytest.mark.parametrize("fields", [{"kv_transfer_params": {}}, {"stream_options": {}, "max_tokens": "x"}])
def test_a_body_that_is_none_of_the_api(group: Group, fields: dict[str, Any]) -> None:
    reply = group.router.post("/v1/completions", completion("hi") | fields)
    assert (reply.status, list(reply.body)) == (400, ["error"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": ["a", "b"]}, "only supports single string prompt"),
        ({"temperature": -1}, "400"),
        ({"n": 2}, "400"),
    ],
)
def test_what_workers_refuse_is_an_error_of_the_router(
    group: Group, fields: dict[str, Any], message: str
) -> None:
    reply = group.router.post("/v1/completions", completion("hi") | fields)
    assert (reply.status, list(reply.body)) == (500, ["detail"])
    assert reply.body["detail"].startswith("Internal server error")
    assert message in reply.body["detail"]


def test_a_transfer_that_fails(group: Group) -> None:
    for engine in group.generations:
        engine.fault(stale_peers=["*"])
    try:
        reply = group.router.post("/v1/completions", completion(WORDS))
        assert (reply.status, "kv cache transfer" in reply.body["detail"]) == (500, True)
        with closing(group.router.connect()) as connection:
            data = json.dumps(completion(WORDS, stream=True))
            connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            # The status is out before the generation worker is asked.
            assert response.status == 200
            with pytest.raises((IncompleteRead, ConnectionError)):
                response.read()
    finally:
        for engine in group.generations:
            engine.fault(stale_peers=[])


def test_a_worker_that_is_gone_is_still_asked(engines: Engines) -> None:
    group = Group(engines, 1, 2)
    group.generations[0].stop()
    statuses = [group.router.post("/v1/completions", completion(WORDS)).status for _ in range(4)]
    assert statuses == [500, 200, 500, 200]
    assert group.router.get("/health").status == 200


def test_requests_have_a_time_to_end(engines: Engines) -> None:
    group = Group(engines, 1, 1, "--request_timeout=10")
    group.contexts[0].fault(hang=True)
    started = time.monotonic()
    reply = group.router.post("/v1/completions", completion(WORDS))
    assert reply.status == 500
    # A second, another before it is tried again, and once more a second.
    assert 2.9 < time.monotonic() - started < 20


def test_a_client_that_leaves_takes_its_request_along(group: Group) -> None:
    for engine in group.generations:
        engine.fault(slow=50.0)
    try:
        with closing(group.router.connect()) as connection:
            data = json.dumps(completion(WORDS, max_tokens=500, ignore_eos=True))
            connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json"})
            eventually(lambda: sum(engine.state()["running"] for engine in group.generations) == 1)
        eventually(lambda: sum(engine.state()["running"] for engine in group.generations) == 0)
    finally:
        for engine in group.generations:
            engine.fault(slow=1.0)


# Start and end.


def test_it_does_not_listen_before_both_roles_do(engines: Engines) -> None:
    context = start(engines, config("context")).ready()
    late = start(engines, config(), "--sim-load-seconds=20")
    router = engines.keep(Orchestrator(engines, [context], [late]))
    for _ in range(10):
        time.sleep(0.1)
        with pytest.raises(ConnectionRefusedError):
            router.get("/health")
    late.ready()
    assert router.ready().post("/v1/completions", completion("hi")).status == 200
    assert router.get("/cluster_info").body == {"is_ready": True}
    assert router.get("/version").body == {"version": "1.2.0"}
    assert (router.get("/v1/models").status, router.get("/perf_metrics").body) == (404, [])


def test_it_gives_up_in_time(engines: Engines) -> None:
    frozen = start(engines, config(), "--sim-freeze-at-start")
    router = engines.keep(Orchestrator(engines, [frozen], [frozen], "-t", "10"))
    assert router.process.wait(3 * DEADLINE) == 1
    assert "Timeout waiting for context and generation servers" in router.log.read_text()


def test_sigterm_lets_requests_end(engines: Engines) -> None:
    group = Group(engines, 1, 1)
    group.generations[0].fault(slow=20.0)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            group.router.post, "/v1/completions", completion(WORDS, max_tokens=200, ignore_eos=True)
        )
        eventually(lambda: group.generations[0].state()["running"] == 1)
        group.router.terminate()
        reply = future.result(DEADLINE)
    assert (reply.status, reply.body["usage"]["completion_tokens"]) == (200, 200)
    assert group.router.process.wait(DEADLINE) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--no_such",), 2, "No such option: --no_such"),
        (("--request_timeout=long",), 2, "invalid int value"),
        ((), 1, "TypeError"),
        (("-c", "/there/is/none"), 1, "FileNotFoundError"),
    ],
)
def test_a_command_line_that_is_refused(arguments: tuple[str, ...], status: int, message: str) -> None:
    found, said = exit_of("disaggregated", *arguments)
    assert (found, message in said) == (status, True), said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context_servers": {"urls": ["[::1]:8000"]}}, "too many values to unpack"),
        ({"context_servers": {"urls": ["host"]}}, "not enough values to unpack"),
        ({"context_servers": {"urls": ["host:http"]}}, "invalid literal for int()"),
        ({"context_servers": {"urls": ["a:1", "b:2"], "num_instances": 1}}, "Number of hostnames (2)"),
        ({"context_servers": None}, "no urls"),
        ({"backend": "pytorch", "context_servers": {"urls": ["a:1"], "backend": "trt"}}, "different values"),
        ({"generation_servers": {"urls": ["a:1"], "router": {"type": "fastest"}}}, "Unsupported router type"),
        ({"node_id": 256}, "node_id must be in range [0, 256)"),
        ({"schedule_style": "generation_first"}, "not simulated"),
        ({"disagg_cluster": {"cluster_uri": "http://a"}}, "not simulated"),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    content = {
        "context_servers": {"urls": ["a:1"]},
        "generation_servers": {"urls": ["b:1"]},
        **changes,
    }
    status, said = exit_of("disaggregated", "-c", str(written(tmp_path, content)))
    assert (status, message in said) == (1, True), said


def test_a_port_that_is_taken_is_noticed_at_once(engines: Engines) -> None:
    other = engines.start(*SIM, MODEL).ready()
    router = _with_port(engines, other)
    assert (router[0], "Failed to bind socket" in router[1]) == (1, True)


def _with_port(engines: Engines, other: Engine) -> tuple[int, str]:
    servers = {"urls": [f"localhost:{other.port}"]}
    content = {
        "hostname": "127.0.0.1",
        "port": other.port,
        "context_servers": servers,
        "generation_servers": servers,
    }
    return exit_of("disaggregated", "-c", str(written(engines.folder, content)))
