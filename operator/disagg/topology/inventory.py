"""What the cluster has and what is taken: fed by the events of nodes and pods, read by `capacity`.

Of a pod it keeps the node and the shared vector of what it takes, of a node the sum over its pods: a cluster has ten
times more pods than nodes, and a pod object is a thousand times larger than either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from disagg.api.names import RoleName
from disagg.topology.amounts import Amounts, Requests, add, freeze, pod_requests
from disagg.topology.claims import Claim, Expected, place
from disagg.topology.eligibility import NodeRules, PodShape, is_eligible
from disagg.topology.groups import GroupKey, GroupPod, GroupPods, count, group_pod
from disagg.topology.nodes import Node, parse_node

_RULES_KEPT = 64
"""Sets of node rules whose eligible nodes are remembered: a fleet has a few templates, each with its own."""


@dataclass(slots=True, eq=False)
class NodeUse:
    """A node and what its pods take.

    Attributes:
        name: Its name.
        node: The node, or None while only its pods are known.
        used: Sum over its pods.
        pods: How many there are.
        groups: Pods of each group there.
    """

    name: str
    node: Node | None = None
    used: Amounts = field(default_factory=dict)
    pods: int = 0
    groups: Counter[GroupKey] = field(default_factory=Counter)


class Inventory:
    """Nodes, what their pods take, the pods of groups, and claims.

    Attributes:
        knows_nodes: False where the operator has no right to read nodes. No domain is known then.
    """

    def __init__(self, *, knows_nodes: bool = True) -> None:
        self.knows_nodes = knows_nodes
        self._uses: dict[str, NodeUse] = {}
        self._pods: dict[str, tuple[NodeUse, Requests]] = {}
        """By uid: pods that are bound."""
        self._own: dict[str, GroupPod] = {}
        """By uid: pods of groups, bound or not."""
        self._groups: dict[GroupKey, set[str]] = {}
        self._claims: dict[GroupKey, Claim] = {}
        self._expected: dict[GroupKey, tuple[Expected, ...]] = {}
        """What is outstanding of a claim. Found when it is asked for, forgotten when it may change."""
        self._domains: dict[str, dict[str, list[NodeUse]]] = {}
        self._eligible: dict[NodeRules, tuple[PodShape, set[str]]] = {}

    def put_node(self, raw: Mapping[str, Any]) -> bool:
        """Take over a node. Returns whether anything changed that matters to where pods go."""
        node = parse_node(raw)
        use = self._use(node.name)
        before, use.node = use.node, node
        if node == before:
            return False
        if before is None or before.labels != node.labels:
            self._forget_domains()
        for shape, names in self._eligible.values():
            (names.add if is_eligible(node, shape) else names.discard)(node.name)
        return True

    def remove_node(self, name: str) -> bool:
        """Forget a node, not the pods that still claim to be there. Returns whether it was known."""
        use = self._uses.get(name)
        if use is None or use.node is None:
            return False
        use.node = None
        self._forget_domains()
        for _, names in self._eligible.values():
            names.discard(name)
        self._drop_if_empty(use)
        return True

    def retain_nodes(self, names: Collection[str]) -> set[GroupKey]:
        """Forget the nodes that a fresh list does not have. Returns the groups with pods there."""
        kept = names if isinstance(names, AbstractSet) else set(names)
        gone = [name for name, use in self._uses.items() if use.node is not None and name not in kept]
        affected: set[GroupKey] = set()
        for name in gone:
            affected |= self.groups_on(name)
            self.remove_node(name)
        return affected

    def put_pod(self, raw: Mapping[str, Any]) -> GroupKey | None:
        """Take over a pod. One that is being deleted holds its resources until it is gone.

        Returns:
            The pod's group, if it has one and the pod is new there or was bound, found unschedulable, told to
            terminate, finished or relabelled.
        """
        uid: str = raw["metadata"]["uid"]
        status = raw.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return self.remove_pod(uid)
        spec = raw["spec"]
        if node := spec.get("nodeName"):
            requests = freeze(pod_requests(spec, status))
            held = self._pods.get(uid)
            if held is None or held[1] != requests or held[0].name != node:
                use = self._use(node)
                self._pods[uid] = use, requests
                add(use.used, requests)
                use.pods += 1
                # Afterwards: a node of which nothing else is known goes with its last pod.
                self._let_go(held)
        else:
            self._let_go(self._pods.pop(uid, None))
        return self._put_own(uid, group_pod(raw))

    def remove_pod(self, pod: Mapping[str, Any] | str) -> GroupKey | None:
        """Forget a pod, given as object or uid. Returns its group, if it had one."""
        uid: str = pod if isinstance(pod, str) else pod["metadata"]["uid"]
        group = self._put_own(uid, None)
        self._let_go(self._pods.pop(uid, None))
        return group

    def retain_pods(self, uids: Collection[str]) -> set[GroupKey]:
        """Forget the pods that a fresh list does not have. Returns the groups they belonged to."""
        kept = uids if isinstance(uids, AbstractSet) else set(uids)
        gone = [uid for uid in {*self._pods, *self._own} if uid not in kept]
        return {group for uid in gone if (group := self.remove_pod(uid)) is not None}

    def pods(self, group: GroupKey) -> GroupPods:
        """The pods of a group."""
        return count(self._own[uid] for uid in self._groups.get(group, ()))

    def placed(self, group: GroupKey, key: str) -> dict[RoleName, dict[str, int]]:
        """Bound pods of a group that are to stay, by role and by value of the node label `key`.

        The value is "" on a node without the label. Of a node that is not known, the label that the API server has
        copied to the pod counts.
        """
        placed: dict[RoleName, dict[str, int]] = {}
        for uid in self._groups.get(group, ()):
            pod = self._own[uid]
            domains = placed.setdefault(pod.role, {})
            if not pod.node or pod.terminating:
                continue
            domain = self._domain_of(pod, key)
            # A node that is gone has no label, and its pods go soon.
            if domain or self.node(pod.node) is not None:
                domains[domain] = domains.get(domain, 0) + 1
        return placed

    def node(self, name: str) -> Node | None:
        """The node called `name`, if it is known."""
        use = self._uses.get(name)
        return use.node if use is not None else None

    def groups_on(self, node: str) -> set[GroupKey]:
        """Groups with pods on `node`."""
        use = self._uses.get(node)
        return set(use.groups) if use is not None else set()

    def claim(self, group: GroupKey, claim: Claim) -> None:
        """Have other groups see what `group` is about to take. Replaces an earlier claim."""
        self._claims[group] = claim
        self._expected.pop(group, None)

    def release(self, group: GroupKey) -> None:
        """Forget the claim of `group`."""
        self._claims.pop(group, None)
        self._expected.pop(group, None)

    def with_claim(self, group: GroupKey, claim: Claim | None) -> Inventory:
        """The inventory as it is now, but for another claim of `group`, or none. For one decision: it is to be only read."""
        view = copy(self)
        view._claims, view._expected = dict(self._claims), dict(self._expected)  # noqa: SLF001 - its own
        if claim is None:
            view.release(group)
        else:
            view.claim(group, claim)
        return view

    def domains(self, key: str) -> Mapping[str, Sequence[NodeUse]]:
        """Known nodes by value of the node label `key`, sorted by name."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = {}
            for name in sorted(self._uses):
                use = self._uses[name]
                if use.node is not None and (value := use.node.labels.get(key)):
                    found.setdefault(value, []).append(use)
        return found

    def eligible(self, shape: PodShape) -> set[str]:
        """Nodes that a pod of `shape` may run on if there is room. Not to be changed."""
        rules = shape.node_rules
        found = self._eligible.pop(rules, None)
        if found is None:
            names = {
                name
                for name, use in self._uses.items()
                if use.node is not None and is_eligible(use.node, shape)
            }
            found = shape, names
            if len(self._eligible) >= _RULES_KEPT:
                del self._eligible[next(iter(self._eligible))]
        # What was used last stays longest.
        self._eligible[rules] = found
        return found[1]

    def held(self, group: GroupKey) -> dict[str, Amounts]:
        """What the pods of `group` take of each node, those being deleted among them."""
        held: dict[str, Amounts] = {}
        for uid in self._groups.get(group, ()):
            if (bound := self._pods.get(uid)) is not None:
                add(held.setdefault(bound[0].name, {}), bound[1])
        return held

    def taken(self, group: GroupKey, within: tuple[str, str] | None = None) -> dict[str, Amounts]:
        """What the claims of groups other than `group` are going to take of each node.

        Args:
            group: The group.
            within: Node label and value of the one domain that is asked about.
        """
        by_domain: dict[tuple[str, str], list[Expected]] = {}
        for claimant, claim in self._claims.items():
            if claimant == group or (within and claim.key == within[0] and claim.domain != within[1]):
                continue
            if pods := self._outstanding(claimant, claim):
                by_domain.setdefault((claim.key, claim.domain), []).extend(pods)
        taken: dict[str, Amounts] = {}
        for (key, domain), expected in by_domain.items():
            free: dict[str, Amounts] = {}
            for use in self.domains(key).get(domain, ()):
                free[use.name] = left = dict(use.node.allocatable) if use.node is not None else {}
                add(left, use.used.items(), times=-1)
                # Domains of different keys share nodes.
                add(left, taken.get(use.name, {}).items(), times=-1)
            eligible = {pods.shape: self.eligible(pods.shape) for pods in expected}
            for name, amounts in place(expected, free, eligible).items():
                add(taken.setdefault(name, {}), amounts.items())
        return taken

    def _outstanding(self, group: GroupKey, claim: Claim) -> tuple[Expected, ...]:
        found = self._expected.get(group)
        if found is None:
            pods = [
                pod
                for uid in self._groups.get(group, ())
                if (pod := self._own[uid]).node and self._domain_of(pod, claim.key) == claim.domain
            ]
            found = self._expected[group] = tuple(
                Expected(shape, replicas - len(present), frozenset(present))
                for role, (shape, replicas) in claim.roles.items()
                # A pod that is being deleted holds the place that its successor takes.
                if len(present := [pod.node for pod in pods if pod.role == role]) < replicas
            )
        return found

    def _domain_of(self, pod: GroupPod, key: str) -> str:
        use = self._uses.get(pod.node)
        if use is not None and use.node is not None:
            return use.node.labels.get(key, "")
        return dict(pod.topology).get(key, "")

    def _put_own(self, uid: str, pod: GroupPod | None) -> GroupKey | None:
        """Replace what is known of a pod of a group; None if it is none. Returns the group if that is a change."""
        before = self._own.get(uid)
        if pod == before:
            return None
        if before is not None:
            del self._own[uid]
            self._groups[before.group].discard(uid)
            if not self._groups[before.group]:
                del self._groups[before.group]
            self._count(before, -1)
        if pod is not None:
            self._own[uid] = pod
            self._groups.setdefault(pod.group, set()).add(uid)
            self._count(pod, 1)
        changed = pod if pod is not None else before
        return changed.group if changed is not None else None

    def _count(self, pod: GroupPod, by: int) -> None:
        self._expected.pop(pod.group, None)
        if (use := self._uses.get(pod.node)) is not None:
            use.groups[pod.group] += by
            if not use.groups[pod.group]:
                del use.groups[pod.group]

    def _let_go(self, held: tuple[NodeUse, Requests] | None) -> None:
        if held is not None:
            use, requests = held
            add(use.used, requests, times=-1)
            use.pods -= 1
            self._drop_if_empty(use)

    def _use(self, name: str) -> NodeUse:
        use = self._uses.get(name)
        if use is None:
            use = self._uses[name] = NodeUse(name)
        return use

    def _drop_if_empty(self, use: NodeUse) -> None:
        if use.node is None and not use.pods:
            self._uses.pop(use.name, None)

    def _forget_domains(self) -> None:
        self._domains.clear()
        self._expected.clear()
