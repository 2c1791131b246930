"""Why pods of an admitted job do not start: refused, held back, without a node or an image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from clusters.documents import labels
from clusters.documents.conditions import condition
from clusters.documents.keys import Document, status_of
from clusters.explaining import words
from clusters.explaining.conditions import clause
from clusters.explaining.names import Names
from clusters.explaining.objects.found import Objects, Trouble
from clusters.explaining.objects.unmade import Rule

_GATES: Final = {
    labels.ADMISSION_GATE: (
        "is still held back, though the job is admitted",
        "are still held back, though the job is admitted",
        "{scheduler} takes the gate off; ask an admin whether it is at work there.",
    ),
    labels.TOPOLOGY_GATE: (
        "waits to be told which rack or node it runs on",
        "wait to be told which rack or node they run on",
        "{scheduler} takes the gate off when it has placed them; ask an admin whether it is at "
        "work there.",
    ),
}
_IMAGES: Final = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
_CONFIGS: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_MOUNTS: Final = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
_CREATION: Final = "FailedCreate"
_MOST: Final = 400
# ``0/9 nodes are available: 3 Insufficient …``
_COUNTS: Final = re.compile(r"\b0/\d+ nodes are available: |(?<![\w./=:-])\d+ (?=[A-Za-z])")


def _still_suspended(found: Objects, names: Names) -> Trouble | None:
    kind, job = found.kind, found.job
    if kind is None or job is None or kind.is_grouped or not kind.is_suspended(job):
        return None
    return Trouble(
        f"the {found.kind_word} {found.name} is admitted on {found.where(names)} and still "
        f"suspended: {found.scheduler} has not started it yet",
        f"Ask an admin whether {found.scheduler} is at work there.",
    )


def _creation_refused(found: Objects, names: Names) -> Trouble | None:
    """The cluster refuses the pods themselves; only events tell that.

    An event may be older than pods that were made since.
    """
    if found.pods or (found.job is not None and status_of(found.job).get("active")):
        return None
    for event in found.events:
        if event.get("reason") == _CREATION:
            message = names.message(str(event.get("message") or ""))
            told = clause(_CREATION, message) or f"the cluster says: {message[:_MOST]}"
            return Trouble(
                f"{found.where(names)} makes no pods for the {found.kind_word} {found.name}: "
                f"{told}",
                "Change what the job asks for, or ask an admin to change that rule; the pods are "
                "tried again by themselves.",
            )
    return None


def _gated(found: Objects, names: Names) -> Trouble | None:
    """Scheduling gates: Kueue's and the portal's own, and those that somebody else has to lift."""
    gates = {
        str(pod["metadata"]["name"]): [
            str(gate.get("name")) for gate in _list(_spec(pod), "schedulingGates")
        ]
        for pod in found.pods
    }
    foreign = sorted({name for each in gates.values() for name in each if name not in _GATES})
    if foreign:
        held = [pod for pod, each in gates.items() if set(each) & set(foreign)]
        return Trouble(
            f"{_pods(held, found, 'has', 'have')} the scheduling gate "
            f"{words.listed(foreign)}, which neither Kueue nor the portal takes off",
            "Whoever put it on has to take it off.",
        )
    for gate, (one, many, remedy) in _GATES.items():
        if told := [pod for pod, each in gates.items() if gate in each]:
            return Trouble(
                f"{_pods(told, found, one, many)} (scheduling gate {gate})",
                remedy.format(scheduler=found.scheduler[:1].upper() + found.scheduler[1:]),
            )
    return None


def _unschedulable(found: Objects, names: Names) -> Trouble | None:
    """The scheduler finds no node; its own words have the figures."""
    told: dict[str, list[str]] = {}
    for pod in found.pods:
        scheduled = condition(pod, "PodScheduled")
        if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
            message = names.message(str(scheduled.get("message") or ""))
            told.setdefault(message, []).append(str(pod["metadata"]["name"]))
    if not told:
        return None
    message, pods = max(told.items(), key=lambda item: len(item[1]))
    return Trouble(
        f"{found.where(names)} finds no node for {_pods(pods, found)}: {_shown(message, names)}",
        "Quota is there and nodes are not: compare node selector, tolerations and requests of the "
        "job with the nodes, or ask an admin whether nodes are down or used outside of budgets.",
    )


def _shown(message: str, names: Names) -> str:
    """The scheduler's words; how many nodes there are is for those who see clusters."""
    if not names.sees_everything:
        message = _COUNTS.sub("", message)
    return message[:_MOST].rstrip(".") or "the scheduler gives no reason"


