"""What the operator knows of nodes and pods, kept up to date by watches, and who is told when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from disagg.cluster.client import Client, Object
from disagg.cluster.errors import ForbiddenError
from disagg.cluster.reflector import Reflector
from disagg.reconcile.kinds import NODE, POD, POD_GROUP, STATUS_KINDS
from disagg.reconcile.pod_failures import PodFailures
from disagg.reconcile.pod_labels import OwnPods
from disagg.reconcile.queue import Key, KeyQueue
from disagg.topology.groups import GroupKey
from disagg.topology.inventory import Inventory

_DELAY_SECONDS = 0.5
"""Pods of a group are bound within moments of each other: their events are gathered."""
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"

_log = structlog.stdlib.get_logger("disagg")


@dataclass
class ClusterState:
    """Nodes, pods, and the resources whose groups depend on them.

    Attributes:
        queue: Where the keys of resources go whose groups are affected by a change.
        inventory: What is there and what is taken.
        own: Running pods of groups, and the labels that they have.
        failures: Pods of resources that do not come up.
        packed: Resources with a topologyConstraint.
    """

    queue: KeyQueue
    inventory: Inventory = field(default_factory=Inventory)
    own: OwnPods = field(default_factory=OwnPods)
    failures: PodFailures = field(default_factory=PodFailures)
    packed: set[Key] = field(default_factory=set)
    _nodes_listed: asyncio.Event = field(default_factory=asyncio.Event)
    _pods_listed: asyncio.Event = field(default_factory=asyncio.Event)

    async def known(self) -> None:
        """Wait until all nodes and pods have been seen once, as far as that is allowed."""
        await self._nodes_listed.wait()
        await self._pods_listed.wait()

    async def watch(self, client: Client, namespaces: Sequence[str]) -> None:
        """Keep the inventory up to date, for ever.

        Nodes are of use only together with all pods that run on them. Where the operator may not see both it watches
        the pods of its own namespaces, and knows no node.
        """
        nodes = Reflector(client, NODE)
        pods = Reflector(client, POD, field_selector=_RUNNING)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._unless_forbidden(nodes, _Nodes(self))),
                group.create_task(
                    self._unless_forbidden(pods, _Pods(self, self._pods_listed, frozenset(namespaces)))
                ),
            ]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # What ends has been forbidden, or has raised.
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            error = next(iter(done)).result()
            _log.warning("nodes are not looked at: placement goes by affinity alone", error=str(error))
            self.inventory = Inventory(knows_nodes=False)
            self.own, self.failures = OwnPods(), PodFailures()
            self._pods_listed.clear()
            self._nodes_listed.set()
            sinks = {namespace: _Pods(self, asyncio.Event()) for namespace in namespaces or [""]}
            for namespace, sink in sinks.items():
                own = Reflector(client, POD, namespace=namespace, field_selector=_RUNNING)
                group.create_task(own.run(sink))
            for sink in sinks.values():
                await sink.listed.wait()
            self._pods_listed.set()

    async def _unless_forbidden(self, reflector: Reflector, sink: _Nodes | _Pods) -> ForbiddenError:
        try:
            await reflector.run(sink)
        except ForbiddenError as error:
            return error
        raise AssertionError("a reflector runs for ever")

    def tell(self, group: GroupKey) -> None:
        """Have the resource of a group looked at, if its placement depends on what has changed."""
        key = Key(group.namespace, group.name)
        if key in self.packed:
            self.queue.add(key, frozenset({POD_GROUP.kind}), delay=_DELAY_SECONDS)


@dataclass
class _Nodes:
    state: ClusterState
    names: dict[str, str] = field(default_factory=dict)
    """By uid."""

    def put(self, obj: Object) -> None:
        metadata = obj["metadata"]
        self.names[metadata["uid"]] = metadata["name"]
        if self.state.inventory.put_node(obj):
            for group in self.state.inventory.groups_on(metadata["name"]):
                self.state.tell(group)

    def remove(self, obj: Object) -> None:
        self._forget(obj["metadata"]["uid"])

    def synced(self, uids: set[str]) -> None:
        for uid in self.names.keys() - uids:
            self._forget(uid)
        self.state._nodes_listed.set()  # noqa: SLF001 - this is a part of it

    def _forget(self, uid: str) -> None:
        # A node of the same name may have come already.
        name = self.names.pop(uid, None)
        if name is None or name in self.names.values():
            return
        for group in self.state.inventory.groups_on(name):
            self.state.tell(group)
        self.state.inventory.remove_node(name)


@dataclass
class _Pods:
    state: ClusterState
    listed: asyncio.Event
    namespaces: frozenset[str] = frozenset()
    """Those whose resources are this operator's, where pods of more are watched; all if empty."""
    uids: set[str] = field(default_factory=set)

    def put(self, obj: Object) -> None:
        self.uids.add(obj["metadata"]["uid"])
        self.state.own.put(obj)
        self._tell(self.state.failures.put(obj))
        if (group := self.state.inventory.put_pod(obj)) is not None:
            self.state.tell(group)

    def remove(self, obj: Object) -> None:
        self._forget(obj["metadata"]["uid"])

    def _tell(self, key: Key | None) -> None:
        # No Deployment tells of it: its pods are as little ready as before.
        if key is not None and (not self.namespaces or key.namespace in self.namespaces):
            self.state.queue.add(key, STATUS_KINDS, delay=_DELAY_SECONDS)

    def synced(self, uids: set[str]) -> None:
        # Of several namespaces each has a sink of its own, and drops no pod of another.
        for uid in self.uids - uids:
            self._forget(uid)
        self.listed.set()

    def _forget(self, uid: str) -> None:
        self.uids.discard(uid)
        self.state.own.remove(uid)
        self._tell(self.state.failures.remove(uid))
        if (group := self.state.inventory.remove_pod(uid)) is not None:
            self.state.tell(group)
