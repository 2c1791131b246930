"""Past runs and objects that are still on a cluster → events, states, intervals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from budgets import services as promises
from budgets.models import Flavor, Interval, User
from budgets.selectors.usage.labels import kept_labels
from budgets.services.audit import SYSTEM_NAME
from budgets.services.usage.labels import store_labels
from clusters.documents.conditions import conditions_of
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.usage.build import Source, build
from clusters.reconcile.usage.record import Observation, event_of, store_events
from clusters.services.back_fill.csv_rows import PastRun

BATCH = 200
_Span = tuple[str, datetime, datetime | None]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """One run that was not taken in, and why, in a sentence."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class BackFill:
    """What an import came to.

    Attributes:
        given: Runs or objects that were given.
        placed: That are recorded now, this time or an earlier one.
        new: That were not recorded before.
        gpu_seconds: Of the intervals that the placed ones have, open ones aside.
        outside: Intervals of them that belong to no workspace: shown, billed to nobody.
        unplaced: The others.
    """

    given: int
    placed: int
    new: int
    gpu_seconds: int
    outside: int
    unplaced: tuple[Unplaced, ...]


@dataclass(frozen=True, slots=True)
class Brought:
    """Who brought what to the server; ``sha256`` of the file's bytes, or of the objects as JSON."""

    who: str
    file: str
    sha256: str


def import_runs(
    actor: User | None,
    runs: Sequence[PastRun],
    *,
    dry_run: bool = False,
    brought: Brought | None = None,
) -> BackFill:
    """Record past runs, all or, when it fails, none; the same runs again change nothing.

    A run is not placed when its cluster or flavor is unknown, or when the portal has already
    seen the same workload hold GPUs there in that time: it would be billed twice.

    Args:
        actor: For the audit log.
        runs: From :func:`read_runs`.
        dry_run: Only report.
        brought: Who brought them, for the audit log.
    """
    clusters = {row.slug: row for row in Cluster.objects.all()}
    resources = dict(Flavor.objects.values_list("slug", "resource_name"))
    unplaced = [
        Unplaced(_where(run), why) for run in runs if (why := _unknown(run, clusters, resources))
    ]
    fit = [run for run in runs if run.cluster in clusters and run.flavor in resources]
    taken = _recorded_under_another_uid(fit)
    unplaced += [
        Unplaced(_where(run), f"the portal has seen it there already, as {taken[run.line]}")
        for run in fit
        if run.line in taken
    ]
    fit = [run for run in fit if run.line not in taken]
    events: dict[str, list[WorkloadEvent]] = {}
    for run in fit:
        events.setdefault(run.cluster, []).append(_event(run, resources[run.flavor]))
    with transaction.atomic():
        made = _record(actor, clusters, events, given=len(runs), unplaced=unplaced, by=brought)
        if dry_run:
            transaction.set_rollback(True)
    return made


def import_objects(
    actor: User | None,
    cluster: Cluster,
    client: KubeClient,
    *,
    dry_run: bool = False,
    who: str = SYSTEM_NAME,
) -> BackFill:
    """Record the Workloads that a cluster still has, finished ones above all.

    Args:
        actor: For the audit log.
        cluster: Registered.
        client: Reads there.
        dry_run: Only report.
        who: Who asked for it, for the audit log, where no actor did.

    Raises:
        ClusterError: The list cannot be read.
    """
    at = promises.utc_now()
    resources = frozenset(Flavor.objects.values_list("resource_name", flat=True))
    events: list[WorkloadEvent] = []
    unplaced: list[Unplaced] = []
    documents = client.list(r.WORKLOAD).items
    for document in documents:
        if not (document.get("status") or {}).get("admission") and not _ever_admitted(document):
            metadata = document["metadata"]
            where = f"{metadata['namespace']}/{metadata['name']}"
            unplaced.append(Unplaced(where, "it never held quota"))
            continue
        seen = Observation(WorkloadEvent.Type.SEEN, document, at, after_gap=True)
        events.append(event_of(seen, cluster=cluster.slug, gpu_resources=resources))
    with transaction.atomic():
        store_labels(documents, cluster=cluster.slug, labels=kept_labels())
        made = _record(
            actor,
            {cluster.slug: cluster},
            {cluster.slug: events},
            given=len(documents),
            unplaced=unplaced,
            by=Brought(who, f"Workloads of {cluster.slug}", _digest(documents)),
        )
        if dry_run:
            transaction.set_rollback(True)
    return made


