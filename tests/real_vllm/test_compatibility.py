"""The label by which pods are paired, against what vLLM itself compares when two pods meet."""

import dataclasses
import json
import shutil

import pytest

from disagg.api.names import KV_COMPATIBILITY_LABEL, RoleName
from e2e.real_vllm import Container, Pod, containers, handshake
from tests.real_vllm.pair import CLAIM, Numbers, Starter, prompt, resource, text_of, transferred

pytestmark = pytest.mark.timeout(1800)

SAME = [
    ["--dtype", "float32"],
    ["--kv-cache-dtype=auto"],
    ["--no-disable-hybrid-kv-cache-manager"],
    [
        '--kv-transfer-config={"kv_connector":"NixlPullConnector","kv_role":"kv_both","kv_buffer_device":"cpu"}'
    ],
    ["--max-model-len=1024"],
    ["--max-num-seqs=3"],
    ["--seed=7"],
    ["--no-enable-prefix-caching"],
    ['--speculative-config={"method":"ngram","num_speculative_tokens":2,"prompt_lookup_max":2}'],
]
"""Arguments that make no difference to vLLM."""
DIFFERENT = [
    ["--dtype=bfloat16"],
    ["--dtype=float16"],
    ["--kv-cache-dtype=fp8"],
    ["--kv-cache-dtype=fp8_e4m3"],
    ["--kv-cache-dtype=fp8_e5m2"],
    ["--kv-cache-dtype", "float16"],
    ["--kv_cache_dtype=bfloat16"],
    ["--disable-hybrid-kv-cache-manager"],
    ["--disable_hybrid_kv_cache_manager"],
]
"""Arguments that make a difference to vLLM."""
STRICTER = [
    # Nothing compares weights, and the KV cache of others is useless.
    ["--revision=other"],
]
"""Arguments that make a difference here, and none to vLLM."""


@pytest.fixture(scope="module")
def hashes(start: Starter) -> dict[str, str | None]:
    """vLLM's own hash by the arguments of decode; None where it would not start."""
    asked = [[], *SAME, *DIFFERENT, *STRICTER]
    claim = start.claims[CLAIM]
    shutil.copy(handshake.__file__, claim / "handshake.py")
    arguments = [decode_with(args).command[2:] for args in asked]
    (claim / "arguments.json").write_text(json.dumps(arguments))
    command = ["python", "/model/handshake.py", "/model/arguments.json"]
    with start.start(dataclasses.replace(decode_with([]), name="handshake", command=command)) as pod:
        status = pod.wait(600)
        text = pod.log.read_text()
    assert status == 0, text[-5000:]
    found = json.loads(text.rpartition(handshake.MARK)[2])
    return dict(zip(map(str, asked), found, strict=True))


@pytest.mark.parametrize("args", SAME, ids=" ".join)
def test_pods_that_vllm_pairs_have_one_label(hashes: dict[str, str | None], args: list[str]) -> None:
    assert hashes[str(args)] == hashes["[]"] is not None
    assert label_of(decode_with(args)) == label_of(decode_with([]))


@pytest.mark.parametrize("args", DIFFERENT, ids=" ".join)
def test_pods_that_vllm_refuses_to_pair_have_different_labels(
    hashes: dict[str, str | None], args: list[str]
) -> None:
    assert hashes[str(args)] not in (None, hashes["[]"])
    assert label_of(decode_with(args)) != label_of(decode_with([]))


@pytest.mark.parametrize("args", STRICTER, ids=" ".join)
def test_what_vllm_would_pair_in_error_has_different_labels(
    hashes: dict[str, str | None], args: list[str]
) -> None:
    assert hashes[str(args)] == hashes["[]"]
    assert label_of(decode_with(args)) != label_of(decode_with([]))


def test_the_hash_is_the_one_that_pods_exchange(
    hashes: dict[str, str | None], prefill: Pod, decode: Pod
) -> None:
    text_of(transferred(prefill, decode, prompt()))
    assert f"NIXL compatibility check passed (hash: {hashes['[]']})" in decode.log.read_text()


@pytest.mark.parametrize("args", [["--dtype=bfloat16"], ["--disable-hybrid-kv-cache-manager"]], ids=" ".join)
def test_with_another_label_the_handshake_fails_and_so_does_the_request(
    start: Starter, prefill: Pod, numbers: Numbers, args: list[str]
) -> None:
    assert label_of(decode_with(args)) != label_of(prefill.container)
    with start.start(decode_with(args)) as other:
        numbers[f"start of decode with {args[0]}"] = f"{other.wait_until_ready():.0f} s"
        answer = transferred(prefill, other, prompt())
        log = other.log.read_text()
    assert answer.status == 500, answer
    assert "NIXL compatibility hash mismatch" in log


def decode_with(args: list[str]) -> Container:
    return containers(resource(decode={"args": args}))[RoleName.DECODE]


def label_of(container: Container) -> str:
    return container.labels[KV_COMPATIBILITY_LABEL]
