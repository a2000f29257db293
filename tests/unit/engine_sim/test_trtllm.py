from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from disagg.engine_sim.api.errors import ApiError
from disagg.engine_sim.blocks import Removed, Stored
from disagg.engine_sim.dialects import StartError
from disagg.engine_sim.dialects.trtllm import orchestrator_config
from disagg.engine_sim.dialects.trtllm.arguments import parse
from disagg.engine_sim.dialects.trtllm.config import check
from disagg.engine_sim.dialects.trtllm.opaque import CacheState, OpaqueState, decode
from disagg.engine_sim.dialects.trtllm.protocol import CompletionCall, ValidationError, read
from disagg.engine_sim.dialects.trtllm.protocol import check as check_call
from disagg.engine_sim.dialects.trtllm.stats import CacheEvents
from disagg.engine_sim.sim_flags import split
from disagg.engine_sim.transfer.connector import TransferError

STATE = CacheState("auto", 32, 80, 8, 128, 4)


def file(folder: Path, text: str) -> str:
    path = folder / "config.yaml"
    path.write_text(text)
    return str(path)


def test_the_opaque_state_is_what_it_was() -> None:
    state = OpaqueState("10.0.0.1", 4000, "NIXL/UCX", STATE)
    assert decode(state.encode()) == state


@pytest.mark.parametrize("text", [None, "", "?", "AAAA", "gaRob3N0"])
def test_an_opaque_state_that_is_none(text: str | None) -> None:
    with pytest.raises(TransferError):
        decode(text)


def test_only_tensor_parallelism_may_differ() -> None:
    assert STATE.mismatch(CacheState("auto", 32, 80, 8, 128, 8)) is None
    assert STATE.mismatch(CacheState("auto", 64, 80, 8, 128, 4)) == "tokens_per_block is 64 there and 32 here"
    assert STATE.mismatch(CacheState("fp8", 32, 80, 8, 128, 4)) is not None


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(StartError, match=r"(?s)2 validation errors.*one.*kv_cache_config\.two"):
        check({"one": 1, "kv_cache_config": {"two": 2, "dtype": "fp8"}}, (1, 2))
    check({"moe_config": {"whatever": 1}, "kv_cache_config": None}, (1, 2))
    check({"internal_request_auth_key": "k"}, (1, 3))


@pytest.mark.parametrize(
    ("backend", "environment", "found"),
    [
        ("null", {}, None),
        ("NIXL", {"TRTLLM_USE_UCX_KVCACHE": "1"}, "NIXL"),
        ("DEFAULT", {}, "NIXL"),
        ("DEFAULT", {"TRTLLM_USE_MPI_KVCACHE": "1", "TRTLLM_USE_UCX_KVCACHE": "1"}, "UCX"),
        ("DEFAULT", {"TRTLLM_USE_UCX_KVCACHE": "0"}, "NIXL"),
    ],
)
def test_what_moves_kv(tmp_path: Path, backend: str, environment: dict[str, str], found: str | None) -> None:
    path = file(tmp_path, f"cache_transceiver_config: {{backend: {backend}}}")
    assert parse(["m", f"--config={path}"], environment).transfer == found
    assert parse(["m"], environment).transfer is None


def test_defaults_of_the_command_line() -> None:
    args = parse(["serve", "org/model"], {})
    assert (args.host, args.port, args.max_batch_size, args.max_num_tokens) == ("localhost", 8000, 2048, 8192)
    assert (args.tokens_per_block, args.dtype, args.transfer_timeout) == (32, "auto", None)
    assert args.nixl_backend == "UCX"
    assert parse(["m"], {"TRTLLM_NIXL_KVCACHE_BACKEND": "GDS"}).nixl_backend == "UCX"


def test_the_file_of_the_cache_wins(tmp_path: Path) -> None:
    path = file(tmp_path, "kv_cache_config: {free_gpu_memory_fraction: 0.5}\ntensor_parallel_size: 4")
    args = parse(["m", "--free_gpu_memory_fraction=0.8", "--tp_size=2", f"--config={path}"], {})
    assert (args.free_gpu_memory_fraction, args.tensor_parallel_size) == (0.5, 4)
    assert parse(["m", "--kv_cache_free_gpu_memory_fraction=0.8"], {}).free_gpu_memory_fraction == 0.8


def test_a_seed_of_the_simulation_is_no_option_of_the_engine() -> None:
    flags, rest = split(["--dialect=trtllm", "--sim-seed=3", "m"])
    assert (flags.seed, rest) == (3, ["m"])


def call(**fields: Any) -> CompletionCall:
    return CompletionCall(model="m", prompt="p", **fields)


def test_a_body_is_read_strictly() -> None:
    assert read(b'{"model": "m", "prompt": [1, 2], "stop": ["a"]}', CompletionCall).stops == ("a",)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        read(b'{"model": "m", "prompt": "p", "priority_class": 1}', CompletionCall)
    with pytest.raises(ValidationError, match="Stream options"):
        read(b'{"model": "m", "prompt": "p", "stream_options": {}}', CompletionCall)


def test_beams_need_room() -> None:
    check_call(call(n=2, best_of=2, use_beam_search=True), 2)
    with pytest.raises(ApiError, match="larger than max_beam_width"):
        check_call(call(best_of=3, use_beam_search=True), 2)


def test_events_are_told_once_and_the_oldest_are_lost() -> None:
    events = CacheEvents(2, 100)
    events.record(Stored([1, 2], None, [5, 6, 7, 8], None))
    events.record(Removed([1]))
    stored, removed = events.drain()
    assert [[token["token_id"] for token in block["tokens"]] for block in stored["data"]["blocks"]] == [
        [5, 6],
        [7, 8],
    ]
    assert (removed["event_id"], removed["data"]) == (2, {"type": "removed", "block_hashes": [1]})
    assert events.drain() == []


def test_the_orchestrator_hands_down_what_it_does_not_know() -> None:
    found = orchestrator_config.read(
        {
            "backend": "pytorch",
            "anything": 1,
            "server_keep_alive_timeout": 120,
            "context_servers": {"num_instances": 2, "urls": ["a:1", "b:2"]},
            "generation_servers": {"urls": ["c:3"], "router": {"type": "round_robin"}},
        },
        "1.3.0",
        180,
        60,
    )
    assert (found.contexts, found.generations) == (("a:1", "b:2"), ("c:3",))
    assert (found.host, found.port, found.max_retries, found.keep_alive) == ("localhost", 8000, 1, 120)


def test_an_older_orchestrator_has_its_own_keep_alive() -> None:
    servers = {"urls": ["a:1"], "server_keep_alive_timeout": 120}
    values = {"server_keep_alive_timeout": 120, "context_servers": servers, "generation_servers": servers}
    assert orchestrator_config.read(values, "1.2.0", 180, 60).keep_alive == 10
