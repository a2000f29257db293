"""Where the pods of a group are packed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator

from disagg.api.fields import Block, cel, rules


class PackMode(StrEnum):
    """How strictly a group is packed."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


_LABEL_KEY = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LabelKey = Annotated[str, Field(min_length=3, max_length=317, pattern=_LABEL_KEY)]


class Levels(Block):
    """Node labels of topology levels, where they differ from those that the operator was installed with."""

    host: LabelKey | None = None
    """Label whose value is the host of a node."""
    rack: LabelKey | None = None
    """Label whose value is the rack of a node: one switch."""
    block: LabelKey | None = None
    """Label whose value is the block of a node: some racks."""
    zone: LabelKey | None = None
    """Label whose value is the zone of a node."""

    def over(self, levels: Mapping[str, str]) -> dict[str, str]:
        """A level map with these labels laid over it."""
        return dict(levels) | self.model_dump(exclude_none=True)


class TopologyConstraint(Block):
    """Where the prefill and decode pods of a group are packed, so that KV cache has a short way."""

    model_config = rules(
        cel(
            f"self.packDomain in ['host', 'rack', 'block', 'zone'] || self.packDomain.matches('{_LABEL_KEY}')",
            "'packDomain \"' + self.packDomain + '\" is no level: use host, rack, block, zone,"
            " or the key of a node label with its prefix, such as example.com/rack'",
            field=".packDomain",
        )
    )

    pack_domain: Annotated[str, Field(min_length=1, max_length=317)]
    """host, rack, block or zone, or the key of a node label such as `example.com/rack`: the pods of a group go where
    this label has one value."""
    mode: PackMode = PackMode.PREFERRED
    """Preferred: pods that find no room in the domain run in another one. Required: they wait."""
    levels: Levels = Levels()
    """Node labels of the levels, for this resource alone."""

    @field_validator("pack_domain")
    @classmethod
    def _is_a_level_or_a_key(cls, value: str) -> str:
        if value not in ("host", "rack", "block", "zone") and not re.fullmatch(_LABEL_KEY, value):
            raise ValueError("use host, rack, block, zone, or the key of a node label with its prefix")
        return value
