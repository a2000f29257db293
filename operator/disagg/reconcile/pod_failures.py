"""The pods that do not come up, by resource: what a Deployment does not tell of its pods."""

from __future__ import annotations

from dataclasses import dataclass, field

from disagg.assess.pod_failure import PodFailure, pod_failure
from disagg.cluster.client import Object
from disagg.reconcile.queue import Key


@dataclass
class PodFailures:
    """Pods of resources that do not come up: few, or none."""

    _pods: dict[str, PodFailure] = field(default_factory=dict)
    _of: dict[Key, set[str]] = field(default_factory=dict)

    def put(self, raw: Object) -> Key | None:
        """Take over a pod, whoever it belongs to.

        Returns:
            The pod's resource, if there is something else to say of the pod now.
        """
        uid, failure = raw["metadata"]["uid"], pod_failure(raw)
        if failure == self._pods.get(uid):
            return None
        before = self.remove(uid)
        if failure is None:
            return before
        self._pods[uid] = failure
        key = _key(failure)
        self._of.setdefault(key, set()).add(uid)
        return key

    def remove(self, uid: str) -> Key | None:
        """Forget a pod.

        Returns:
            The pod's resource, if there was something to say of the pod.
        """
        failure = self._pods.pop(uid, None)
        if failure is None:
            return None
        key = _key(failure)
        self._of[key].discard(uid)
        if not self._of[key]:
            del self._of[key]
        return key

    def of(self, key: Key) -> list[PodFailure]:
        """What there is to say of the pods of a resource."""
        return [self._pods[uid] for uid in self._of.get(key, ())]


def _key(failure: PodFailure) -> Key:
    return Key(failure.group.namespace, failure.group.name)
