"""What the two ends of a transfer between vLLM pods have to share, read from a finished pod template.

The items are those of `compute_nixl_compatibility_hash` (vllm/distributed/kv_transfer/kv_connector/v1/nixl/metadata.py) and
of the checks that follow it, as the release has them, and those that nothing checks and without which the text is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from disagg.build.engines.engine import PodTemplateBody, engine_container
from disagg.build.engines.flags import flags
from disagg.build.engines.version import Release, release, told
from disagg.build.engines.vllm_releases import (
    ATTENTION_FLAG,
    ATTENTION_VARIABLE,
    COMPARES_HYBRID,
    COMPARES_SPECULATION,
    CROSS_LAYERS,
    HYBRID_BY_CONNECTOR,
    SAME_BLOCK_SIZE,
    known,
)

_ALIASES = {
    "-ac": "--attention-config",
    "-sc": "--speculative-config",
    "--enable-hybrid-kv-cache-manager": "--no-disable-hybrid-kv-cache-manager",
}
_HYBRID = "--disable-hybrid-kv-cache-manager"
_DTYPES = {"half": "float16", "float": "float32"}
"""Other names of the same format (vllm/config/model.py)."""
_NOT_GIVEN = "auto"
_VERSION = re.compile(r":v?(\d+\.\d+\.\d+(?:(?:rc|\.post|\.dev)\d+)?)(?=[-+_@]|$)")
"""A release in an image's tag. What follows a dash is a variant of the image, such as `-cu129`."""
_HYBRID_CONNECTORS = frozenset(
    {
        "NixlConnector",
        "NixlPullConnector",
        "NixlPushConnector",
        "MooncakeConnector",
        "MooncakeStoreConnector",
        "OffloadingConnector",
        "SimpleCPUOffloadConnector",
        "DecodeBenchConnector",
    }
)
"""Connectors that work with the hybrid KV cache manager (`SupportsHMA`) since vLLM asks them."""
_OWN_DRAFTS = frozenset(
    {"ngram", "ngram_gpu", "suffix", "draft_model", "custom_class", "extract_hidden_states"}
)
"""Methods of speculative decoding that need no hidden states of the model (`SpeculativeConfig.use_eagle`)."""


def compatibility(template: PodTemplateBody) -> dict[str, str]:
    """What the two ends of a transfer compare: item -> value.

    A default that is given counts like one that is not.

    Args:
        template: A finished pod template.
    """
    container = engine_container(template)
    if not container:
        return {}
    image = str(container.get("image", ""))
    version = told(template)
    found = known(release(version, image))
    args, env = _arguments(container), _environment(container)
    given = flags(
        args,
        "--model",
        "--revision",
        "--dtype",
        "--kv-cache-dtype",
        "--block-size",
        "--attention-backend",
        _HYBRID,
        aliases=_ALIASES,
    )
    transfer = _structured(args, "--kv-transfer-config")
    connectors = _connectors(transfer)
    mover = connectors[0] if connectors else {}
    name = str(mover.get("kv_connector") or "none")
    nixl = name.startswith("Nixl")
    cache = given.get("--kv-cache-dtype", _NOT_GIVEN)
    items = {
        "vLLM": version or (tag[1] if (tag := _VERSION.search(image)) else image),
        "model": _model(args, given, env),
        # Nothing compares it, and the KV cache of another revision is that of another model.
        "revision": given.get("--revision", "main"),
        "dtype": _DTYPES.get(dtype := given.get("--dtype", _NOT_GIVEN), dtype),
        "KV cache dtype": cache,
        "attention backend": _attention_backend(args, given, env, found),
        "KV cache layout": env.get("VLLM_KV_CACHE_LAYOUT", _NOT_GIVEN),
        "connector": "NixlConnector" if nixl else name,
        "transport": _transport(mover),
    }
    if found in SAME_BLOCK_SIZE or not nixl or mover.get("kv_buffer_device") == "cpu":
        items["block size"] = given.get("--block-size", _NOT_GIVEN)
    if found in COMPARES_HYBRID:
        items["hybrid KV cache manager"] = _hybrid(given, connectors, found)
    if found in CROSS_LAYERS:
        items["cross-layer blocks"] = str(_extra(mover).get("enable_cross_layers_blocks", False)).lower()
    if found in COMPARES_SPECULATION:
        items["transfer mode"] = "push" if name == "NixlPushConnector" else "pull"
        items["speculative decoding"] = _speculation(args, cache)
    if name.startswith("LMCache"):
        # Chunks are found by hashes that Python seeds.
        items["PYTHONHASHSEED"] = env.get("PYTHONHASHSEED", "random")
    return items


