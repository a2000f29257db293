"""Why a pod does not come up, as its status has it, and what to say of many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from disagg.api.names import RoleName
from disagg.api.status import Reason
from disagg.build.preflight import CONTAINER as PREFLIGHT
from disagg.topology.groups import GroupKey, is_unschedulable, workload_of

MOST_WORDS: Final = 400
"""Characters of what a container or a kubelet says that go into a message."""
_MOST_KINDS: Final = 3
"""Different failures of a role that its message tells."""

_IMAGE: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_NOT_CREATED: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "PreStartHookError", "RunContainerError"}
)
"""Reasons with which a kubelet waits (k8s.io/kubernetes pkg/kubelet/images/types.go, pkg/kubelet/kuberuntime)."""
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons with which container runtimes say that a command did not even start."""

_UNTOLD = f"the preflight check ended without a message: kubectl logs --container {PREFLIGHT} has more"
_SWITCH_OFF = "an engine's image without python3 cannot be checked: set kvTransfer.preflight to false"


@dataclass(frozen=True, slots=True)
class PodFailure:
    """Why a pod does not come up.

    Attributes:
        group: Its group.
        role: Its role.
        pod: Its name.
        reason: Reason of the conditions that tell it.
        what: What has happened, the same for all pods that it happened to.
        words: What the container or the kubelet has said of it; "" if nothing.
    """

    group: GroupKey
    role: RoleName
    pod: str
    reason: Reason
    what: str
    words: str = ""


def pod_failure(pod: Mapping[str, Any]) -> PodFailure | None:
    """Why a pod of a resource does not come up.

    It stays the same from one attempt of the kubelet to the next, so that a condition does not flap between "waiting", "running"
    and "terminated".

    Args:
        pod: The pod, as read from the API server.

    Returns:
        None while nothing is known, if it is being deleted, and for pods that are no resource's.
    """
    workload = workload_of(pod)
    if workload is None or "deletionTimestamp" in pod["metadata"]:
        return None
    found = next(_failures(pod), None)
    if found is None:
        return None
    (group, role), (reason, what, words) = workload, found
    return PodFailure(group, role, pod["metadata"]["name"], reason, what, words)


def told(failures: Iterable[PodFailure]) -> tuple[Reason, str] | None:
    """The reason of what keeps most pods from coming up, and all failures in words; None if there is none.

    Names of pods and words are those of the first pod of each kind: otherwise the message would change with each attempt of each.
    """
    kinds = defaultdict[tuple[Reason, str], list[PodFailure]](list)
    for failure in failures:
        kinds[failure.reason, failure.what].append(failure)
    if not kinds:
        return None
    ordered = sorted(kinds.items(), key=lambda kind: (-len(kind[1]), kind[0]))
    texts = [_told(alike) for _, alike in ordered[:_MOST_KINDS]]
    if (more := len(ordered) - _MOST_KINDS) > 0:
        texts.append(f"and {more} more")
    return ordered[0][0][0], "; ".join(texts)


def _told(alike: list[PodFailure]) -> str:
    first = min(alike, key=lambda failure: failure.pod)
    pods = f"pod {first.pod}" if len(alike) == 1 else f"{len(alike)} pods, such as {first.pod}"
    return f"{pods}: {first.what}" + (f": {_shortened(first.words)}" if first.words else "")


def _failures(pod: Mapping[str, Any]) -> Iterator[tuple[Reason, str, str]]:
    status = pod.get("status") or {}
    if is_unschedulable(pod):
        # The scheduler's words change with each pod of others that comes or goes.
        name = pod["metadata"]["name"]
        yield Reason.UNSCHEDULABLE, "no node takes it", f"kubectl describe pod {name} tells why"
    for container in status.get("initContainerStatuses") or ():
        yield from _of_container(container, done="ready")
    for container in status.get("containerStatuses") or ():
        yield from _of_container(container, done="started")


def _of_container(container: Mapping[str, Any], *, done: str) -> Iterator[tuple[Reason, str, str]]:
    """What keeps a container from coming up.

    Args:
        container: Its status.
        done: Field that is true once it has come up, whatever it ended with before.
    """
    name, state = container["name"], container.get("state") or {}
    waiting = state.get("waiting") or {}
    why, words = waiting.get("reason"), str(waiting.get("message") or "")
    if why in _IMAGE:
        # While it waits the kubelet says which attempt has failed, before that what of it.
        words = words.partition("ErrImagePull: ")[2] or words
        yield Reason.IMAGE_PULL_BACK_OFF, f"the image of container {name} cannot be pulled", words
    elif why in _NOT_CREATED:
        yield Reason.CREATE_CONTAINER_ERROR, f"container {name} cannot be started ({why})", words
    elif not container.get(done):
        ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
        if ended is not None and (ended["exitCode"] or done == "started"):
            yield _of_end(name, ended)


def _of_end(name: str, ended: Mapping[str, Any]) -> tuple[Reason, str, str]:
    why, words = ended.get("reason"), str(ended.get("message") or "").strip()
    if name == PREFLIGHT:
        words = words or _UNTOLD
        return (
            Reason.PREFLIGHT_FAILED,
            "the preflight check failed",
            f"{words}; {_SWITCH_OFF}" if why in _NOT_STARTED else words,
        )
    what = f"container {name} ended with exit code {ended['exitCode']}" + (f" ({why})" if why else "")
    # What containers leave is the end of their log, and of that the last line has the error.
    return Reason.CRASH_LOOP_BACK_OFF, what, words.rpartition("\n")[2].strip()


def _shortened(words: str) -> str:
    return words if len(words) <= MOST_WORDS else f"{words[: MOST_WORDS - 4]} ..."
