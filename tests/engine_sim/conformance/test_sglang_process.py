"""SGLang's command line, environment, start and end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine_sim.conformance.sglang_pair import (
    MODEL,
    SglangPair,
    sglang_pair,
    start_prefill,
    start_sglang,
)
from tests.engine_sim.processes import DEADLINE, Engine, Engines, eventually, free_port

LONG = {"model": MODEL, "prompt": "hi", "max_tokens": 500, "ignore_eos": True}


def exit_of(*arguments: str, **environment: str) -> tuple[int, str]:
    """How a process ends that should not start."""
    done = subprocess.run(
        [sys.executable, "-m", "disagg.engine_sim", "--dialect=sglang", f"--model-path={MODEL}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--no-such-flag",), "error: unrecognized arguments: --no-such-flag"),
        (("--enable_metrics",), "error: unrecognized arguments: --enable_metrics"),
        (("--port=many",), "argument --port: invalid int value: 'many'"),
        (("--kv-cache-dtype=fp8",), "invalid choice: 'fp8'"),
        (("--disaggregation-mode=both",), "invalid choice: 'both'"),
        (("--disaggregation-transfer-backend=ucx",), "invalid choice: 'ucx'"),
        (("--disaggregation-decode-tp=2",), "unrecognized arguments: --disaggregation-decode-tp"),
    ],
)
def test_what_the_parser_refuses_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    status, output = exit_of(*arguments)
    assert (status, message in output) == (2, True), output


def test_a_model_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "disagg.engine_sim", "--dialect=sglang"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "--model-path" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (
            ("--disaggregation-mode=prefill", "--disaggregation-transfer-backend=fake"),
            {},
            "Prefill server does not support 'fake' as the transfer backend",
        ),
        (
            (
                "--disaggregation-mode=decode",
                "--disaggregation-transfer-backend=fake",
                "--disaggregation-decode-enable-radix-cache",
            ),
            {},
            "incompatible with --disaggregation-transfer-backend fake",
        ),
        (("--disaggregation-mode=decode", "--enable-hierarchical-cache"), {}, "mutually exclusive"),
        (
            ("--disaggregation-mode=decode", "--disaggregation-decode-enable-offload-kvcache"),
            {},
            "requires --hicache-storage-backend",
        ),
        (
            ("--disaggregation-mode=decode", "--disaggregation-transfer-backend=mori"),
            {"SGLANG_DISAGG_STAGING_BUFFER": "true"},
            "SGLANG_DISAGG_STAGING_BUFFER requires",
        ),
        (("--tp-size=8", "--attn-dp-size=3"), {}, "tp_size must be divisible"),
        (("--dp-size=2", "--attn-dp-size=2", "--tp-size=2"), {}, "--dp-size 2 with --attn-dp-size 2"),
        (("--port=70000",), {}, "must be 0-65535"),
    ],
)
def test_what_the_engine_refuses_ends_its_start(
    arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    status, output = exit_of(*arguments, **environment)
    assert (status, message in output) == (1, True), output


def test_names_may_be_shortened(engines: Engines) -> None:
    engine = start_sglang(engines, "null", "--tp", "2", "--served-model", "short").ready()
    assert engine.get("/server_info").body["tp_size"] == 2
    assert engine.get("/v1/models").body["data"][0]["id"] == "short"


def test_an_address_that_is_not_this_machines_ends_the_start(engines: Engines) -> None:
    engine = start_sglang(engines, "decode", SGLANG_HOST_IP="203.0.113.7")
    assert engine.process.wait(DEADLINE) == 1


# As the operator renders it.

RENDERED = [
    "--model-path=/model/DeepSeek-R1-0528",
    "--served-model-name=deepseek-r1",
    "--host=0.0.0.0",
    "--disaggregation-transfer-backend=nixl",
    "--tp-size=8",
    "--page-size=64",
    "--uvicorn-access-log-exclude-prefixes",
    "/health",
    "/metrics",
    "--enable-metrics",
    "--enable-cache-report",
    "--trust-remote-code",
    "--context-length=65536",
    "--reasoning-parser=deepseek-r1",
]
ENVIRONMENT = {
    "SGLANG_HOST_IP": "127.0.0.1",
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
    "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "120",
    "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "120",
    "SGLANG_DISAGGREGATION_NIXL_BACKEND": "UCX",
    "SGLANG_TIMEOUT_KEEP_ALIVE": "120",
}


def test_a_pair_as_the_operator_renders_it_works(engines: Engines) -> None:
    port = free_port()
    first = ("--dialect=sglang", "--sim-profile=deepseek-r1-8xh200", "--sim-time-scale=100", *RENDERED)
    prefill = engines.start(
        *first, "--disaggregation-mode=prefill", f"--disaggregation-bootstrap-port={port}", **ENVIRONMENT
    ).ready()
    decode = engines.start(
        *first, "--disaggregation-mode=decode", "--attn-dp-size=8", "--ep-size=8", **ENVIRONMENT
    ).ready()
    pair = SglangPair(prefill, decode, engines.start(*first).ready(), port)
    for prompt in ("hi", "the cache of a network " * 100):
        reply = pair.complete(prompt, model="deepseek-r1")
        assert (reply.status, reply.text) == (200, pair.single(prompt).text)


# Start.


def reachable(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_without_a_host_only_the_loopback_is_bound_also_by_the_bootstrap_server(engines: Engines) -> None:
    port, open_port = free_port(), free_port()
    alone = start_prefill(engines, port).ready()
    everywhere = start_prefill(engines, open_port, "--host=0.0.0.0").ready()
    # All of 127.0.0.0/8 is this machine, and only one address of it is bound.
    assert [reachable("127.0.0.1", each) for each in (alone.port, port)] == [True, True]
    assert [reachable("127.0.0.2", each) for each in (alone.port, port)] == [False, False]
    assert [reachable("127.0.0.2", each) for each in (everywhere.port, open_port)] == [True, True]


def bootstrap(engine: Engine, port: int) -> Engine:
    """The same process, asked on its bootstrap port."""
    other = object.__new__(Engine)
    other.__dict__.update(engine.__dict__, port=port)
    return other


ALL = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"


def test_while_it_loads_the_api_is_closed_and_the_bootstrap_server_says_503(engines: Engines) -> None:
    port = free_port()
    engine = start_prefill(engines, port, "--sim-load-seconds=15", "--tp-size=4")
    boot = bootstrap(engine, port)
    assert eventually(lambda: boot.get("/health")).body == "OK"
    reply = boot.get(ALL)
    assert (reply.status, reply.body) == (
        503,
        "Prefill server not fully registered yet (0 workers registered).",
    )
    with pytest.raises(OSError, match="refused"):
        engine.get("/health")
    engine.ready()
    info = boot.get(ALL)
    assert info.status == 200
    assert {
        key: info.body[key] for key in ("attn_tp_size", "dp_size", "pp_size", "page_size", "kv_cache_dtype")
    } == {
        "attn_tp_size": 4,
        "dp_size": 1,
        "pp_size": 1,
        "page_size": 64,
        "kv_cache_dtype": "bfloat16",
    }
    assert (info.body["follow_bootstrap_room"], info.body["prefill_http_port"]) == (True, engine.port)


def test_health_is_503_until_it_has_warmed_up(engines: Engines) -> None:
    engine = start_sglang(engines, "null", "--sim-time-scale", "0.01")
    assert eventually(lambda: engine.get("/health")).status == 503
    assert engine.get("/ping").status == engine.get("/ready").status == 503
    engine.ready()
    assert engine.get("/ping").status == engine.get("/ready").status == 200


@pytest.mark.parametrize("mode", ["null", "prefill", "decode"])
def test_health_generates_a_token_whatever_the_role(engines: Engines, mode: str) -> None:
    port = free_port()
    engine = start_sglang(
        engines, mode, f"--disaggregation-bootstrap-port={port}", SGLANG_HEALTH_CHECK_TIMEOUT="2"
    ).ready()
    before = time.monotonic()
    assert engine.get("/health_generate").status == 200
    # The real one looks after a second for the first time: probes need more than Kubernetes' default.
    assert time.monotonic() - before >= 1
    engine.fault(hang=True)
    assert [engine.get(path).status for path in ("/health", "/health_generate", "/ping")] == [503, 503, 503]
    engine.fault(hang=False)
    assert engine.get("/health").status == 200


def test_health_need_not_generate(engines: Engines) -> None:
    engine = start_sglang(
        engines, "null", SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION="false", SGLANG_HEALTH_CHECK_TIMEOUT="1"
    ).ready()
    engine.fault(hang=True)
    assert (engine.get("/health").status, engine.get("/health_generate").status) == (200, 503)


# End.


def test_sigterm_makes_health_fail_at_once_and_waits_for_all_requests(engines: Engines) -> None:
    engine = start_sglang(engines, "null").ready()
    engine.fault(slow=20.0)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(engine.post, "/v1/completions", LONG)
        eventually(lambda: engine.state()["running"] == 1)
        engine.terminate()
        eventually(lambda: engine.get("/health").status == 503)
        # New requests are as good as others.
        second = pool.submit(engine.post, "/v1/completions", LONG)
        eventually(lambda: engine.state()["running"] == 2)
        assert (first.done(), engine.process.poll()) == (False, None)
        engine.fault(slow=1.0)
        assert [each.result(DEADLINE).finish_reason for each in (first, second)] == ["length", "length"]
    assert engine.process.wait(DEADLINE) == 0


def test_a_forced_end_waits_for_nobody(engines: Engines) -> None:
    engine = start_sglang(engines, "null", SGL_FORCE_SHUTDOWN="1").ready()
    engine.fault(slow=200.0)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(engine.post, "/v1/completions", LONG)
        eventually(lambda: engine.state()["running"] == 1)
        engine.terminate()
        assert engine.process.wait(DEADLINE) == 0
        assert future.result().finish_reason == "abort"


def test_prefill_that_drains_ends_what_waits_for_decode(engines: Engines) -> None:
    pair: SglangPair = sglang_pair(engines)
    body = pair.body("drained")
    prefill = pair.send(body)
    eventually(lambda: pair.prefill.metric("sglang:num_prefill_bootstrap_queue_reqs") == 1)
    pair.prefill.terminate()
    eventually(lambda: pair.prefill.get("/health").status == 503)
    reply = pair.decode.post("/v1/completions", body)
    assert (reply.status, reply.text) == (200, pair.single("drained").text)
    assert prefill.result(DEADLINE).status == 200
    assert pair.prefill.process.wait(DEADLINE) == 0
