"""What to do with each object: wanted and live in, a decision with its reason out. No I/O.

Nothing is taken from others: a name that another installation, or a person, has used for something
of their own is refused. Nothing is deleted that still holds something, and no Namespace ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from budgets.plan import HOST_FLAVOR
from clusters.documents import labels
from clusters.documents.conditions import condition
from clusters.documents.keys import labels_of
from clusters.documents.numbers import whole_number
from clusters.documents.queues import FLEET_QUEUE, dispatched_queue
from clusters.kube import resources as r
from clusters.manifests import diff, names
from clusters.manifests.diff import FieldChange
from clusters.manifests.names import LOCAL_QUEUE, Document, Key, Ownership, key_of, owner_of
from clusters.reconcile.runtime.cache import Cache, Index
from clusters.reconcile.runtime.writer import Write

QUOTA_RESOURCES = (
    r.NAMESPACE,
    r.TOPOLOGY,
    r.RESOURCE_FLAVOR,
    r.COHORT,
    r.CLUSTER_QUEUE,
    r.LOCAL_QUEUE,
)
MULTIKUEUE_RESOURCES = (r.MULTIKUEUE_CLUSTER, r.MULTIKUEUE_CONFIG, r.ADMISSION_CHECK)


def resources_of(
    *, is_manager: bool, is_single: bool, own_queue: str = ""
) -> tuple[r.Resource, ...]:
    """Kinds of objects that quota sync keeps on a cluster, in the order of application.

    A single cluster that was a manager keeps nothing of MultiKueue, but has to take it away.
    """
    if is_manager or own_queue:
        return (*QUOTA_RESOURCES, *MULTIKUEUE_RESOURCES)
    return (*QUOTA_RESOURCES, *((r.ADMISSION_CHECK,) if is_single else ()))


RESOURCES = {
    resource.kind: resource for resource in (*QUOTA_RESOURCES, *MULTIKUEUE_RESOURCES, r.SECRET)
}
DRAINED = {"stopPolicy": "HoldAndDrain"}
_QUEUES = (LOCAL_QUEUE, FLEET_QUEUE)


class Step(StrEnum):
    """What is done with one object."""

    CREATE = "create"
    UPDATE = "update"
    RESTORE = "restore"
    NOTHING = "nothing"
    KEEP = "keep"
    REFUSE = "refuse"
    DRAIN = "drain"
    WAIT = "wait"
    DELETE = "delete"
    RELEASE = "release"


WRITES = frozenset({Step.CREATE, Step.UPDATE, Step.RESTORE, Step.DRAIN, Step.DELETE, Step.RELEASE})
GOING = frozenset({Step.DELETE, Step.RELEASE})


@dataclass(frozen=True, slots=True)
class Policy:
    """How a cluster is treated.

    Attributes:
        installation: Id of this portal.
        restores_drift: Hand edits are put back; else they are kept and shown.
        known: Objects that the portal has written here before.
    """

    installation: str
    restores_drift: bool = True
    known: Collection[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """One object, what to do, and why.

    Attributes:
        document: What to apply, or the live object that goes; empty when it was never there.
        owner: Subject and generation that the object stands for.
        changes: All fields that differ.
        drift: Those of them that somebody else changed, with that manager's name.
        message: For people; empty when there is nothing to say.
    """

    key: Key
    step: Step
    document: Document = field(repr=False)
    owner: Ownership
    changes: tuple[FieldChange, ...] = ()
    drift: tuple[tuple[FieldChange, str], ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Newer:
    """An object whose generation this database has not reached, or whose subject it never had."""

    key: Key
    subject: str
    on_cluster: int
    in_database: int | None


def decide_wanted(key: Key, wanted: Document, live: Document | None, policy: Policy) -> Decision:
    """Compare one wanted object with what is there."""
    owner = owner_of(wanted)
    assert owner is not None, "a rendered document always names its owner"
    if live is None:
        return _missing(key, wanted, owner, policy)
    refusal = _refusal(key, live, policy)
    if refusal and _is_shared(key, live):
        return Decision(key, Step.NOTHING, wanted, owner, message="Somebody else created it.")
    if refusal:
        return Decision(key, Step.REFUSE, wanted, owner, message=refusal)
    found = diff.changes(wanted, live)
    if not found:
        return Decision(key, Step.NOTHING, wanted, owner)
    if "deletionTimestamp" in live["metadata"]:
        message = (
            "It is being deleted, though it is wanted. The portal makes it again when it is gone."
        )
        return Decision(key, Step.WAIT, wanted, owner, found, message=message)
    drift = tuple(_drifted(found, live)) if key in policy.known else ()
    if not drift:
        return Decision(key, Step.UPDATE, wanted, owner, found)
    who = ", ".join(sorted({manager or "somebody" for _, manager in drift}))
    fields = ", ".join(change.path for change, _ in drift[:3])
    if policy.restores_drift:
        message = f"{who} changed {fields}; the portal puts it back."
        return Decision(key, Step.RESTORE, wanted, owner, found, drift, message)
    message = (
        f"{who} changed {fields}; the portal keeps the change and does not write this object "
        "meanwhile."
    )
    return Decision(key, Step.KEEP, wanted, owner, found, drift, message)


def decide_unwanted(
    key: Key,
    live: Document,
    cache: Cache,
    held: Mapping[str, int],
    *,
    is_leaving: bool = False,
) -> Decision:
    """Find the way out for an object of ours that is not wanted any more.

    Args:
        key: Its key.
        live: The object, which carries our label.
        cache: Everything on the cluster, to see what refers to it.
        held: Namespace → workloads that hold quota there, as the database has seen them.
        is_leaving: The portal leaves this cluster: namespaces lose its labels.
    """
    owner = owner_of(live) or Ownership("", "", 0)

    def decision(step: Step, message: str = "") -> Decision:
        return Decision(key, step, live, owner, message=message)

    if key.kind == "Namespace" and is_leaving:
        installation = labels_of(live).get(labels.INSTALLATION, "")
        queues = (cache.get(r.LOCAL_QUEUE, f"{key.name}/{name}") for name in _QUEUES)
        if any(queue is not None and is_of(queue, installation) for queue in queues):
            # The generated policies let the portal write in namespaces with its labels alone.
            return decision(Step.WAIT, "It keeps the portal's labels until its queue is gone.")
        return decision(Step.RELEASE, "It stays, without the portal's labels.")
    if key.kind == "Namespace":
        return decision(
            Step.WAIT,
            "The portal never deletes a namespace, because what is in it belongs to others.",
        )
    if "deletionTimestamp" in live["metadata"]:
        holders = ", ".join(live["metadata"].get("finalizers") or []) or "nobody any more"
        return decision(Step.WAIT, f"It is being deleted; held by {holders}.")
    if key.kind == "ClusterQueue":
        return _leaving_queue(key, live, owner, held)
    users = sorted(str(user) for user in _users_of(key, cache))
    if users:
        return decision(Step.WAIT, f"It stays while it is used by {', '.join(users[:3])}.")
    return decision(Step.DELETE)


def newer_than_known(
    documents: Iterable[Document],
    generations: Mapping[str, int],
    installation: str,
    *,
    forgotten: Collection[str] = (),
) -> list[Newer]:
    """Find objects of ours that know more than this database, as after a restored backup.

    Args:
        documents: Live objects.
        generations: Subject → generation; archived subjects included.
        installation: Id of this portal.
        forgotten: Unknown subjects that an admin has given up.
    """
    found = []
    for document in documents:
        owner = owner_of(document)
        if owner is None or owner.installation != installation or not owner.subject:
            continue
        known = generations.get(owner.subject)
        if known is None and (owner.subject in forgotten or document["kind"] == "Namespace"):
            continue
        if known is None or owner.generation > known:
            found.append(Newer(key_of(document), owner.subject, owner.generation, known))
    return found


def _missing(key: Key, wanted: Document, owner: Ownership, policy: Policy) -> Decision:
    if key not in policy.known:
        return Decision(key, Step.CREATE, wanted, owner)
    gone = FieldChange("", "present", None)
    step, message = Step.KEEP, "Somebody deleted it, and the portal leaves it so."
    if policy.restores_drift:
        step, message = Step.RESTORE, "Somebody deleted it; the portal makes it again."
    return Decision(key, step, wanted, owner, (gone,), ((gone, ""),), message)


def _refusal(key: Key, live: Document, policy: Policy) -> str:
    """Why an object of this name may not be written; empty when it may."""
    owner = owner_of(live)
    if owner is not None and owner.installation != policy.installation:
        return f"It belongs to another installation of the portal, {owner.installation!r}."
    if owner is None and key.kind != "Namespace" and not _was_ours(key, live, policy):
        return "An object of this name was here before the portal and does not belong to it."
    return ""


def _is_shared(key: Key, live: Document) -> bool:
    """The flavor `host` is the same for every installation: no labels, no taints."""
    return key == Key("ResourceFlavor", "", HOST_FLAVOR) and not live.get("spec")


def _was_ours(key: Key, live: Document, policy: Policy) -> bool:
    """Somebody took our labels off an object that we have written."""
    managers = {entry.get("manager") for entry in live["metadata"].get("managedFields") or []}
    return key in policy.known and bool(managers & diff.OWN_MANAGERS)


def _drifted(changes: Iterable[FieldChange], live: Document) -> Iterator[tuple[FieldChange, str]]:
    for change in changes:
        manager = diff.manager_of(change, live)
        if not diff.is_ours(manager):
            yield change, manager


def _leaving_queue(key: Key, live: Document, owner: Ownership, held: Mapping[str, int]) -> Decision:
    holders = max(reserving(live), held.get(key.name, 0))
    if (live.get("spec") or {}).get("stopPolicy") != DRAINED["stopPolicy"]:
        message = "It is held and drained before it is removed."
        return Decision(key, Step.DRAIN, live, owner, message=message)
    if holders:
        message = f"It stays until {holders} workloads have given their quota back."
        return Decision(key, Step.WAIT, live, owner, message=message)
    return Decision(key, Step.DELETE, live, owner)


def _users_of(key: Key, cache: Cache) -> Iterator[Key]:
    """Objects that refer to this one, whoever owns them."""
    if key.kind == "LocalQueue":
        named = dispatched_queue if key.name == FLEET_QUEUE else str
        queue = cache.get(r.CLUSTER_QUEUE, named(key.namespace))
        if queue is not None and reserving(queue):
            yield key_of(queue)
        return
    for resource, name in cache.places(REFERRING.name, str(key)):
        yield Key(resource.kind, "", name)


def _references(document: Mapping[str, Any]) -> Iterator[str]:
    """What a ClusterQueue, Cohort or flavor refers to, as keys are written."""
    spec = document.get("spec") or {}
    if spec.get("topologyName"):
        yield f"Topology {spec['topologyName']}"
    for parent in (spec.get("cohortName"), spec.get("parentName")):
        if parent:
            yield f"Cohort {parent}"
    for group in spec.get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            yield f"ResourceFlavor {flavor['name']}"
    for check in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or []:
        yield f"AdmissionCheck {check.get('name')}"


REFERRING = Index(
    "refers to", frozenset({r.RESOURCE_FLAVOR, r.COHORT, r.CLUSTER_QUEUE}), _references
)


def write_of(decision: Decision) -> Write:
    """The request that carries a decision out."""
    document, resource = decision.document, RESOURCES[decision.key.kind]
    step = str(decision.step)
    match decision.step:
        case Step.DELETE:
            return Write.delete(step, resource, document, exact=True)
        case Step.DRAIN:
            seen = {"resourceVersion": document["metadata"]["resourceVersion"]}
            return Write.patch(step, resource, document, {"metadata": seen, "spec": DRAINED})
        case Step.RELEASE:
            # By name: a label that an admin gave the namespace has that admin for a manager too.
            return Write.patch(step, resource, document, {"metadata": names.unmarked(document)})
    return Write.apply(step, resource, document, takes_over=decision.step is Step.RESTORE)


def order_of(decision: Decision) -> tuple[bool, int]:
    """By kind, what others refer to first; deletions last and backwards."""
    is_going = decision.step in GOING
    return is_going, -decision.key.rank if is_going else decision.key.rank


def look_of(document: Document) -> tuple[object, ...]:
    """What quota sync looks at; usage in the status changes with every admission and is not."""
    metadata = document["metadata"]
    active = condition(document, "Active")
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("labels"),
        metadata.get("annotations"),
        metadata.get("deletionTimestamp"),
        reserving(document) == 0,
        active.get("status"),
        active.get("message"),
        # Kinds without metadata.generation are compared as they are.
        None if "generation" in metadata else metadata.get("resourceVersion"),
    )


def of_strangers(name: str, live: Document | None, installation: str) -> str:
    """What an admin does with a namespace that was there before; empty for any other."""
    if live is None or labels.INSTALLATION in labels_of(live):
        return ""
    return (
        "This namespace was here before, and the cluster's policies let the portal write none that "
        "is not its own. If it is to be this workspace, an admin of the cluster runs: "
        f"kubectl label namespace {name} {labels.INSTALLATION}={installation}"
    )


def reserving(document: Mapping[str, Any]) -> int:
    """Workloads that hold quota of a ClusterQueue, as whoever admits there counts them."""
    return whole_number((document.get("status") or {}).get("reservingWorkloads")) or 0


def is_of(document: Document, installation: str) -> bool:
    """Whether an object carries an installation's label."""
    return labels_of(document).get(labels.INSTALLATION) == installation