def _arguments(container: Mapping[str, Any]) -> list[str]:
    """The arguments of `vllm serve`."""
    words = [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    return words[words.index("serve") + 1 :] if "serve" in words else words


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    """Variables by name; one that is taken from elsewhere is told by where from."""
    return {
        variable["name"]: str(variable["value"])
        if "value" in variable
        else json.dumps(variable.get("valueFrom"), sort_keys=True)
        for variable in container.get("env") or []
    }


def _model(args: Sequence[str], given: Mapping[str, str], env: Mapping[str, str]) -> str:
    model = args[0] if args and not args[0].startswith("-") else given.get("--model", _NOT_GIVEN)
    if env.get("HF_HUB_OFFLINE", "0").lower() not in ("1", "true", "yes", "on") or model.startswith("/"):
        return model
    # Offline, vLLM puts the folder of the files in the name's place.
    return f"{model} in {env.get('HF_HUB_CACHE') or env.get('HF_HOME') or 'the default cache'}"


def _attention_backend(
    args: Sequence[str], given: Mapping[str, str], env: Mapping[str, str], found: Release
) -> str:
    by_variable = env.get("VLLM_ATTENTION_BACKEND") if found in ATTENTION_VARIABLE else None
    by_flag = given.get("--attention-backend") if found in ATTENTION_FLAG else None
    by_config = _structured(args, "--attention-config").get("backend") if found in ATTENTION_FLAG else None
    return str(by_flag or by_config or by_variable or _NOT_GIVEN).upper()


def _connectors(transfer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The connector that moves KV cache, and those beside it."""
    if transfer.get("kv_connector") != "MultiConnector":
        return [transfer] if transfer else []
    children = [child for child in _extra(transfer).get("connectors") or [] if isinstance(child, Mapping)]
    movers = ("Nixl", "Mooncake", "LMCache")
    return sorted(children, key=lambda child: not str(child.get("kv_connector")).startswith(movers))


def _extra(connector: Mapping[str, Any]) -> Mapping[str, Any]:
    extra = connector.get("kv_connector_extra_config")
    return extra if isinstance(extra, Mapping) else {}


def _transport(connector: Mapping[str, Any]) -> str:
    """What moves the bytes: NIXL's backends, or Mooncake's protocol."""
    name = str(connector.get("kv_connector"))
    if name.startswith("Nixl"):
        return ",".join(map(str, _extra(connector).get("backends") or ["UCX"]))
    if name == "MooncakeConnector":
        return str(_extra(connector).get("mooncake_protocol", "rdma"))
    return "its own"


def _hybrid(given: Mapping[str, str], connectors: Sequence[Mapping[str, Any]], found: Release) -> str:
    if _HYBRID in given:
        return "off" if given[_HYBRID] == "true" else "on"
    if found not in HYBRID_BY_CONNECTOR:
        return "off"
    able = all(connector.get("kv_connector") in _HYBRID_CONNECTORS for connector in connectors)
    return "on" if able else "off"


def _speculation(args: Sequence[str], cache: str) -> str:
    """What decides about the hidden states that go along, if any do."""
    config = _structured(args, "--speculative-config")
    short = flags(args, "--spec-method", "--spec-model")
    config |= {key: short[flag] for flag, key in _SPECULATION.items() if flag in short}
    method = str(config.get("method") or _NOT_GIVEN)
    if not config or method in _OWN_DRAFTS:
        return "none"
    compared = {
        "method": "mtp" if method.endswith("_mtp") else method,
        "model": config.get("model"),
        "revision": config.get("revision"),
        "code_revision": config.get("code_revision"),
        "parallel_drafting": bool(config.get("parallel_drafting")),
        "kv_cache_dtype": config.get("kv_cache_dtype") or cache,
    }
    return json.dumps(compared, sort_keys=True)


_SPECULATION = {"--spec-method": "method", "--spec-model": "model"}


def _structured(args: Sequence[str], name: str) -> dict[str, Any]:
    """The value of a flag that takes JSON.

    vLLM's parser has a dotted form, `--name.key.key=value`. It makes one value of all of these and puts it last, so that it
    replaces JSON given as a whole (vllm/utils/argparse_utils.py).
    """
    dotted = dict[str, Any]()
    heads = [name, *(alias for alias, long in _ALIASES.items() if long == name)]
    pattern = re.compile(rf"(?:{'|'.join(map(re.escape, heads))})\.([^=]+)(?:=(.*))?", re.DOTALL)
    for number, arg in enumerate(args):
        if (found := pattern.fullmatch(_dashed(arg))) is None:
            continue
        following = args[number + 1] if number + 1 < len(args) else ""
        value: Any = found[2] if found[2] is not None else following
        *path, last = found[1].split(".")
        if last.endswith("+"):
            last, value = last[:-1], value.split(",")
        else:
            value = _json(value)
        block = dotted
        for key in path:
            block = block.setdefault(key, {})
        block[last] = value
    if dotted:
        return dotted
    whole = _json(flags(args, name, aliases=_ALIASES).get(name, ""))
    return dict(whole) if isinstance(whole, Mapping) else {}


def _dashed(arg: str) -> str:
    """An argument with dashes in the part of its name that stands before the first dot."""
    head, dot, rest = arg.partition(".")
    return head.replace("_", "-") + dot + rest if "=" not in head else arg


def _json(text: str) -> Any:  # noqa: ANN401 - whatever it is
    try:
        return json.loads(text)
    except ValueError:
        return text
