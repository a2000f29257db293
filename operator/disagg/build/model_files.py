"""Where the files of the model and of its LoRA adapters are in the engine's container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from disagg.api.model import Model, ModelSource, source_of
from disagg.build.volumes import Volume, claim, empty

MODEL_PATH = "/model"
CACHE_PATH = "/var/cache/huggingface"
ADAPTERS_PATH = "/adapters"


@dataclass(frozen=True)
class ModelFiles:
    """Files of the model.

    Attributes:
        model: What an engine is told to load: a name on the Hugging Face hub, or a path.
        local: Whether that is a path.
        revision: Branch, tag or commit on the hub, or None.
        adapters: Name of a LoRA adapter -> what an engine is told to load.
        volumes: Volumes that hold them.
        env: Environment that the hub's libraries read.
    """

    model: str
    local: bool
    revision: str | None
    adapters: dict[str, str]
    volumes: list[Volume]
    env: list[dict[str, Any]]


def model_files(model: Model) -> ModelFiles:
    """Where the files of a model are."""
    volumes, env = list[Volume](), list[dict[str, Any]]()
    if model.source is ModelSource.CLAIM:
        name, _, folder = model.uri.removeprefix("pvc://").partition("/")
        volumes.append(claim("model", name, MODEL_PATH, read_only=True))
        argument = _below(MODEL_PATH, folder)
    elif model.source is ModelSource.OCI:
        volumes.append(
            Volume(
                "model",
                {"image": {"reference": model.uri.removeprefix("oci://")}},
                MODEL_PATH,
                read_only=True,
            )
        )
        argument = _below(MODEL_PATH, model.path or "")
    else:
        argument = model.uri.removeprefix("hf://")
    adapters = {
        adapter.name: _adapter(adapter.uri, volumes)
        for adapter in (model.lora.adapters if model.lora else [])
    }
    if model.source is ModelSource.HUB or any(
        source_of(adapter.uri) is ModelSource.HUB for adapter in (model.lora.adapters if model.lora else [])
    ):
        # Also without a claim: a container that crashes must not download the model again.
        cache = "model-cache"
        volumes.append(
            claim(cache, model.cache.claim, CACHE_PATH) if model.cache else empty(cache, CACHE_PATH)
        )
        env.append({"name": "HF_HOME", "value": CACHE_PATH})
    if model.offline:
        env += [{"name": name, "value": "1"} for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")]
    if (secret := model.token_secret) is not None:
        source = {"secretKeyRef": {"name": secret.name, "key": secret.key}}
        env.append({"name": "HF_TOKEN", "valueFrom": source})
    return ModelFiles(
        model=argument,
        local=model.source is not ModelSource.HUB,
        revision=model.revision,
        adapters=adapters,
        volumes=volumes,
        env=env,
    )


def _adapter(uri: str, volumes: list[Volume]) -> str:
    """What an engine is told to load for an adapter; a claim that it needs is added to `volumes`, once."""
    if source_of(uri) is not ModelSource.CLAIM:
        return uri.removeprefix("hf://")
    name, _, folder = uri.removeprefix("pvc://").partition("/")
    for volume in volumes:
        if volume.source == {"persistentVolumeClaim": {"claimName": name}}:
            return _below(volume.path, folder)
    path = f"{ADAPTERS_PATH}/{name}"
    number = sum(volume.name.startswith("adapters-") for volume in volumes)
    volumes.append(claim(f"adapters-{number}", name, path, read_only=True))
    return _below(path, folder)


def _below(path: str, folder: str) -> str:
    return f"{path}/{folder}".rstrip("/")
