"""One job: its state in one sentence, its time line from the recorded events, its GPU-hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum, auto
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Max, Min, Q, Sum
from django.utils.dateparse import parse_datetime

from budgets.models import User, WorkloadUsage
from budgets.selectors.fleet.places import at_places
from clusters.documents.conditions import conditions_of
from clusters.documents.keys import status_of
from clusters.explaining.conditions import plain
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.selectors.bars import HOLDING
from clusters.selectors.names import reader_names
from clusters.selectors.pod_places import PodPlaces, pod_places
from clusters.selectors.workloads import (
    Phase,
    WorkloadRow,
    copies_of,
    row_of,
    shown_to,
    visible_state,
)

EVENTS_MOST = 1000


@dataclass(frozen=True, slots=True, order=True)
class TimelineEntry:
    """Something that happened, in words.

    Attributes:
        detail: Why, in a plain sentence; ``told`` is what the cluster said of it.
    """

    at: datetime
    words: str
    detail: str = ""
    told: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadDetail:
    """One job.

    Attributes:
        row: As the list has it.
        sentence: What it does, or waits for, now.
        timeline: Oldest first.
        copies: The same job on other clusters, or the Workload that this is a copy of.
        pods: Where its pods are placed by topology; empty while it holds no quota.
        events_retired_at: When its raw events were taken away: the time line has what is left.
    """

    row: WorkloadRow
    sentence: str
    timeline: tuple[TimelineEntry, ...]
    copies: tuple[WorkloadRow, ...]
    pods: tuple[PodPlaces, ...]
    events_retired_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkloadHours:
    """GPU-seconds of a job on one cluster and flavor, by class."""

    cluster: str
    flavor: str
    committed_used: int
    burst: int
    first: datetime
    last: datetime


def workload_detail(user: User, cluster: str, uid: str) -> WorkloadDetail:
    """Everything about one job; twelve queries at most.

    Args:
        user: The viewer.
        cluster: Slug of the cluster that ``uid`` was seen on.
        uid: Of the Workload.

    Raises:
        WorkloadState.DoesNotExist: It is not there, or not for this user.
    """
    state = visible_state(user, cluster, uid)
    others = _others(state)
    copies = others if not state.is_remote_copy else []
    names = reader_names(user)
    row = shown_to(names, row_of(state, copies))
    events = _events([state, *others])
    return WorkloadDetail(
        row=row,
        sentence=_sentence(row),
        timeline=tuple(
            replace(entry, detail=names.message(entry.detail), told=names.message(entry.told))
            for entry in _timeline(state, others, events)
        ),
        copies=tuple(shown_to(names, row_of(other)) for other in others),
        pods=pod_places(_holding([state, *others], events)),
        events_retired_at=state.events_retired_at,
    )


def workload_hours(user: User, detail: WorkloadDetail) -> list[WorkloadHours]:
    """What the meter has of a job, on every cluster that it ran on. Two queries.

    Raises:
        WorkloadState.DoesNotExist: The job is not for this user.
    """
    visible_state(user, detail.row.cluster, detail.row.uid)
    places = [Q(cluster=row.cluster, uid=row.uid) for row in (detail.row, *detail.copies)]
    # By cluster: a job that came back to one has another copy there.
    found = (
        WorkloadUsage.objects.filter(reduce(or_, places))
        .order_by("flavor", "cluster")
        .values_list("cluster", "flavor")
        .annotate(Sum("committed_used"), Sum("burst"), Min("hour"), Max("hour"))
    )
    return [WorkloadHours(*row) for row in found]


def _others(state: WorkloadState) -> list[WorkloadState]:
    """The copies of a manager's Workload, or of a copy the manager's own and its other copies."""
    if not state.is_remote_copy and not state.goes_to_worker:
        return []
    copies = copies_of([state]).get((state.namespace, state.name), [])
    if not state.is_remote_copy:
        return copies
    own = WorkloadState.objects.filter(
        namespace=state.namespace,
        name=state.name,
        is_remote_copy=False,
        cluster__role=Cluster.Role.MANAGER,
    ).select_related("cluster")
    return [*own, *(copy for copy in copies if copy.pk != state.pk)]


def _sentence(row: WorkloadRow) -> str:
    """The state of a job, as one would tell it."""
    gpus = f"{row.gpu_total} GPU{'' if row.gpu_total == 1 else 's'}"
    kinds = f" ({row.flavors})" if row.flavors else ""
    told = f" {plain(row.reason, row.message)}" if row.message else ""
    where = f" on {row.worker_name}" if row.worker else ""
    match Phase(row.phase):
        case Phase.PENDING if row.reason == "Deactivated":
            return (
                f"It is deactivated and asks for none of its {gpus} until somebody puts it back in "
                "the queue."
            )
        case Phase.PENDING:
            return f"Waits for {gpus}.{told}"
        case Phase.RESERVED if not row.worker:
            return f"Has quota for {gpus} and waits for a worker.{told}"
        case Phase.RESERVED:
            return f"Has {gpus}{kinds} reserved{where} and is about to start.{told}"
        case Phase.RUNNING:
            return f"Runs with {gpus}{kinds}{where}."
        case Phase.EVICTED:
            return f"Is being stopped{where}.{told}"
        case Phase.FINISHED:
            return f"Finished{where}."
        case Phase.FAILED:
            return f"Failed{where}.{told}"
        case _:
            return "Was deleted before it finished."


def _events(states: Sequence[WorkloadState]) -> list[dict[str, Any]]:
    """Recorded events of a job and of its copies, the newest first. One query."""
    places = {(row.cluster.slug, row.uid) for row in states}
    columns = ("cluster", "uid", "resource_version", "type", "observed_at", "payload")
    rows = WorkloadEvent.objects.filter(at_places(places), kind="Workload").order_by("-pk")
    return list(rows.values(*columns)[:EVENTS_MOST])


def _holding(
    states: Sequence[WorkloadState], events: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Clusters on which a job holds quota, each with what it showed there last."""
    for row in states:
        newest = (row.cluster.slug, row.uid, row.resource_version)
        for event in events if row.phase in HOLDING else ():
            if (event["cluster"], event["uid"], event["resource_version"]) == newest:
                yield row.cluster.slug, event["payload"]
                break


