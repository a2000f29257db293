"""The operator as a later release might be: it renders pods differently, under a higher revision."""

from __future__ import annotations

from typing import Any

from disagg.api.names import Workload
from disagg.api.resource import DisaggregatedInference
from disagg.build import pod_template
from disagg.build.strategic_merge import merge
from disagg.cli import app

_rendered_today = pod_template._pod_template  # noqa: SLF001 - this file stands for a later release


def _rendered_later(resource: DisaggregatedInference, workload: Workload) -> dict[str, Any]:
    later = {"metadata": {"annotations": {"example.com/renderer": "newer"}}}
    return merge(_rendered_today(resource, workload), later)


pod_template._pod_template = _rendered_later  # noqa: SLF001
pod_template.RENDER_REVISION += 1

if __name__ == "__main__":
    app()
