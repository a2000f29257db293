"""A Llama of two layers with random weights, for tests of what moves between engines, not of what they say.

Its tokenizer knows printable ASCII, a token for each character: the length of a prompt is its number of tokens, one more for the
first. The weights are large enough for each token to depend on all that are before it, so that KV cache that is wrong shows in
the text.
"""

import json
import random
import struct
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

LAYERS: Final = 2
KV_HEADS: Final = 2
HEAD_SIZE: Final = 32
_HEADS: Final = 4
_HIDDEN: Final = _HEADS * HEAD_SIZE
_MLP: Final = 256
_RANK: Final = 8
"""Of an adapter."""
_SPREAD: Final = 0.2
"""Standard deviation of the weights."""
_ATTENTION_SPREAD: Final = 0.1
"""The same of queries and keys: with larger ones a token would look at a few others only."""
BYTES_PER_VALUE: Final = 4
"""Of its float32 weights, and of its KV cache."""

_FIRST, _LAST = "<s>", "</s>"
# A space and a line break are written so in byte-level vocabularies.
_CHARACTERS: Final = ["\u0120", "\u010a", *map(chr, range(33, 127))]
_VOCABULARY: Final = [_FIRST, _LAST, *_CHARACTERS]


def write(folder: Path) -> None:
    """Write the model's files; they are the same each time.

    Args:
        folder: Where; it is made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", _config()),
        ("tokenizer.json", _tokenizer()),
        ("tokenizer_config.json", _tokenizer_config()),
    ):
        (folder / name).write_text(json.dumps(content, indent=1))
    (folder / "model.safetensors").write_bytes(_safetensors(_shapes()))


def write_adapter(folder: Path) -> None:
    """Write the files of a LoRA adapter of the model, which changes what it says.

    Args:
        folder: Where; it is made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": _RANK,
        "lora_alpha": _RANK,
        "target_modules": ["q_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1))
    (folder / "adapter_model.safetensors").write_bytes(_safetensors(_adapter_shapes()))


def _config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(_VOCABULARY),
        "hidden_size": _HIDDEN,
        "intermediate_size": _MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "float32",
    }


def _tokenizer() -> dict[str, object]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": text,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for number, text in enumerate((_FIRST, _LAST))
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": _FIRST, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {_FIRST: {"id": _FIRST, "ids": [0], "tokens": [_FIRST]}},
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: number for number, text in enumerate(_VOCABULARY)},
            "merges": [],
        },
    }


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": _FIRST,
        "eos_token": _LAST,
        "model_max_length": 8192,
        "chat_template": "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}",
    }


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (len(_VOCABULARY), _HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name, shape in (
            ("input_layernorm", (_HIDDEN,)),
            ("self_attn.q_proj", (_HEADS * HEAD_SIZE, _HIDDEN)),
            ("self_attn.k_proj", (KV_HEADS * HEAD_SIZE, _HIDDEN)),
            ("self_attn.v_proj", (KV_HEADS * HEAD_SIZE, _HIDDEN)),
            ("self_attn.o_proj", (_HIDDEN, _HEADS * HEAD_SIZE)),
            ("post_attention_layernorm", (_HIDDEN,)),
            ("mlp.gate_proj", (_MLP, _HIDDEN)),
            ("mlp.up_proj", (_MLP, _HIDDEN)),
            ("mlp.down_proj", (_HIDDEN, _MLP)),
        ):
            yield f"{prefix}.{name}.weight", shape
    yield "model.norm.weight", (_HIDDEN,)
    yield "lm_head.weight", (len(_VOCABULARY), _HIDDEN)


def _adapter_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    for layer in range(LAYERS):
        prefix = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        yield f"{prefix}.lora_A.weight", (_RANK, _HIDDEN)
        yield f"{prefix}.lora_B.weight", (_HEADS * HEAD_SIZE, _RANK)


def _safetensors(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> bytes:
    """A file of weights: length of the header, the header, the values."""
    draw = random.Random(0)  # noqa: S311 - the same each time is what is wanted
    header, values = dict[str, object](), array("f")
    for name, shape in shapes:
        begin = len(values) * values.itemsize
        if len(shape) == 1:
            values.extend([1.0] * shape[0])
        else:
            spread = _ATTENTION_SPREAD if "q_proj.weight" in name or "k_proj.weight" in name else _SPREAD
            values.extend(draw.gauss(0, spread) for _ in range(shape[0] * shape[1]))
        header[name] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [begin, len(values) * values.itemsize],
        }
    # Loaders of this format by transformers refuse files that do not say so.
    header["__metadata__"] = {"format": "pt"}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values.tobytes()
