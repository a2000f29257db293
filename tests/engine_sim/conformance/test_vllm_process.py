"""vLLM's command line, environment, start and end."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.engine_sim.conformance.pairs import LENGTH, MODEL, SCALE, VllmPair, nixl, start_vllm, vllm_pair
from tests.engine_sim.processes import DEADLINE, Engine, Engines, Reply, eventually, free_port, read_events

LONG = {"model": MODEL, "prompt": "hi", "max_tokens": 3000, "ignore_eos": True}


def exit_of(engines: Engines, *arguments: str, **environment: str) -> tuple[int, str]:
    """How a process ends that should not start."""
    variables = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()), **environment}
    return engines.refused("serve", MODEL, *arguments, **variables)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--no-such-flag",), 2, "error: unrecognized arguments: --no-such-flag"),
        (("--port=many",), 2, "argument --port: invalid int value: 'many'"),
        (("--kv-cache-dtype=int3",), 2, "invalid choice: 'int3'"),
        (("--kv-transfer-config={",), 2, "argument --kv-transfer-config"),
        ((nixl("kv_maybe"),), 2, "Unsupported kv_role: kv_maybe"),
        (('--kv-transfer-config={"kv_connector":"NixlConnector"}',), 2, "Please specify kv_role"),
        ((nixl("kv_both", kv_rank=0),), 2, "kv_rank: Unexpected keyword argument"),
        ((nixl("kv_both", kv_load_failure_policy="retry"),), 2, "kv_load_failure_policy"),
        (('--kv-events-config={"port":1}',), 2, "KVEventsConfig"),
        ((nixl("kv_both", kv_connector="NoConnector"),), 1, "Unsupported connector type: NoConnector"),
        ((nixl("kv_both", kv_connector="P2pNcclConnector"),), 1, "Unsupported connector type"),
        ((nixl("kv_both"), "--pipeline-parallel-size=2"), 1, "pipeline_parallel_size > 1"),
        (("--block-size=24",), 1, "block_size not supported"),
        (("--port=70000",), 1, "port must be 0-65535"),
        (('--kv-events-config={"publisher":"kafka"}',), 2, "publisher"),
        (("--tensor-parallel-size=3",), 1, "must be divisible by tensor parallel size (3)"),
        (("--max-model-len=32k", "--num-gpu-blocks-override=100"), 1, "larger than the available KV cache"),
        (("--lora-modules", "a=/b"), 1, "LoRA is not enabled"),
        (("--enable-auto-tool-choice",), 1, "requires --tool-call-parser"),
        (("--shutdown-timeout=-1",), 1, "shutdown_timeout must be at least 0"),
    ],
)
def test_a_command_line_that_the_real_one_refuses(
    engines: Engines, arguments: tuple[str, ...], status: int, message: str
) -> None:
    found, said = exit_of(engines, *arguments)
    assert (found, message in said) == (status, True), said


@pytest.mark.stand_in_only("is of an older release")
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            nixl("kv_both", kv_load_failure_policy="fail"),
            "kv_load_failure_policy: Unexpected keyword argument",
        ),
        ("--shutdown-timeout=5", "unrecognized arguments: --shutdown-timeout"),
    ],
)
def test_a_command_line_that_an_older_one_refuses(engines: Engines, argument: str, message: str) -> None:
    status, said = exit_of(engines, argument, "--sim-engine-version=0.11.0")
    assert (status, message in said) == (2, True), said


def test_a_service_called_vllm_breaks_the_start(engines: Engines) -> None:
    status, said = exit_of(engines, VLLM_PORT="tcp://10.0.0.1:8000")
    assert (status, "appears to be a URI" in said) == (1, True)


def test_a_side_channel_that_is_taken_breaks_the_start(engines: Engines) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, said = exit_of(
            engines,
            nixl("kv_both"),
            VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1",
            VLLM_NIXL_SIDE_CHANNEL_PORT=str(taken.getsockname()[1]),
        )
    assert (status, "in use" in said) == (1, True), said


@pytest.mark.stand_in_only("tests/real_vllm starts what is rendered")
def test_all_flags_that_the_operator_renders_are_taken(engines: Engines) -> None:
    engine = engines.start(
        MODEL,
        *SCALE,
        "--served-model-name=llama",
        "--tensor-parallel-size=2",
        "--revision=main",
        "--gpu_memory_utilization=0.9",
        "--no-enable-prefix-caching",
        "--trust-remote-code",
        nixl("kv_producer", kv_connector_extra_config={"kv_lease_duration": 120}),
        VLLM_NIXL_SIDE_CHANNEL_PORT=str(free_port()),
        VLLM_HTTP_TIMEOUT_KEEP_ALIVE="120",
        PYTHONHASHSEED="0",
    ).ready()
    assert engine.get("/version").body == {"version": "0.33.0"}


def test_without_a_host_the_side_channel_is_advertised_as_localhost(engines: Engines) -> None:
    port = free_port()
    engine = engines.start(
        "serve", MODEL, *SCALE, nixl("kv_producer"), VLLM_NIXL_SIDE_CHANNEL_PORT=str(port)
    ).ready()
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
    params = engine.post("/v1/completions", body).body["kv_transfer_params"]
    assert (params["remote_host"], params["remote_port"]) == ("localhost", port)


# Start.


@pytest.mark.stand_in_only("sets how long loading takes")
def test_the_port_is_closed_while_the_model_loads(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, "--sim-load-seconds=1.5")
    refused = 0

    def look() -> bool:
        nonlocal refused
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", engine.port)) != 0:
                refused += 1
                return False
        return True

    eventually(look)
    assert refused > 20
    assert engine.get("/health").status == 200


@pytest.mark.stand_in_only("asks for a fault")
def test_a_start_that_freezes_ends_by_sigterm(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, "--sim-freeze-at-start")
    eventually(lambda: "Starting to load model" in engine.log.read_text())
    with pytest.raises(OSError, match="refused"):
        engine.get("/health")
    engine.terminate()
    assert engine.process.wait(DEADLINE) == 0


# End.


@contextmanager
def in_flight(engine: Engine, body: dict[str, Any]) -> Iterator[Future[Reply]]:
    """A request that takes long, and runs."""
    with ThreadPoolExecutor(1) as pool:
        if engine.is_stand_in:
            engine.fault(slow=20.0)
        future = pool.submit(engine.post, "/v1/completions", body)
        eventually(lambda: engine.metric("vllm:num_requests_running") == 1)
        yield future


def test_without_a_shutdown_timeout_requests_in_flight_are_aborted(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, *SCALE).ready()
    with in_flight(engine, LONG) as future:
        engine.terminate()
        reply = future.result(DEADLINE)
    assert (reply.status, reply.finish_reason) == (200, "abort")
    assert engine.process.wait(DEADLINE) == 0


def test_draining_ends_requests_in_flight_and_aborts_new_ones(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, *SCALE, "--shutdown-timeout=60").ready()
    with in_flight(engine, LONG) as future:
        engine.terminate()
        eventually(lambda: "[shutdown]" in engine.log.read_text())
        assert engine.get("/health").status == 200
        new = engine.post("/v1/completions", LONG)
        assert (new.status, new.finish_reason, new.text) == (200, "abort", "")
        events = engine.stream("/v1/completions", LONG)
        assert [chunk["choices"][0]["finish_reason"] for chunk in events.chunks] == ["abort"]
        assert not future.done()
        if engine.is_stand_in:
            engine.fault(slow=1.0)
        assert future.result(DEADLINE).body["usage"]["completion_tokens"] == 3000
    assert engine.process.wait(DEADLINE) == 0


def test_a_drain_is_cut_at_its_timeout(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, *SCALE, "--shutdown-timeout=1").ready()
    with in_flight(engine, LONG) as future:
        engine.terminate()
        assert future.result(DEADLINE).finish_reason == "abort"
    assert engine.process.wait(DEADLINE) == 0


def test_a_drain_of_prefill_waits_for_blocks_that_nobody_has_read(
    engines: Engines, shared_engines: Engines
) -> None:
    prefill = start_vllm(engines, "kv_producer", LENGTH, "--shutdown-timeout=60").ready()
    others = vllm_pair(shared_engines)
    pair = VllmPair(prefill, others.decode, others.alone)
    params = pair.leg(pair.body("drained"))
    prefill.terminate()
    eventually(lambda: "[shutdown]" in prefill.log.read_text())
    assert prefill.process.poll() is None
    reply = pair.decode.post("/v1/completions", {**pair.body("drained"), "kv_transfer_params": params})
    assert (reply.status, reply.text) == (200, pair.single("drained").text)
    assert prefill.process.wait(DEADLINE) == 0


# Connections and queues.


@pytest.mark.parametrize(("seconds", "open_after"), [("1", False), (None, True)])
def test_idle_connections_are_closed(engines: Engines, seconds: str | None, open_after: bool) -> None:
    environment = {} if seconds is None else {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": seconds}
    engine = engines.start("serve", MODEL, *SCALE, **environment).ready()
    with closing(engine.connect()) as connection:
        connection.request("GET", "/health")
        connection.getresponse().read()
        assert connection.sock is not None
        connection.sock.settimeout(3)
        try:
            closed = connection.sock.recv(1) == b""
        except TimeoutError:
            closed = False
    assert closed is not open_after


@pytest.mark.stand_in_only("asks for a fault that keeps requests in the queue")
def test_the_queue_has_no_end_unless_one_is_set(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, *SCALE, "--max-num-queued-reqs=2", "--max-num-seqs=1").ready()
    engine.fault(hang=True)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(engine.post, "/v1/completions", {**LONG, "max_tokens": 2}) for _ in range(2)]
        eventually(lambda: engine.state()["waiting"] + engine.state()["running"] == 2)
        refused = engine.post("/v1/completions", LONG)
        assert (refused.status, refused.body["error"]["type"]) == (503, "Service Unavailable")
        assert engine.metric("vllm:admission_rejections_total", reason="max_num_queued_reqs") == 1
        engine.fault(hang=False)
        assert [future.result().status for future in futures] == [200, 200]


@pytest.mark.stand_in_only("asks for a fault")
def test_an_engine_that_dies_cuts_its_streams(engines: Engines) -> None:
    engine = engines.start("serve", MODEL, *SCALE).ready()
    engine.fault(die_after_tokens=5)
    with closing(engine.connect()) as connection:
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps({**LONG, "stream": True}),
            {"Content-Type": "application/json"},
        )
        events = read_events(connection.getresponse())
    assert not events.done
    assert engine.process.wait(DEADLINE) == 1
