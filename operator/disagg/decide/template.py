"""Which pod template a Deployment gets: the one rendered now, or the one it has.

A new release of the operator may render better pods. It must not restart running ones for that: models load for
minutes, and a fleet would reload at once. So the template of a Deployment is taken anew only when the user changed
something that it is rendered from, or when it is no longer what the operator made.
"""

from __future__ import annotations

from typing import Any

from disagg.api.names import FIELD_MANAGER, RENDER_REVISION, TEMPLATE_INPUTS
from disagg.decide import ownership
from disagg.decide.decisions import Template


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
