"""HTTP as vLLM's server speaks it: what it refuses before it looks at a request."""

from __future__ import annotations

import gzip
import json
import socket

import pytest

from tests.engine_sim.conformance.pairs import MODEL, start_vllm
from tests.engine_sim.processes import Engine, Engines

COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def engine(shared_engines: Engines) -> Engine:
    return start_vllm(shared_engines, "kv_producer").ready()


def say(engine: Engine, data: bytes) -> bytes:
    """What comes back for some bytes, until the connection ends."""
    with socket.create_connection(("127.0.0.1", engine.port), 10) as connection:
        connection.sendall(data)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00\x00\x00\x00",
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    ],
    ids=["HTTP/2", "no HTTP", "TLS", "no length"],
)
def test_what_is_no_http_is_a_400_and_no_page_of_log(engine: Engine, data: bytes) -> None:
    before = engine.log.read_text().splitlines()
    head, _end, body = say(engine, data).partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert b"text/plain" in head
    assert body == b"Invalid HTTP request received."
    said = engine.log.read_text().splitlines()[len(before) :]
    assert len(said) <= 1
    assert "Traceback" not in "".join(said)


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
def test_there_is_no_head(engine: Engine, path: str) -> None:
    reply = engine.request("HEAD", path)
    assert (reply.status, reply.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/vnd.api+json", "application/json ;charset=utf-8"]
)
def test_a_body_of_another_kind(engine: Engine, kind: str) -> None:
    reply = engine.post(COMPLETIONS, {"model": MODEL, "prompt": "hi"}, {"Content-Type": kind})
    assert reply.status == 400
    assert (
        reply.message == "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    )


def test_what_is_packed_is_not_unpacked(engine: Engine) -> None:
    body = gzip.compress(json.dumps({"model": MODEL, "prompt": "hi"}).encode())
    assert engine.post(COMPLETIONS, body, {"Content-Encoding": "gzip"}).status == 400


def test_a_header_may_be_long(engine: Engine) -> None:
    assert engine.request("GET", "/health", headers={"X-Trace": "a" * 70_000}).status == 200


@pytest.mark.parametrize(("rank", "status"), [("0", 200), ("1", 400), ("-1", 400), ("x", 200)])
def test_a_rank_that_a_router_names(engine: Engine, rank: str, status: int) -> None:
    body = {"model": MODEL, "prompt": "hi", "max_tokens": 1}
    assert engine.post(COMPLETIONS, body, {"X-data-parallel-rank": rank}).status == status