def _record(
    actor: User | None,
    clusters: Mapping[str, Cluster],
    events: Mapping[str, list[WorkloadEvent]],
    *,
    given: int,
    unplaced: Sequence[Unplaced],
    by: Brought | None = None,
) -> BackFill:
    """Store, build, report; in the caller's transaction."""
    resources = frozenset(Flavor.objects.values_list("resource_name", flat=True))
    placed = new = seconds = outside = 0
    for slug, rows in sorted(events.items()):
        uids = sorted({row.uid for row in rows})
        known = set(_known_uids(slug, uids))
        store_events(rows)
        source = Source(clusters[slug].pk, slug, resources)
        for some in _in_batches(uids):
            build(source, some)
        # The meter looks at a cluster only once it has a mark.
        promises.record_progress(cluster=slug)
        placed += len(uids)
        new += len(set(uids) - known)
        for row in _intervals(slug, uids):
            if row.end is not None and row.kind != Interval.Kind.MANAGER_WAIT:
                seconds += row.gpus * int((row.end - row.start).total_seconds())
            outside += row.kind == Interval.Kind.OUTSIDE
    if new:
        after = {"clusters": sorted(events), "rows": given, "new": new, "gpu_seconds": seconds}
        if by is not None:
            after |= {"file": by.file, "sha256": by.sha256}
        name = by.who if by is not None else SYSTEM_NAME
        promises.audit(actor, "usage.import", "usage", after=after, actor_name=name)
    return BackFill(given, placed, new, seconds, outside, tuple(unplaced))


def _digest(documents: Sequence[Mapping[str, Any]]) -> str:
    """Of the objects as they were read: keys sorted, in order of their uids."""
    found = sorted(documents, key=lambda document: str(document["metadata"]["uid"]))
    return sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _known_uids(cluster: str, uids: Sequence[str]) -> Iterable[str]:
    """By their states, which stay where events were taken away."""
    for some in _in_batches(uids):
        found = WorkloadState.objects.filter(cluster__slug=cluster, uid__in=some)
        yield from found.values_list("uid", flat=True)


def _intervals(cluster: str, uids: Sequence[str]) -> Iterable[Interval]:
    for some in _in_batches(uids):
        yield from _standing(cluster).filter(uid__in=some)


def _standing(cluster: str) -> QuerySet[Interval]:
    return Interval.objects.filter(cluster=cluster).exclude(state=Interval.State.SUPERSEDED)


def _in_batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[at : at + BATCH] for at in range(0, len(keys), BATCH))


def _unknown(run: PastRun, clusters: Container[str], flavors: Container[str]) -> str:
    if run.cluster not in clusters:
        return f"no cluster {run.cluster!r} is registered"
    if run.flavor not in flavors:
        return f"there is no flavor {run.flavor!r}; add it in the set-up"
    return ""


def _recorded_under_another_uid(runs: Sequence[PastRun]) -> dict[int, str]:
    """Line → uid of a recorded interval of the same workload that it would count again."""
    found: dict[int, str] = {}
    by_cluster: defaultdict[str, list[PastRun]] = defaultdict(list)
    for run in runs:
        by_cluster[run.cluster].append(run)
    for cluster, group in by_cluster.items():
        spans: defaultdict[tuple[str, ...], list[_Span]] = defaultdict(list)
        names = sorted({run.workload for run in group})
        for some in _in_batches(names):
            rows = _standing(cluster).filter(workload__in=some)
            for *key, uid, start, end in rows.values_list(
                "namespace", "workload", "flavor", "uid", "start", "end"
            ):
                spans[tuple(key)].append((uid, start, end))
        for run in group:
            for uid, start, end in spans.get((run.namespace, run.workload, run.flavor), ()):
                if uid != run.uid and start < run.end and (end is None or end > run.start):
                    found[run.line] = uid
    return found


def _where(run: PastRun) -> str:
    return f"line {run.line}, {run.cluster} {run.namespace}/{run.workload}"


def _ever_admitted(document: Mapping[str, Any]) -> bool:
    shown = {entry.get("type") for entry in conditions_of(document)}
    return not shown.isdisjoint(("QuotaReserved", "Admitted"))


def _event(run: PastRun, resource: str) -> WorkloadEvent:
    """What a watch would have told at the run's end."""
    seen = Observation(WorkloadEvent.Type.SEEN, _document(run, resource), run.end)
    return event_of(seen, cluster=run.cluster, gpu_resources={resource})


def _document(run: PastRun, resource: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": run.workload,
        "namespace": run.namespace,
        "uid": run.uid,
        # Older than anything that a cluster numbers: what is seen there itself comes after it.
        "resourceVersion": "1",
        "creationTimestamp": run.start.isoformat(),
    }
    if run.job:
        metadata["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": run.job, "controller": True}
        ]
    container = {"name": "main", "resources": {"requests": {resource: str(run.gpus)}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {resource: run.flavor},
        "resourceUsage": {resource: str(run.gpus)},
    }
    moments = (("QuotaReserved", run.start), ("Admitted", run.start), ("Finished", run.end))
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "Imported",
            "message": "Filled in from a record of the past.",
            "lastTransitionTime": at.isoformat(),
        }
        for kind, at in moments
    ]
    return {
        "apiVersion": r.WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"active": True, "priority": 0, "podSets": [pod_set]},
        "status": {
            "conditions": conditions,
            "admission": {
                "clusterQueue": run.cluster_queue,
                "podSetAssignments": [assignment],
            },
        },
    }
