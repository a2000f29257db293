"""Labels that tell a running pod's pack domain and levels, for routers: they read pods and have no right to read nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from disagg.api.names import DOMAIN_LABEL, LEVEL_LABELS, PLACEMENT, RoleName
from disagg.cluster.client import Object
from disagg.topology.groups import GroupKey, group_pod

_TEMPLATE = "pod-template-hash"
"""The label by which the Deployment controller tells pods of different templates apart."""


@dataclass(frozen=True, slots=True)
class OwnPod:
    """A running pod of a group.

    Attributes:
        name: Its name.
        uid: Its uid.
        group: Its group.
        role: Its role.
        node: The node it is bound to.
        loading: Whether it has never served: nobody misses it.
        version: Its resourceVersion.
        placement: Identity of the placement that it was made for.
        template: Hash of the template that it was made from.
        labels: What it is labelled with already of what this module labels.
    """

    name: str
    uid: str
    group: GroupKey
    role: RoleName
    node: str
    loading: bool
    version: str
    placement: str
    template: str
    labels: tuple[tuple[str, str], ...]


@dataclass
class OwnPods:
    """The running pods of all groups: fewer by far than those of the cluster."""

    _pods: dict[str, OwnPod] = field(default_factory=dict)
    _groups: dict[GroupKey, set[str]] = field(default_factory=dict)

    def put(self, raw: Object) -> None:
        """Take over a pod, whoever it belongs to."""
        uid = raw["metadata"]["uid"]
        self.remove(uid)
        pod = group_pod(raw)
        if pod is None or not pod.node or pod.terminating:
            return
        metadata = raw["metadata"]
        labels = metadata.get("labels", {})
        self._pods[uid] = OwnPod(
            name=metadata["name"],
            uid=uid,
            group=pod.group,
            role=pod.role,
            node=pod.node,
            loading=_is_loading(raw.get("status") or {}),
            version=metadata.get("resourceVersion", ""),
            placement=labels.get(PLACEMENT, ""),
            template=labels.get(_TEMPLATE, ""),
            labels=tuple(sorted(item for item in labels.items() if _is_told(item[0]))),
        )
        self._groups.setdefault(pod.group, set()).add(uid)

    def remove(self, uid: str) -> None:
        """Forget a pod."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._groups[pod.group].discard(uid)
        if not self._groups[pod.group]:
            del self._groups[pod.group]

    def of(self, group: GroupKey) -> list[OwnPod]:
        """The running pods of a group, by name."""
        return sorted((self._pods[uid] for uid in self._groups.get(group, ())), key=lambda pod: pod.name)


def wanted_labels(node_labels: Mapping[str, str], key: str, levels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a pod.

    Args:
        node_labels: Labels of its node.
        key: The node label whose value is its pack domain.
        levels: Name of a level -> key of the node label for it.
    """
    labels = {
        f"{LEVEL_LABELS}{level}": node_labels[name] for level, name in levels.items() if name in node_labels
    }
    if key in node_labels:
        labels[DOMAIN_LABEL] = node_labels[key]
    return labels


def _is_loading(status: Object) -> bool:
    """Whether a container has yet to come up for the first time. A container beside the engine may be up long before."""
    containers = status.get("containerStatuses") or ()
    if any(container.get("restartCount") for container in containers):
        return False
    return not containers or any(not (item.get("started") or item.get("ready")) for item in containers)


def _is_told(label: str) -> bool:
    return label == DOMAIN_LABEL or label.startswith(LEVEL_LABELS)
