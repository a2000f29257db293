"""Which pod template a Deployment gets: the one rendered now, or the one it has.

A new release of the operator may render better pods. It must not restart running ones for that: models load for
minutes, and a fleet would reload at once. So the template of a Deployment is taken anew only when the user changed
something that it is rendered from, when it is no longer what the operator made, or when the other role got a new one that
it could not exchange KV cache with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from disagg.api.names import ENGINE_ROLES, FIELD_MANAGER, RENDER_REVISION, TEMPLATE_INPUTS, Workload
from disagg.decide import ownership
from disagg.decide.decisions import Template
from disagg.decide.observed import Observed

Agree = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]
"""Whether pods of two templates, of prefill and of decode, can exchange KV cache."""


def choose_templates(
    rendered: Mapping[Workload, Template], observed: Observed, agree: Agree
) -> dict[Workload, Template]:
    """The templates to apply.

    Where a role gets the template of this release, and the other role has one of an earlier release that could not exchange
    KV cache with it, the other role gets that of this release as well.

    Args:
        rendered: The templates as this release renders them.
        observed: The live children of the resource.
        agree: Whether two templates can exchange KV cache.
    """
    chosen = {
        workload: choose_template(template, observed.deployment(workload))
        for workload, template in rendered.items()
    }
    for group in {workload.group for workload in rendered}:
        pair = [workload for role in ENGINE_ROLES if (workload := Workload(role, group)) in rendered]
        kept = [workload for workload in pair if chosen[workload] is not rendered[workload]]
        if len(pair) == len(kept) or not kept or agree(*(chosen[workload].body for workload in pair)):
            continue
        # What a user's overlay keeps apart, no release brings together.
        if agree(*(rendered[workload].body for workload in pair)):
            chosen |= {workload: rendered[workload] for workload in kept}
    return chosen


def choose_template(rendered: Template, live: dict[str, Any] | None) -> Template:
    """The template to apply.

    Args:
        rendered: The template as this release renders it.
        live: The role's Deployment, or None.

    Returns:
        `rendered`, or the live template with its own revision.
    """
    if live is None:
        return rendered
    annotations = live["metadata"].get("annotations", {})
    revision = annotations.get(RENDER_REVISION, "")
    if annotations.get(TEMPLATE_INPUTS) != rendered.inputs or not revision.isdecimal():
        return rendered
    if int(revision) == rendered.revision or _taken_over(rendered.body, live):
        return rendered
    tree = ownership.subtree(ownership.applied_fields(live, FIELD_MANAGER), "spec", "template")
    if not tree:
        return rendered
    return Template(
        body=ownership.extract(tree, live["spec"]["template"]), revision=int(revision), inputs=rendered.inputs
    )


def _taken_over(body: dict[str, Any], live: dict[str, Any]) -> bool:
    """Whether somebody has changed a field that belongs to the operator: its pods have restarted already."""
    own = set(
        ownership.leaves(ownership.subtree(ownership.applied_fields(live, FIELD_MANAGER), "spec", "template"))
    )
    return any(
        path not in own and ownership.has(body, path)
        for tree in ownership.other_managers(live, FIELD_MANAGER)
        for path in ownership.leaves(ownership.subtree(tree, "spec", "template"))
    )
