"""Why the queue that a job names takes nothing: not there, stopped, or not active."""

from __future__ import annotations

from collections.abc import Mapping

from clusters.documents.conditions import condition
from clusters.documents.keys import Document
from clusters.explaining import words
from clusters.explaining.conditions import plain
from clusters.explaining.names import Names
from clusters.explaining.objects.found import Objects, Trouble
from clusters.kueue.workload.matching import parse_selector


def no_namespace(found: Objects, names: Names) -> Trouble | None:
    """Nothing of a job can be where its namespace is not."""
    if found.space is not None:
        return None
    return Trouble(
        f"there is no namespace {found.namespace} on {found.where(names)}",
        "The portal makes it with the next sync. If it stays away, ask an admin: the page of the "
        "cluster says why.",
    )


def no_local_queue(found: Objects, names: Names) -> Trouble | None:
    """The named LocalQueue is not in the namespace."""
    if not found.queue or found.local_queue() is not None:
        return None
    there = sorted(item["metadata"]["name"] for item in found.local_queues)
    told = f", which has {words.listed(there)}" if there else ", which has none"
    if found.role == "worker":
        remedy = (
            "A worker needs the LocalQueues of the manager: wait for the next sync, or make "
            f"{found.queue} there."
        )
    elif there:
        remedy = f"Set the label kueue.x-k8s.io/queue-name of the job to {there[0]}."
    else:
        remedy = "Wait for the next sync of the cluster, which makes the workspace's LocalQueue."
    return Trouble(
        f"{found.where(names)} has no LocalQueue {found.queue} in namespace "
        f"{found.namespace}{told}",
        remedy,
    )


def stopped_queue(found: Objects, names: Names) -> Trouble | None:
    """The LocalQueue or its ClusterQueue has a stopPolicy."""
    for kind, item in (("LocalQueue", found.local_queue()), ("ClusterQueue", found.cluster_queue)):
        policy = (
            ((item.get("spec") or {}).get("stopPolicy") or "None") if item is not None else "None"
        )
        if item is not None and policy != "None":
            return Trouble(
                f"the {kind} {item['metadata']['name']} on {found.where(names)} is stopped "
                f"(stopPolicy {policy}), so no job starts from it",
                "The page of its workspace says who stopped it, and who may release it."
                if kind == "ClusterQueue"
                else "Remove its stopPolicy on the cluster.",
            )
    return None


def no_cluster_queue(found: Objects, names: Names) -> Trouble | None:
    """The LocalQueue leads to a ClusterQueue that is not there."""
    local = found.local_queue()
    if local is None or found.cluster_queue is not None:
        return None
    leads_to = str((local.get("spec") or {}).get("clusterQueue") or "")
    return Trouble(
        f"the LocalQueue {found.queue} leads to the ClusterQueue {names.message(leads_to)}, which "
        f"is not on {found.where(names)}",
        "Give the workspace a budget there, or wait for the next sync of the cluster.",
    )


def inactive_queue(found: Objects, names: Names) -> Trouble | None:
    """The ClusterQueue, or else the LocalQueue, says of itself that it is not active."""
    for kind, item in (("ClusterQueue", found.cluster_queue), ("LocalQueue", found.local_queue())):
        active = condition(item, "Active") if item is not None else {}
        if item is not None and active.get("status") == "False":
            reason, message = _told(active, names)
            return Trouble(
                f"the {kind} {item['metadata']['name']} on {found.where(names)} is not active "
                f"({reason}: {message})",
                "Ask an admin to put right what it names.",
            )
    return None


def unselected_namespace(found: Objects, names: Names) -> Trouble | None:
    """The ClusterQueue takes jobs of other namespaces alone."""
    queue, space = found.cluster_queue, found.space
    if queue is None or space is None:
        return None
    selector = (queue.get("spec") or {}).get("namespaceSelector")
    if parse_selector(selector).matches(space["metadata"].get("labels") or {}):
        return None
    return Trouble(
        f"the ClusterQueue {queue['metadata']['name']} on {found.where(names)} does not take jobs "
        f"of namespace {found.namespace}: its namespaceSelector is {selector_words(selector)}",
        "The next sync of the cluster puts the selector back. If it does not, ask an admin.",
    )


def unconnected(found: Objects, names: Names) -> Trouble | None:
    """The manager says of workers that it does not reach them."""
    lost = [
        (str(item["metadata"]["name"]), *_told(condition(item, "Active"), names))
        for item in found.connections
        if condition(item, "Active").get("status") != "True"
    ]
    if not lost:
        return None
    if not names.sees_everything:
        told = "a worker" if len(lost) == 1 else f"{len(lost)} workers"
    else:
        listed = [f"{names.cluster(slug)} ({why}: {message})" for slug, why, message in lost]
        told = words.listed(listed, most=2)
    return Trouble(
        f"the manager has no connection to {told}",
        "Ask an admin: the page of the cluster says since when.",
    )


def _told(active: Document, names: Names) -> tuple[str, str]:
    reason = str(active.get("reason") or "no reason given")
    message = names.message(str(active.get("message") or "no message given"))
    return reason, message[:300].rstrip(".")


def selector_words(selector: object) -> str:
    """A label selector as people write it: ``team=a and zone In b``."""
    if not isinstance(selector, Mapping):
        return "missing, so it takes none"
    exact = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    more = [
        " ".join(
            (
                str(item.get("key")),
                str(item.get("operator")),
                ", ".join(map(str, item.get("values") or ())),
            )
        ).strip()
        for item in selector.get("matchExpressions") or ()
    ]
    return words.listed([*exact, *more])


def waiting_copy(found: Objects, names: Names) -> Trouble | None:
    """A worker has the copy, and gives it no quota."""
    reserved = condition(found.workload, "QuotaReserved") if found.workload is not None else {}
    if found.workload is None or reserved.get("status") == "True":
        return None
    reason, message = (str(reserved.get(name) or "") for name in ("reason", "message"))
    told = plain(reason, names.message(message)) or "It has not been looked at there yet."
    return Trouble(
        f"{found.where(names)} has a copy of the job and no quota for it: "
        f"{told[:1].lower()}{told[1:].rstrip('.')}"
    )
