"""Who was stopped for whom, why, and what work that cost.

Read from the recorded conditions of the stopped workloads. A reader who does not see the workspace
of the other side learns that there was one, and no more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from budgets.models import Interval, User
from budgets.selectors.fleet.places import at_keys, at_places
from clusters.documents.conditions import conditions_of
from clusters.explaining.conditions import plain
from clusters.explaining.names import ANOTHER_ACCOUNT, Names
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.selectors.fleet import require_platform
from clusters.selectors.names import reader_names
from clusters.selectors.workload_detail import WorkloadDetail
from clusters.selectors.workloads import visible_state, visible_states

EVENTS_MOST = 1000
VICTIMS_MOST = 50
_UID = re.compile(r"\(UID: ?([^,) ]+)")

# A pod's end is seen a little after the workload was told to stop.
_SLACK = timedelta(minutes=2)
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SideRow:
    """A workload of a preemption; one that the reader may not see has words for its name only."""

    name: str
    namespace: str = ""
    cluster: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class PreemptionRow:
    """One workload was stopped for another.

    Attributes:
        at: When it was told to stop.
        place: Name of the cluster that decided it.
        why: The rule that allowed it, in a plain sentence.
        lost: GPU-seconds since its start; lost unless it keeps checkpoints. None if not metered.
    """

    at: datetime
    place: str
    victim: SideRow
    preemptor: SideRow
    why: str
    lost: int | None


@dataclass(frozen=True, slots=True)
class _Preempted:
    at: datetime
    state: WorkloadState
    preemptor_uid: str
    why: str


def preemptions_of(user: User, detail: WorkloadDetail) -> list[PreemptionRow]:
    """When and for whom a job was stopped, oldest first; one query if never, else ten at most.

    Raises:
        WorkloadState.DoesNotExist: The job is not for this user.
    """
    own = visible_state(user, detail.row.cluster, detail.row.uid)
    if not any(row.evictions for row in (detail.row, *detail.copies)):
        return []
    states = [own, *_states({row.uid for row in detail.copies})]
    return _rows(_preempted(states), states, reader_names(user))


def recent_preemptions(user: User) -> list[PreemptionRow]:
    """The last ones of the fleet, newest first; seven queries at most.

    Raises:
        NotAllowed: for people who do not see the platform.
    """
    require_platform(user, "the preemptions of the whole fleet")
    evicted = WorkloadState.objects.filter(evictions__gt=0).select_related("cluster")
    states = list(evicted.order_by("-updated_at")[:VICTIMS_MOST])
    found = _preempted(states)
    return _rows(found, states, reader_names(user))[::-1][:VICTIMS_MOST] if found else []


def newest_preempted(user: User) -> Place | None:
    """Cluster and UID of the job that was stopped last for another; None where none is seen."""
    own = visible_states(user).filter(is_remote_copy=False, evictions__gt=0)
    found = _preempted(list(own.order_by("-created_at")[:VICTIMS_MOST]))
    return (found[-1].state.cluster.slug, found[-1].state.uid) if found else None


def _states(uids: Collection[str]) -> QuerySet[WorkloadState]:
    """On whichever cluster; named all the same, for the index begins with it."""
    rows = WorkloadState.objects.filter(cluster__in=Cluster.objects.values("pk"), uid__in=uids)
    return rows.select_related("cluster")


def _preempted(states: Sequence[WorkloadState]) -> list[_Preempted]:
    """Preemptions that the events of these workloads tell, oldest first, nothing twice."""
    places: Mapping[Place, WorkloadState] = {(row.cluster.slug, row.uid): row for row in states}
    events = (
        WorkloadEvent.objects.filter(at_places(places), kind="Workload")
        .order_by("-pk")
        .values_list("cluster", "uid", "payload")[:EVENTS_MOST]
    )
    found: dict[tuple[Place, datetime], _Preempted] = {}
    for cluster, uid, payload in events:
        state = places.get((cluster, uid))
        for condition in conditions_of(payload):
            at = parse_datetime(str(condition.get("lastTransitionTime") or ""))
            is_told = condition.get("type") == "Preempted" and condition.get("status") == "True"
            if state is None or at is None or not is_told:
                continue
            message = str(condition.get("message") or "")
            uids = _UID.search(message)
            found[(cluster, uid), at] = _Preempted(
                at=at,
                state=state,
                preemptor_uid=uids.group(1) if uids else "",
                why=plain(str(condition.get("reason") or ""), message),
            )
    return sorted(found.values(), key=lambda item: item.at)


def _rows(
    found: Sequence[_Preempted], states: Iterable[WorkloadState], names: Names
) -> list[PreemptionRow]:
    if not found:
        return []
    wanted = {item.preemptor_uid for item in found if item.preemptor_uid}
    others = _with_jobs({row.uid: row for row in _states(wanted)})
    spans = _spans(found, {(row.cluster.slug, row.uid) for row in states})
    return [
        PreemptionRow(
            at=item.at,
            place=item.state.cluster.name,
            victim=_side(item.state, names),
            preemptor=_side(others.get(item.preemptor_uid), names),
            why=names.message(item.why),
            lost=_lost(item, spans),
        )
        for item in found
    ]


def _with_jobs(states: Mapping[str, WorkloadState]) -> dict[str, WorkloadState]:
    """A copy that was given up before its job came is shown as the job's own Workload."""
    nameless = {(row.namespace, row.name) for row in states.values() if not row.job_name}
    if not nameless:
        return dict(states)
    named = WorkloadState.objects.filter(at_keys(nameless), is_remote_copy=False)
    rows = named.select_related("cluster")
    owners = {(row.namespace, row.name): row for row in rows if row.job_name}
    return {uid: owners.get((row.namespace, row.name), row) for uid, row in states.items()}


def _side(state: WorkloadState | None, names: Names) -> SideRow:
    if state is None:
        return SideRow("a workload that is not known")
    if not names.sees(state.namespace):
        return SideRow(f"a workload of {ANOTHER_ACCOUNT}")
    name = state.job_name or state.name
    return SideRow(name, state.namespace, state.cluster.slug, state.uid)


def _spans(found: Sequence[_Preempted], places: set[Place]) -> list[Interval]:
    """Billed intervals of the stopped workloads, of their copies too. Two queries."""
    keys = {(item.state.namespace, item.state.name) for item in found}
    copies = WorkloadState.objects.filter(at_keys(keys)).values_list("cluster__slug", "uid")
    since = found[-1].at + _SLACK
    billed = Interval.objects.filter(
        at_places({*places, *copies}), start__lt=since, kind=Interval.Kind.BILLABLE
    )
    return list(billed.exclude(state=Interval.State.SUPERSEDED))


def _lost(item: _Preempted, spans: Sequence[Interval]) -> int | None:
    """GPU-seconds of the run that was stopped: of the admission that held then."""
    key = item.state.namespace, item.state.name
    mine = [span for span in spans if (span.namespace, span.workload) == key]
    runs = {
        (span.cluster, span.uid, span.epoch)
        for span in mine
        if span.start < item.at and (span.end is None or span.end >= item.at - _SLACK)
    }
    held = [span for span in mine if (span.cluster, span.uid, span.epoch) in runs]
    if not held:
        return None
    now = timezone.now()
    return sum(span.gpus * int(((span.end or now) - span.start).total_seconds()) for span in held)