def _waiting_containers(pods: Iterable[Document]) -> Iterator[tuple[str, str, str, str, str]]:
    """Pod, container, image, reason and message of each container that waits."""
    for pod in pods:
        status = status_of(pod)
        for key in ("initContainerStatuses", "containerStatuses"):
            for item in _list(status, key):
                state = item.get("state")
                waiting = state.get("waiting") if isinstance(state, Mapping) else None
                if isinstance(waiting, Mapping):
                    parts = (
                        item.get("name"),
                        item.get("image"),
                        *map(waiting.get, ("reason", "message")),
                    )
                    name, image, reason, message = (str(part or "") for part in parts)
                    yield str(pod["metadata"]["name"]), name, image, reason, message


def _no_image(found: Objects, names: Names) -> Trouble | None:
    for pod, container, image, reason, message in _waiting_containers(found.pods):
        if reason in _IMAGES:
            detail = f": {names.message(message)[:_MOST].rstrip('.')}" if message else ""
            return Trouble(
                f"the image {image} of container {container} in pod {pod} cannot be pulled on "
                f"{found.where(names)} ({reason}){detail}",
                "Check the image's name and tag, and that the namespace there has the pull secret.",
            )
    return None


def _no_configuration(found: Objects, names: Names) -> Trouble | None:
    for pod, container, _, reason, message in _waiting_containers(found.pods):
        if reason in _CONFIGS:
            detail = names.message(message)[:_MOST].rstrip(".") or "no message given"
            return Trouble(
                f"container {container} of pod {pod} cannot be made on {found.where(names)} "
                f"({reason}): {detail}",
                "ConfigMaps, Secrets and volumes are not sent along with a job: make what is "
                "missing in the namespace there.",
            )
    return None


def _lost_node(found: Objects, names: Names) -> Trouble | None:
    """A pod was given a node that is gone, or does not answer."""
    for pod in found.pods:
        name = str(_spec(pod).get("nodeName") or "")
        if not name or name not in found.nodes:
            continue
        node, pod_name = found.nodes[name], pod["metadata"]["name"]
        if node is None:
            return Trouble(
                f"pod {pod_name} was given the node {name}, which is no longer on "
                f"{found.where(names)}",
                "Delete the pod; its job makes another one.",
            )
        ready = condition(node, "Ready")
        if ready.get("status") != "True":
            return Trouble(
                f"pod {pod_name} was given the node {name}, which is not ready "
                f"({ready.get('reason') or 'no reason given'})",
                "It starts when the node is back; an admin looks at the node.",
            )
    return None


def _no_sandbox(found: Objects, names: Names) -> Trouble | None:
    for event in found.events:
        if event.get("reason") in _MOUNTS:
            about = event.get("involvedObject")
            pod = about.get("name") if isinstance(about, Mapping) else ""
            message = names.message(str(event.get("message") or ""))[:_MOST].rstrip(".")
            return Trouble(
                f"pod {pod} has a node on {found.where(names)} and cannot be set up there "
                f"({event.get('reason')}): {message}",
                "Volumes, Secrets and networks are the namespace's own there: make what is "
                "missing.",
            )
    return None


def _no_pods(found: Objects, names: Names) -> Trouble | None:
    job = found.job
    if job is None or found.pods or status_of(job).get("active") or status_of(job).get("ready"):
        return None
    if found.kind is None or found.kind_word != "Job":
        return None
    blind = (
        "" if found.sees_events else "; the portal may not read events there, which would say more"
    )
    return Trouble(
        f"no pod of the Job {found.name} has been made on {found.where(names)}{blind}",
        f"Ask there: kubectl describe job {found.name} -n {found.namespace}.",
    )


def _being_made(found: Objects, names: Names) -> Trouble | None:
    if not found.pods:
        return None
    pods = _pods([str(pod["metadata"]["name"]) for pod in found.pods], found, "is", "are")
    return Trouble(
        f"{pods} being set up on {found.where(names)}, and nothing on the cluster speaks "
        "against it",
        "Large images take minutes; look again then.",
    )


UNSTARTED: Final[tuple[Rule, ...]] = (
    _still_suspended,
    _creation_refused,
    _gated,
    _unschedulable,
    _no_image,
    _no_configuration,
    _lost_node,
    _no_sandbox,
    _no_pods,
    _being_made,
)
"""In the order in which a pod comes to run; empty where all pods have started."""


def _spec(pod: Document) -> Mapping[str, Any]:
    spec = pod.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _list(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = document.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _pods(names: Sequence[str], found: Objects, one: str = "", many: str = "") -> str:
    """``2 of 3 waiting pods (train-0 and train-1) have``; one that waits alone by its name."""
    some, all_of_them = len(names), len(found.pods)
    if all_of_them == 1:
        return f"pod {names[0]} {one}".rstrip()
    which = f"all {some}" if some == all_of_them else f"{some:,} of {all_of_them:,}"
    listed = words.listed(sorted(names), most=2)
    return f"{which} waiting pods ({listed}) {one if some == 1 else many}".rstrip()
