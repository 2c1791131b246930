"""Jobs as pages and API list them: one row per job, whichever clusters it was seen on.

A job that a manager dispatches is one Workload there and a copy on a worker; the row is the
manager's, with what its copy knows better (flavors, start). Invisible is absent: ``DoesNotExist``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from budgets.errors import Rejected
from budgets.models import User
from budgets.records import record_of
from budgets.selectors import visible_workspaces
from budgets.selectors.fleet.places import at_keys
from budgets.texts import read_json
from budgets.units import time_text
from clusters.documents.queues import FLEET_QUEUE
from clusters.explaining.conditions import plain
from clusters.explaining.names import Names
from clusters.models import Cluster, WorkloadState
from clusters.selectors.bars import DEACTIVATED
from clusters.selectors.names import reader_names
from clusters.selectors.reasons import lost_workers, stored_reasons, told, waits_for_worker

Phase = WorkloadState.Phase
# Sort → (column, whether descending); the primary key decides between equals.
SORTS: Mapping[str, tuple[str, bool]] = {
    "-created": ("created_at", True),
    "created": ("created_at", False),
    "-gpus": ("gpu_total", True),
    "gpus": ("gpu_total", False),
    "workspace": ("namespace", False),
    "-workspace": ("namespace", True),
}
# Column → what a cursor says of it, as a value.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "created_at": datetime.fromisoformat,
    "gpu_total": int,
    "namespace": str,
}
LIMIT_MOST = 500
CSV_MOST = 100_000
CSV_COLUMNS = (
    *("workspace", "job", "job_kind", "workload", "cluster", "uid", "queue", "priority"),
    *("state", "phase", "gpus", "flavors", "worker", "evictions"),
    *("created_at", "reserved_at", "admitted_at", "finished_at", "why"),
)


@dataclass(frozen=True, slots=True)
class WorkloadFilter:
    """Which jobs, in which order; empty means any.

    Attributes:
        namespaces: Of visible workspaces; others have no jobs.
        phases: Values of ``WorkloadState.Phase``.
        cluster: Slug of the worker it is on, or of the cluster that it was submitted to.
        flavor: Slug of a flavor that it holds GPUs of.
        text: Part of the name of job or Workload.
        sort: One of ``SORTS``.
    """

    namespaces: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    cluster: str = ""
    flavor: str = ""
    text: str = ""
    sort: str = "-created"


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One job as last seen.

    Attributes:
        cluster: Slug of the cluster that it was submitted to; with ``uid`` its address.
        phase: One of ``WorkloadState.Phase``; ``phase_label`` the same for people.
        message: Why it waits, stops or failed, in the cluster's words; empty while it runs.
        gpus: Flavor slug → GPUs; before admission the request stands under "".
        flavors: The same in words, by the flavors' names; empty before admission.
        worker: Slug of the worker that has it; empty while none does. ``worker_name``: its name.
        why: Why it waits, stops or failed, in one plain sentence; empty while nothing is known.
    """

    cluster: str
    uid: str
    namespace: str
    name: str
    job_kind: str
    job_name: str
    queue: str
    priority: int
    phase: str
    phase_label: str
    reason: str
    message: str
    gpu_total: int
    gpus: Mapping[str, int]
    flavors: str
    worker: str
    worker_name: str
    is_remote_copy: bool
    created_at: datetime
    reserved_at: datetime | None
    admitted_at: datetime | None
    finished_at: datetime | None
    evictions: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    """Rows and where the next page begins; ``next_cursor`` is empty on the last."""

    rows: tuple[WorkloadRow, ...]
    next_cursor: str = ""


def workloads(
    user: User, wanted: WorkloadFilter, *, cursor: str | None = None, limit: int = 50
) -> WorkloadPage:
    """One page of the jobs that a user may see, by keyset; fifteen queries at most.

    Args:
        user: The viewer.
        wanted: Filter and order.
        cursor: ``next_cursor`` of the page before, with the same order; None for the first.
        limit: Rows at most, 1 to 500.

    Raises:
        Rejected: Order or cursor is not one of ours.
    """
    if wanted.sort not in SORTS:
        raise Rejected.because("sort", "unknown_sort", f"Choose one of {', '.join(SORTS)}.")
    limit = max(1, min(limit, LIMIT_MOST))
    column, is_descending = SORTS[wanted.sort]
    found = _filtered(visible_states(user).filter(is_remote_copy=False), wanted)
    if cursor:
        found = found.filter(_beyond(cursor, wanted.sort))
    sign = "-" if is_descending else ""
    states = list(found.order_by(f"{sign}{column}", f"{sign}pk")[: limit + 1])
    page = states[:limit]
    is_more = len(states) > limit
    return WorkloadPage(_told_rows(user, page), _cursor(page[-1], wanted.sort) if is_more else "")


