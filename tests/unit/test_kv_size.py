"""Bytes of KV cache of published models. The expected values follow from each model's config.json."""

from __future__ import annotations

import pytest

from disagg.api.engine import KVCacheDtype
from disagg.build.kv_size import shape_of, transfer_milliseconds, transferred_bytes


@pytest.mark.parametrize(
    ("uri", "bfloat16", "fp8"),
    [
        ("hf://RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 327_680, 163_840),
        ("hf://meta-llama/Llama-3.1-8B-Instruct", 131_072, 65_536),
        ("hf://meta-llama/Llama-3.1-405B", 516_096, 258_048),
        ("pvc://models/Qwen3-0.6B", 114_688, 57_344),
        ("oci://example.com/models/qwen3-8b:1", 147_456, 73_728),
        ("hf://Qwen/Qwen3-32B", 262_144, 131_072),
        ("hf://Qwen/Qwen3-30B-A3B", 98_304, 49_152),
        ("hf://Qwen/Qwen3-235B-A22B-Instruct", 192_512, 96_256),
        ("hf://deepseek-ai/DeepSeek-R1", 70_272, 35_136),
        ("/models/DeepSeek-V3", 70_272, 35_136),
        ("hf://openai/gpt-oss-120b", 36_864, 18_432),
        ("hf://openai/gpt-oss-20b", 24_576, 12_288),
    ],
)
def test_a_token_of_a_known_model_has_so_many_bytes(uri: str, bfloat16: int, fp8: int) -> None:
    assert transferred_bytes(uri, None, 1, 1) == bfloat16
    assert transferred_bytes(uri, KVCacheDtype.FP8, 1, 1) == fp8


@pytest.mark.parametrize(
    "uri", ["hf://org/llama", "hf://deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "hf://Qwen/Qwen3-1.7B"]
)
def test_of_another_model_nothing_is_claimed(uri: str) -> None:
    assert shape_of(uri) is None
    assert transferred_bytes(uri, None, 1, 1000) is None


def test_each_rank_of_decode_pulls_a_copy_of_latent_attention() -> None:
    assert transferred_bytes("hf://deepseek-ai/DeepSeek-R1", None, 8, 1000) == 8 * 70_272_000


def test_ranks_of_decode_share_the_heads_of_grouped_attention() -> None:
    assert transferred_bytes("hf://Qwen/Qwen3-32B", None, 8, 1000) == 262_144_000


def test_a_transfer_takes_nine_tenths_of_the_link() -> None:
    # 4,096 tokens of Llama 3.3 70B in bfloat16: 1.34 GB.
    assert round(transfer_milliseconds(1_342_177_280, 400)) == 30
    assert round(transfer_milliseconds(1_342_177_280, 10)) == 1193
