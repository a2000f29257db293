"""TensorRT-LLM's command line, file and environment, its start and its end."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from disagg.engine_sim.dialects.trtllm import arguments, options
from tests.engine_sim.conformance.trtllm import (
    MODEL,
    SIM,
    completion,
    config,
    context_body,
    exit_of,
    start,
    written,
)
from tests.engine_sim.processes import DEADLINE, Engines, eventually

LIST = Path(__file__).parents[2] / "unit" / "engine_flags" / "trtllm-1.2.json"
LONG = completion("hi", max_tokens=500, ignore_eos=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: model"),
        ((MODEL, "--no_such_option"), "No such option: --no_such_option"),
        ((MODEL, "--tp-size=2"), "No such option: --tp-size=2"),
        ((MODEL, "--tensor_parallel=2"), "No such option"),
        ((MODEL, "--port=many"), "invalid int value: 'many'"),
        ((MODEL, "--backend=vllm"), "invalid choice: 'vllm'"),
        ((MODEL, "other/model"), "No such option: other/model"),
        ((MODEL, "--trust_remote_code=true"), "ignored explicit argument"),
        ((MODEL, "--seed=1"), "No such option"),
        ((MODEL, "--served_model_name=m"), "No such option"),
        ((MODEL, "--kv_cache_dtype=fp8"), "No such option"),
        ((MODEL, "--config=/x", "--sim-engine-version=1.1.0"), "No such option"),
    ],
)
def test_a_command_line_that_cannot_be_parsed(arguments: tuple[str, ...], message: str) -> None:
    status, said = exit_of(*arguments)
    assert (status, message in said) == (2, True), said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port=70000",), "port must be 0-65535"),
        (("--max_batch_size=0",), "greater than 0"),
        (("--tp_size=3",), "can't be divided"),
        (("--backend=tensorrt",), "not simulated"),
        (("--free_gpu_memory_fraction=1.5",), "free_gpu_memory_fraction"),
        (("--config=/there/is/none.yaml",), "FileNotFoundError"),
    ],
)
def test_a_command_line_that_is_refused(arguments: tuple[str, ...], message: str) -> None:
    status, said = exit_of(MODEL, *arguments)
    assert (status, message in said) == (1, True), said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "a mapping is expected"),
        ("a: [", "yaml"),
        ({"no_such_key": 1}, "no_such_key\n  Extra inputs are not permitted"),
        ({"kv_cache_config": {"block_size": 16}}, "kv_cache_config.block_size\n  Extra inputs"),
        ({"cache_transceiver_config": {"timeout": 16}}, "cache_transceiver_config.timeout"),
        ({"lora_config": {"max_lora": 16}}, "lora_config.max_lora"),
        ({"cache_transceiver_config": {"backend": "nixl"}}, "Input should be 'DEFAULT'"),
        ({"cache_transceiver_config": {"kv_transfer_timeout_ms": 0}}, "greater than or equal to 1"),
        ({"cache_transceiver_config": "NIXL"}, "valid dictionary"),
        ({"cuda_graph_config": True}, "valid dictionary"),
        ({"disable_overlap_scheduler": "no"}, "valid boolean"),
        ({"max_batch_size": "many"}, "valid integer"),
        ({"kv_cache_config": {"tokens_per_block": 24}}, "power of 2"),
        ({"kv_cache_config": {"dtype": "int3"}}, "'int3'"),
        ({"backend": "tensorrt"}, "not simulated"),
        ({"internal_request_auth_key": "k"}, "Extra inputs"),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    status, said = exit_of(MODEL, f"--config={written(tmp_path, content)}")
    assert (status, message in said) == (1, True), said


@pytest.mark.parametrize(
    ("version", "content"),
    [
        ("1.1.0", {"cache_transceiver_config": {"backend": "NIXL", "kv_transfer_timeout_ms": 1000}}),
        ("1.1.0", {"cache_transceiver_config": {"backend": "MOONCAKE"}}),
        ("1.0.0", {"cache_transceiver_config": {"backend": "NIXL"}}),
        ("1.2.0", {"cache_transceiver_config": {"kv_transfer_poll_interval_ms": 5}}),
    ],
)
def test_a_file_for_another_release_is_refused(tmp_path: Path, version: str, content: Any) -> None:
    path = written(tmp_path, content)
    status, said = exit_of(MODEL, f"--extra_llm_api_options={path}", f"--sim-engine-version={version}")
    assert status == 1, said


def test_the_release_and_the_stand_in_know_the_same() -> None:
    known = json.loads(LIST.read_text("utf-8"))
    flags = {name for name, flag in known["flags"].items() for name in (name, *flag.get("aliases", ()))}
    ours = {name for action in arguments.parser((1, 2))._actions for name in action.option_strings}  # noqa: SLF001
    assert ours - {"-h", "--help"} == flags
    keys = options.TOP | {f"{name}.{key}" for name, section in options.SECTIONS.items() for key in section}
    assert keys == set(known["options"])
    choices = {name: tuple(each["choices"]) for name, each in known["options"].items() if "choices" in each}
    assert choices == options.CHOICES


@pytest.mark.parametrize(
    ("version", "flag", "arguments"),
    [
        ("1.1.2", "--extra_llm_api_options", ()),
        ("1.2.1", "--extra_llm_api_options", ("--max_seq_len=32768", "--max_batch_size=32")),
        ("1.3.0", "--config", ("--served_model_name=llama",)),
    ],
)
def test_what_the_operator_renders_is_taken(
    engines: Engines, version: str, flag: str, arguments: tuple[str, ...]
) -> None:
    content = config("context", enable_attention_dp=True, attn_backend="TRTLLM", revision="main")
    if version < "1.2":
        del content["cache_transceiver_config"]["kv_transfer_timeout_ms"]
    content["kv_cache_config"]["host_cache_size"] = 1 << 30
    engine = engines.start(
        *SIM,
        f"--sim-engine-version={version}",
        MODEL,
        "--host=0.0.0.0",
        "--backend=pytorch",
        "--tp_size=2",
        "--pp_size=1",
        "--ep_size=2",
        f"{flag}={written(engines.folder, content)}",
        *arguments,
        TRTLLM_NIXL_KVCACHE_BACKEND="LIBFABRIC",
        TRTLLM_DG_CACHE_DIR="/tmp/none",  # noqa: S108 - a name
    ).ready()
    assert engine.get("/version").body == {"version": version}
    name = "llama" if version == "1.3.0" else MODEL
    assert [card["id"] for card in engine.get("/v1/models").body["data"]] == [name]
    # Attention data parallelism: each rank has a cache of its own.
    assert len(engine.get("/sim/state").body["engines"]) == 2
    body = completion("a prompt", max_tokens=1)
    answer = engine.post("/v1/completions", context_body(body)).body["choices"][0]["disaggregated_params"]
    assert answer["encoded_opaque_state"]


def test_the_file_wins_over_the_command_line(engines: Engines) -> None:
    content = config(max_batch_size=7, max_seq_len=50)
    engine = start(engines, content, "--max_batch_size=9", "--max_seq_len=90", "--max_num_tokens=40").ready()
    reply = engine.post("/v1/completions", completion([1000] * 45))
    assert (reply.status, "max_num_tokens (40)" in reply.body["message"]) == (400, True)
    assert engine.post("/v1/completions", completion([1000] * 30)).body["usage"]["total_tokens"] <= 50
    assert engine.get("/metrics").body[0]["maxNumActiveRequests"] == 7


def test_a_folder_is_called_by_its_name(engines: Engines) -> None:
    engine = start(engines, {}, model="/models/llama/70b").ready()
    assert engine.get("/v1/models").body["data"][0]["id"] == "70b"


def test_an_idle_start_ends_by_sigterm(engines: Engines) -> None:
    engine = engines.start(*SIM, MODEL).ready()
    engine.terminate()
    assert engine.process.wait(DEADLINE) == 0


def test_sigterm_closes_the_port_and_lets_requests_end(engines: Engines) -> None:
    engine = start(engines, config("context")).ready()
    engine.post("/v1/completions", context_body(completion("nobody comes for this")))
    assert engine.state()["leases"] == 1
    engine.fault(slow=20.0)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(engine.post, "/v1/completions", LONG)
        eventually(lambda: engine.state()["running"] == 1)
        engine.terminate()

        def is_closed() -> bool:
            try:
                engine.get("/health")
            except ConnectionRefusedError:
                return True
            return False

        eventually(is_closed)
        assert not future.done()
        reply = future.result(DEADLINE)
    assert (reply.status, reply.finish_reason) == (200, "length")
    assert reply.body["usage"]["completion_tokens"] == 500
    # What a generation worker has yet to pull holds nobody back.
    assert engine.process.wait(DEADLINE) == 0


def test_an_idle_connection_is_closed_after_five_seconds(engines: Engines) -> None:
    engine = engines.start(*SIM, MODEL).ready()
    with closing(engine.connect()) as connection:
        connection.request("GET", "/health")
        connection.getresponse().read()
        assert connection.sock is not None
        connection.sock.settimeout(8)
        assert connection.sock.recv(1) == b""
