"""Files of containers that are written in annotations of their pods, and mounted from there.

Such a file belongs to the pod template: it is rolled out and rolled back with it, and no ConfigMap has to be kept for as long as
a pod of an older template runs.
"""

from __future__ import annotations

from disagg.build.volumes import Volume

ENGINE_FILE_ANNOTATION = "disagg.dev/engine-config"
"""Annotation that holds the engine's configuration file."""
ROUTER_FILE_ANNOTATION = "disagg.dev/router-config"
"""Annotation that holds the router's configuration file."""


def annotation_file(volume: str, annotation: str, *, folder: str, name: str) -> Volume:
    """A volume that shows a container an annotation of its pod as a file.

    Args:
        volume: Name of the volume.
        annotation: The annotation.
        folder: Folder in which the container has the file.
        name: Name of the file.
    """
    field = {"fieldPath": f"metadata.annotations['{annotation}']"}
    items = [{"path": name, "fieldRef": field}]
    return Volume(volume, {"downwardAPI": {"items": items}}, folder, read_only=True)
