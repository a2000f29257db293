"""YAML for readers: fields in the order in which they were put, and no anchors, which some GitOps tools refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - the base class takes any node
        del data
        return True


def dump(documents: Iterable[Any], *, explicit_start: bool = False) -> str:
    """The text of `documents`.

    Args:
        documents: What the text is to hold.
        explicit_start: Whether each begins with `---`, even if there is only one.
    """
    text: str = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        width=120,
        allow_unicode=True,
        explicit_start=explicit_start,
    )
    return text