def _timeline(
    state: WorkloadState, others: Sequence[WorkloadState], events: Sequence[Mapping[str, Any]]
) -> tuple[TimelineEntry, ...]:
    """What the events of a job and of its copies show, oldest first, nothing twice."""
    places = {(row.cluster.slug, row.uid): row for row in (state, *others)}
    owner = next((row for row in places.values() if not row.is_remote_copy), state)
    submitted = TimelineEntry(owner.created_at, f"Submitted to {owner.cluster.name}")
    # The same transition told twice gives equal entries, of which the first telling counts.
    entries = {submitted: _Step.SUBMITTED}
    names = {row.cluster.slug: row.cluster.name for row in places.values()}
    worker = ""
    for event in reversed(events):
        row = places.get((event["cluster"], event["uid"]))
        if row is None or row.events_retired_at is not None:
            continue
        for entry, step in _entries_of(event, row):
            entries.setdefault(entry, step)
        if row is owner:
            before, worker = worker, status_of(event["payload"]).get("clusterName") or ""
            if worker and worker != before:
                words = f"Dispatched to {names.get(worker, worker)}"
                entries.setdefault(TimelineEntry(event["observed_at"], words), _Step.DISPATCHED)
    for row in places.values():
        if row.events_retired_at is not None:
            entries |= _left_of(row)
    # By the second, which is all that conditions tell; within it in the order of a job's life.
    return tuple(
        sorted(entries, key=lambda entry: (entry.at.replace(microsecond=0), entries[entry], entry))
    )


class _Step(IntEnum):
    """What comes before what when it happened within one second."""

    SUBMITTED = auto()
    EARLIER_RUN_STOPPED = auto()
    EARLIER_RUN_STOPPED_BY_MANAGER = auto()
    RESERVED_BY_MANAGER = auto()
    RESERVED = auto()
    DISPATCHED = auto()
    STARTED = auto()
    STOPPED = auto()
    STOPPED_BY_MANAGER = auto()
    OVER = auto()


def _entries_of(
    event: Mapping[str, Any], row: WorkloadState
) -> Iterable[tuple[TimelineEntry, _Step]]:
    """What one event tells."""
    place, is_manager = row.cluster.name, row.goes_to_worker
    true_at = {
        condition.get("type"): (at, condition)
        for condition in conditions_of(event["payload"])
        if condition.get("status") == "True"
        and (at := parse_datetime(str(condition.get("lastTransitionTime") or ""))) is not None
    }
    for kind, (at, condition) in true_at.items():
        match kind:
            case "QuotaReserved":
                step = _Step.RESERVED_BY_MANAGER if is_manager else _Step.RESERVED
                yield TimelineEntry(at, f"Quota reserved on {place}"), step
            case "Admitted" if not is_manager:
                yield TimelineEntry(at, f"Started on {place}"), _Step.STARTED
            case "Evicted":
                began = true_at.get("QuotaReserved")
                if began is not None and began[0] == at:
                    step = _Step.STOPPED_BY_MANAGER if is_manager else _Step.STOPPED
                elif is_manager:
                    step = _Step.EARLIER_RUN_STOPPED_BY_MANAGER
                else:
                    step = _Step.EARLIER_RUN_STOPPED
                yield TimelineEntry(at, f"Stopped on {place}", *_why(condition)), step
            case "Finished" if not row.is_remote_copy:
                words = "Failed" if condition.get("reason") == "Failed" else "Finished"
                yield TimelineEntry(at, words, *_why(condition)), _Step.OVER
    if row.is_remote_copy or row.phase != Phase.GONE:
        return
    if event["type"] == WorkloadEvent.Type.DELETED:
        yield TimelineEntry(event["observed_at"], f"Deleted on {place}"), _Step.OVER
    elif event["type"] == WorkloadEvent.Type.MISSING:
        detail = "The portal was not watching the cluster when it ended, so the time is estimated."
        yield TimelineEntry(event["observed_at"], f"No longer on {place}", detail), _Step.OVER


def _left_of(row: WorkloadState) -> dict[TimelineEntry, _Step]:
    """What the newest state still tells of a Workload whose events were taken away."""
    place, is_manager = row.cluster.name, row.goes_to_worker
    reserved = _Step.RESERVED_BY_MANAGER if is_manager else _Step.RESERVED
    told = [(row.reserved_at, f"Quota reserved on {place}", reserved)]
    if not is_manager:
        told.append((row.admitted_at, f"Started on {place}", _Step.STARTED))
    if not row.is_remote_copy:
        words = {Phase.FAILED: "Failed", Phase.GONE: f"No longer on {place}"}
        ended = words.get(Phase(row.phase), "Finished")
        told.append((row.finished_at, ended, _Step.OVER))
    return {TimelineEntry(at, words): step for at, words, step in told if at is not None}


def _why(condition: Mapping[str, Any]) -> tuple[str, str]:
    """A condition in plain words, and as the cluster told it."""
    reason, message = (str(condition.get(name) or "") for name in ("reason", "message"))
    return plain(reason, message), ": ".join(part for part in (reason, message) if part)