def workloads_csv(user: User, wanted: WorkloadFilter) -> Iterator[tuple[str, ...]]:
    """The jobs of :func:`workloads`, all pages of them, as rows of texts, the header first.

    A page is read when the one before it was taken, so memory holds ``LIMIT_MOST`` jobs. Times are
    ISO 8601 with Z, empty where it did not come to that.

    Raises:
        Rejected: As by :func:`workloads`, or more than ``CSV_MOST`` jobs fit; before the first row.
    """
    first = workloads(user, wanted, limit=LIMIT_MOST)
    if first.next_cursor:
        found = _filtered(visible_states(user).filter(is_remote_copy=False), wanted)
        if found.order_by()[: CSV_MOST + 1].count() > CSV_MOST:
            words = f"More than {CSV_MOST:,} jobs match. Choose a workspace, a state or a name."
            raise Rejected.because("format", "too_many_rows", words)
    return _csv_rows(user, wanted, first)


def _csv_rows(user: User, wanted: WorkloadFilter, page: WorkloadPage) -> Iterator[tuple[str, ...]]:
    yield CSV_COLUMNS
    while True:
        yield from map(_csv_row, page.rows)
        if not page.next_cursor:
            return
        page = workloads(user, wanted, cursor=page.next_cursor, limit=LIMIT_MOST)


def _csv_row(row: WorkloadRow) -> tuple[str, ...]:
    moments = (row.created_at, row.reserved_at, row.admitted_at, row.finished_at)
    return (
        *(row.namespace, row.job_name or row.name, row.job_kind, row.name, row.cluster, row.uid),
        *(row.queue, str(row.priority), row.phase_label, row.phase, str(row.gpu_total)),
        *(row.flavors, row.worker, str(row.evictions)),
        *("" if at is None else time_text(at) for at in moments),
        row.why or row.message,
    )


def jobs_now(user: User, namespace: str, *, most: int) -> tuple[WorkloadPage, WorkloadPage]:
    """The newest jobs of a workspace that wait, and those that hold GPUs; fifteen queries at most.

    Args:
        user: The viewer; a workspace that they do not see has no jobs.
        namespace: Of the workspace.
        most: Rows of each at most.
    """
    found = visible_states(user).filter(is_remote_copy=False, namespace=namespace)
    parts = [
        list(found.filter(phase__in=phases).order_by("-created_at", "-pk")[: most + 1])
        for phases in ((Phase.PENDING,), (Phase.RESERVED, Phase.RUNNING))
    ]
    shown = [part[:most] for part in parts]
    rows = _told_rows(user, [state for part in shown for state in part])
    cut = len(shown[0])
    cursors = [_cursor(part[most - 1], "-created") if len(part) > most else "" for part in parts]
    return WorkloadPage(rows[:cut], cursors[0]), WorkloadPage(rows[cut:], cursors[1])


def _told_rows(user: User, states: Sequence[WorkloadState]) -> tuple[WorkloadRow, ...]:
    """Rows in the order of the states, with why each waits, in names that the viewer may see."""
    copies = copies_of(states)
    reasons, lost = stored_reasons(states), lost_workers(states)
    names = reader_names(user) if states else Names({})
    rows = [
        shown_to(names, row_of(state, copies.get((state.namespace, state.name), ())))
        for state in states
    ]
    return tuple(
        replace(
            row,
            why=told(state, reasons, lost, names)
            or (row.message and plain(row.reason, row.message)),
        )
        for state, row in zip(states, rows, strict=True)
    )


def visible_state(user: User, cluster: str, uid: str) -> WorkloadState:
    """One Workload on one cluster.

    Raises:
        WorkloadState.DoesNotExist: It is not there, or not for this user.
    """
    return visible_states(user).get(cluster__slug=cluster, uid=uid)


def copies_of(states: Iterable[WorkloadState]) -> dict[tuple[str, str], list[WorkloadState]]:
    """(namespace, name) → copies that a manager made of these Workloads. One query."""
    keys = {(state.namespace, state.name) for state in states}
    found: dict[tuple[str, str], list[WorkloadState]] = {}
    if not keys:
        return found
    rows = WorkloadState.objects.filter(at_keys(keys), is_remote_copy=True)
    for row in rows.select_related("cluster").order_by("cluster__slug", "pk"):
        if (row.namespace, row.name) in keys:
            found.setdefault((row.namespace, row.name), []).append(row)
    return found


def chosen_copy(state: WorkloadState, copies: Collection[WorkloadState]) -> WorkloadState | None:
    """The copy on the worker that the manager named; the newest if it was made more than once."""
    named = [copy for copy in copies if copy.cluster.slug == state.worker]
    return max(named, key=lambda copy: (copy.created_at, copy.pk), default=None)


