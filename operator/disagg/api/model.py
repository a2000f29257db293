"""Which model is served, and where its files come from."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from disagg.api.fields import Block, KubernetesName, cel, rules

_HUB = r"hf://[^/\s]+/[^/\s]+"
_CLAIM = r"pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/\S*)?"
_IMAGE = r"oci://[^/\s]\S*"
_PATH = r"/\S*"


class ModelSource(StrEnum):
    """Where files come from, as the scheme of a URI tells."""

    HUB = "hf"
    CLAIM = "pvc"
    OCI = "oci"
    PATH = "path"


def source_of(uri: str) -> ModelSource:
    """The scheme of a model's or an adapter's URI."""
    scheme, separator, _ = uri.partition("://")
    return ModelSource(scheme) if separator else ModelSource.PATH


class TokenSecret(Block):
    """Where the Hugging Face token is."""

    name: KubernetesName
    """Name of a Secret in the resource's namespace."""
    key: Annotated[str, Field(min_length=1, max_length=253)] = "token"
    """Key in that Secret."""


class ModelCache(Block):
    """Where downloads from the Hugging Face hub are kept."""

    claim: KubernetesName
    """Name of a PersistentVolumeClaim in the resource's namespace. All pods mount it: on more than one node it must be
    ReadWriteMany."""


class LoraAdapter(Block):
    """A LoRA adapter that requests can ask for."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\s=,{}]+$")]
    """Name that requests ask for, as they ask for a model."""
    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=rf"^({_HUB}|{_CLAIM}|{_PATH})$")]
    """`hf://organisation/name`, `pvc://claim/path`, or the absolute path of an adapter in the image."""


class Lora(Block):
    """LoRA adapters. Prefill and decode load the same ones: the KV cache of an adapter is its own."""

    adapters: Annotated[
        list[LoraAdapter],
        Field(
            min_length=1,
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ]
    """The adapters, each name once."""
    max_adapters: Annotated[int, Field(ge=1, le=1024)] | None = None
    """How many different adapters one batch may use: each takes a slot of GPU memory. Default: the number of adapters,
    at most 8."""
    max_rank: Annotated[int, Field(ge=1, le=512)] | None = None
    """Largest rank of an adapter. Default: the engine's own, 16 in vLLM."""


class Model(Block):
    """The model to serve."""

    model_config = rules(
        cel(
            "!has(self.revision) || self.uri.startsWith('hf://')",
            "'revision is for models on the Hugging Face hub: remove it, or use a uri that begins with hf://'",
            field=".revision",
        ),
        cel(
            "!has(self.path) || self.uri.startsWith('oci://')",
            "'path is for models in an OCI image: with pvc:// it is a part of the uri'",
            field=".path",
        ),
        cel(
            "!(self.uri.startsWith('pvc://') || self.uri.startsWith('oci://')) || !self.uri.contains('..')",
            "'uri must not lead out of its volume: remove ..'",
            field=".uri",
        ),
        cel(
            "!has(self.path) || !self.path.contains('..')",
            "'path must not lead out of its image: remove ..'",
            field=".path",
        ),
        cel(
            "!has(self.lora) || !has(self.servedName) || !self.lora.adapters.exists(a, a.name == self.servedName)",
            "'an adapter has the name ' + self.servedName + ' of the model, and requests ask for both by name: rename one'",
            field=".lora",
        ),
        cel(
            "!has(self.cache) || self.uri.startsWith('hf://')",
            "'cache is for models on the Hugging Face hub: others are mounted, not downloaded'",
            field=".cache",
        ),
        cel(
            "!has(self.offline) || !self.offline || !self.uri.startsWith('hf://') || has(self.cache)",
            "'offline needs the files of ' + self.uri + ' in a volume:"
            " set model.cache.claim to one that holds them, or use pvc:// or oci://'",
            field=".offline",
        ),
    )

    uri: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=rf"^({_HUB}|{_CLAIM}|{_IMAGE}|{_PATH})$"),
    ]
    """`hf://organisation/name` for a model on the Hugging Face hub, `pvc://claim/path` for one in a
    PersistentVolumeClaim, `oci://registry/image:tag` for one in an OCI image, which is mounted, or the absolute path of a
    model in the engine's image."""
    revision: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^\S+$")] | None = None
    """Branch, tag or commit on the Hugging Face hub."""
    path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^/\s]\S*$")] | None = None
    """Folder of the model in an OCI image. Default: the root of the image."""
    served_name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^\S+$")] | None = None
    """Name that requests ask for. Default: the last part of the URI, without the tag of an OCI image."""
    token_secret: TokenSecret | None = None
    """Secret with the token for gated models; becomes HF_TOKEN."""
    cache: ModelCache | None = None
    """Volume that keeps downloads from the Hugging Face hub. Default: a folder that lives as long as the pod."""
    offline: bool = False
    """true: nothing is looked up on the Hugging Face hub, so that pods start without a way to the internet."""
    lora: Lora | None = None
    """LoRA adapters that are served beside the model."""

    @property
    def source(self) -> ModelSource:
        """Where its files come from."""
        return source_of(self.uri)

    @property
    def name(self) -> str:
        """Name that requests ask for."""
        if self.served_name is not None:
            return self.served_name
        uri = (
            re.sub(r"(@sha256:[0-9a-f]+|:[\w.-]+)$", "", self.uri)
            if self.source is ModelSource.OCI
            else self.uri
        )
        return uri.rstrip("/").rsplit("/", 1)[-1] or self.uri
