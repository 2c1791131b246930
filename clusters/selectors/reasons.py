"""The stored reasons of waiting jobs, one sentence each, for lists. Bounded queries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from django.db.models import Exists, OuterRef, QuerySet

from budgets.models import SpendEffect
from budgets.selectors.fleet.places import at_keys
from clusters.explaining.evidence import Evidence, read_evidence
from clusters.explaining.names import Names
from clusters.explaining.sentence import sentence, without_place
from clusters.models import Cluster, ClusterHealth, PendingReason, WorkloadState
from clusters.selectors.racks import rooms
from clusters.selectors.stops import Waiting, with_stops

Phase = WorkloadState.Phase


@dataclass(frozen=True, slots=True)
class StoredReason:
    """Why a Workload waits on one cluster, completed by the records of what stops its queue.

    Attributes:
        uid: Of the Workload.
        since: UTC.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    since: datetime
    evidence: Evidence


# (namespace, name) → the reason on each cluster, by slug.
Reasons: TypeAlias = Mapping[tuple[str, str], Mapping[str, StoredReason]]


@dataclass(frozen=True, slots=True)
class PlaceReason:
    """Why a job waits on one cluster; ``evidence`` is None where the cluster cannot be reached.

    Its slug is empty for who does not see clusters.
    """

    cluster: str
    evidence: Evidence | None
    words: str


def stored_reasons(states: Iterable[WorkloadState]) -> Reasons:
    """Reasons of those that wait, on whichever clusters they do.

    One query, none for none; six more at most where a queue stands still.
    """
    keys = {(state.namespace, state.name) for state in states if is_waiting(state)}
    found: dict[tuple[str, str], dict[str, StoredReason]] = {}
    if not keys:
        return found
    for row in read_reasons(PendingReason.objects.filter(at_keys(keys)), keys=keys):
        found.setdefault((row.namespace, row.name), {})[row.cluster] = row
    return found


def read_reasons(
    rows: QuerySet[PendingReason], *, keys: Collection[tuple[str, str]] | None = None
) -> list[StoredReason]:
    """Reasons by cluster, completed. Seven queries at most; one where no queue stands still.

    Where no place is found for pods, one more, and one for each flavor and level of these.

    Args:
        rows: Of workspaces whose jobs the reader sees.
        keys: Only of these (namespace, name); None for all.
    """
    capped = SpendEffect.objects.filter(
        budget__workspace__namespace=OuterRef("namespace"), floor_only=True
    )
    known = [
        row
        for row in rows.annotate(is_capped=Exists(capped)).order_by("cluster", "pk")
        if keys is None or (row.namespace, row.name) in keys
    ]
    completed = with_stops(
        Waiting(row.namespace, row.cluster, read_evidence(row.evidence), row.is_capped)
        for row in known
    )
    evidence = _with_room([row.cluster for row in known], completed)
    return [
        StoredReason(row.cluster, row.namespace, row.name, row.uid, row.since, found)
        for row, found in zip(known, evidence, strict=True)
    ]


def _with_room(clusters: Sequence[str], found: Sequence[Evidence]) -> list[Evidence]:
    """With what is free on nodes, where one domain of them has to hold pods and none does."""
    asked = [
        (cluster, pair.flavor, evidence.within)
        if evidence.within and (pair := without_place(evidence)) is not None
        else None
        for cluster, evidence in zip(clusters, found, strict=True)
    ]
    known = rooms(wanted) if (wanted := {each for each in asked if each is not None}) else {}
    return [
        replace(evidence, room=known[place]) if place in known else evidence
        for place, evidence in zip(asked, found, strict=True)
    ]


def is_waiting(state: WorkloadState) -> bool:
    """Whether it has no quota yet, or quota and not what comes next: a worker, or its checks."""
    if state.phase == Phase.RESERVED:
        return not (state.goes_to_worker and state.worker)
    return state.phase == Phase.PENDING


def waits_for_worker(state: WorkloadState) -> bool:
    """Whether it has quota on the manager and no worker yet."""
    return state.phase == Phase.RESERVED and state.goes_to_worker and not state.worker


def own_reason(state: WorkloadState, reasons: Reasons) -> StoredReason | None:
    """The reason on the cluster that the job is in, unless it is an older Workload's."""
    row = reasons.get((state.namespace, state.name), {}).get(state.cluster.slug)
    return row if row is not None and row.uid == state.uid else None


def lost_workers(states: Sequence[WorkloadState]) -> Mapping[str, str]:
    """Slug → what is wrong, of workers that do not answer. One query if a job waits for one."""
    if not any(waits_for_worker(state) for state in states):
        return {}
    rows = ClusterHealth.objects.filter(
        reachable=False,
        cluster__role=Cluster.Role.WORKER,
        cluster__state=Cluster.State.ACTIVE,
    ).order_by("cluster__slug")
    return dict.fromkeys(rows.values_list("cluster__slug", flat=True), "it cannot be reached")


def places_of(
    state: WorkloadState, reasons: Reasons, lost: Mapping[str, str], names: Names
) -> tuple[PlaceReason, ...]:
    """Why a job that has quota on the manager has no worker, worker by worker.

    For who does not see clusters: without a worker's name, nothing twice.
    """
    if not waits_for_worker(state):
        return ()
    rows = reasons.get((state.namespace, state.name), {})
    found = [
        PlaceReason(slug, row.evidence, _lower(sentence(row.evidence, names)))
        for slug, row in rows.items()
        if slug != state.cluster.slug and slug not in lost
    ]
    if not names.sees_everything:
        told = {place.words: replace(place, cluster="") for place in reversed(found)}
        return tuple(told[words] for words in sorted(told))
    found += [PlaceReason(slug, None, words) for slug, words in lost.items()]
    return tuple(sorted(found, key=lambda place: place.cluster))


def told(state: WorkloadState, reasons: Reasons, lost: Mapping[str, str], names: Names) -> str:
    """The sentence of one job; empty when nothing is known of it, or when it does not wait."""
    if not is_waiting(state):
        return ""
    places = places_of(state, reasons, lost, names)
    if places:
        if not names.sees_everything:
            words = "; or ".join(place.words for place in places)
            return f"It has its quota and waits for a worker. On workers: {words}."
        words = "; ".join(f"{names.cluster(place.cluster)}: {place.words}" for place in places)
        return f"It has its quota and waits for a worker. {words}."
    row = own_reason(state, reasons)
    if waits_for_worker(state):
        return "It has its quota and waits for a worker to take it."
    if row is None:
        return ""
    return sentence(row.evidence, names)


def _lower(text: str) -> str:
    """A sentence as the end of another one."""
    return f"{text[:1].lower()}{text[1:].rstrip('.')}"