def row_of(state: WorkloadState, copies: Collection[WorkloadState] = ()) -> WorkloadRow:
    """A row before :func:`shown_to`; what the chosen copy knows better is taken from it."""
    copy = chosen_copy(state, copies)
    best = copy if copy is not None and copy.phase != Phase.PENDING else state
    is_waiting_for_worker = waits_for_worker(state)
    phase, message = Phase(state.phase), state.message
    if phase is Phase.RESERVED and copy is not None and copy.phase == Phase.RUNNING:
        phase = Phase.RUNNING
    label = "Waiting for a worker" if is_waiting_for_worker else str(phase.label)
    if phase is Phase.PENDING and state.reason == DEACTIVATED:
        label = DEACTIVATED
    if is_waiting_for_worker:
        waiting = [each for each in copies if each.phase == Phase.PENDING and each.message]
        message = "; ".join(f"{each.cluster.name}: {each.message}" for each in waiting) or message
    own = state.cluster.slug, state.cluster.name
    worker = state.worker or ("" if state.goes_to_worker else own[0])
    names = dict([own, *((each.cluster.slug, each.cluster.name) for each in copies)])
    return record_of(
        WorkloadRow,
        state,
        cluster=state.cluster.slug,
        phase=phase.value,
        phase_label=label,
        message="" if phase in (Phase.RUNNING, Phase.FINISHED) else message,
        gpu_total=best.gpu_total,
        gpus=dict(best.gpus),
        flavors="",
        worker=worker,
        worker_name=names.get(worker, worker),
        admitted_at=(copy.admitted_at if copy is not None else None) or state.admitted_at,
        evictions=max([state.evictions, *(each.evictions for each in copies)]),
    )


def shown_to(names: Names, row: WorkloadRow) -> WorkloadRow:
    """The row with the cluster's message, and its flavors by name, as a reader may see them."""
    held = {} if "" in row.gpus else row.gpus
    flavors = [f"{count} {names.flavor(slug)}" for slug, count in sorted(held.items()) if count]
    return replace(row, message=names.message(row.message), flavors=", ".join(flavors))


def visible_states(user: User) -> QuerySet[WorkloadState]:
    """Workloads of the workspaces that a user may see, with their clusters; copies too."""
    spaces = visible_workspaces(user, include_archived=True).order_by()
    return WorkloadState.objects.filter(namespace__in=spaces.values("namespace")).select_related(
        "cluster"
    )


def _filtered(states: QuerySet[WorkloadState], wanted: WorkloadFilter) -> QuerySet[WorkloadState]:
    if wanted.namespaces:
        states = states.filter(namespace__in=wanted.namespaces)
    if wanted.phases:
        states = states.filter(phase__in=wanted.phases)
    if wanted.text:
        states = states.filter(Q(name__icontains=wanted.text) | Q(job_name__icontains=wanted.text))
    if wanted.cluster:
        states = states.filter(Q(cluster__slug=wanted.cluster) | Q(worker=wanted.cluster))
    if wanted.flavor:
        copies = WorkloadState.objects.filter(
            is_remote_copy=True,
            namespace=OuterRef("namespace"),
            name=OuterRef("name"),
            cluster__slug=OuterRef("worker"),
            gpus__has_key=wanted.flavor,
        )
        is_own = ~Q(cluster__own_queue=Cluster.OwnQueue.NONE) & ~Q(queue=FLEET_QUEUE)
        runs_here = ~Q(cluster__role=Cluster.Role.MANAGER) | is_own
        is_direct = runs_here & Q(gpus__has_key=wanted.flavor)
        states = states.filter(is_direct | Exists(copies))
    return states


def _cursor(last: WorkloadState, sort: str) -> str:
    value = getattr(last, SORTS[sort][0])
    text = value.isoformat() if isinstance(value, datetime) else value
    return base64.urlsafe_b64encode(json.dumps([sort, text, last.pk]).encode()).decode()


def _beyond(cursor: str, sort: str) -> Q:
    """Rows after the one that a cursor stands for."""
    column, is_descending = SORTS[sort]
    try:
        made_for, text, pk = read_json(base64.urlsafe_b64decode(cursor.encode()))
        if made_for != sort:
            raise ValueError("made for another order")
        value = _READ[column](text)
        if "\0" in str(value):
            raise ValueError("no text")
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError("no time zone")
            value = value.astimezone(UTC)
        last = int(pk)
    except (ValueError, TypeError, OverflowError, UnicodeError, binascii.Error):
        message = "Begin again with the first page."
        raise Rejected.because("cursor", "invalid_cursor", message) from None
    side = "lt" if is_descending else "gt"
    return Q(**{f"{column}__{side}": value}) | Q(**{column: value, f"pk__{side}": last})
