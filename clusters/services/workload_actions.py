"""Cancelling jobs, putting them back, deleting them: asked for here, carried out by the portal.

The wish is stored with its audit entry, so that it outlives a cluster that does not answer; see
``clusters.reconcile.acting`` for what each verb does there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Sum

from budgets.announcements import Work, announce
from budgets.errors import Fault, NotAllowed, Rejected, reject_any
from budgets.models import User, WorkloadUsage, Workspace
from budgets.selectors import utc_now
from budgets.selectors.fleet.places import at_keys, at_places
from budgets.selectors.usage.scope import USED
from budgets.services.audit import audit
from budgets.services.guards import require_reason, roles_for
from clusters.kube.shares import IN_TASKS
from clusters.models import WorkloadAction, WorkloadState
from clusters.reconcile.acting import carry_out_due
from clusters.reconcile.context import Clients
from clusters.selectors.bars import DEACTIVATED
from clusters.selectors.places import submitted_kinds

Phase, Verb, State = WorkloadState.Phase, WorkloadAction.Verb, WorkloadAction.State
MOST = 200
_LIVE = (Phase.PENDING, Phase.RESERVED, Phase.RUNNING, Phase.EVICTED)
JobKey = tuple[str, str]
"""Slug of the cluster that a job was submitted to, and the UID of its Workload there."""


@dataclass(frozen=True, slots=True)
class JobAtStake:
    """One job as a confirmation names it.

    Attributes:
        state: As last seen.
        gpu_seconds: Metered so far, on every cluster that it ran on.
        fault: Why the action is not possible; empty when it is.
    """

    state: WorkloadState
    gpu_seconds: int
    fault: str


def jobs_at_stake(actor: User, *, jobs: Sequence[JobKey], verb: str) -> list[JobAtStake]:
    """What an action would touch, in the given order. Seven queries at most.

    Raises:
        NotAllowed: One of them is in a workspace that this person may see and not change.
        Rejected: No job, too many, an unknown verb, or one that is not there for this user.
    """
    states = _states(actor, jobs, verb)
    waiting = _waiting(states)
    used = _used(states)
    return [
        JobAtStake(
            state,
            used.get((state.namespace, state.name), 0),
            _fault(state, verb, is_asked=(state.cluster_id, state.uid) in waiting),
        )
        for state in states
    ]


def act_on_workloads(
    actor: User | None, *, jobs: Sequence[JobKey], verb: str, reason: str
) -> list[WorkloadAction]:
    """Ask for something to be done to jobs; all of them, or none.

    Args:
        actor: Owner of their workspaces, admin, or the portal.
        jobs: At least one, 200 at most.
        verb: DEACTIVATE, ACTIVATE or DELETE_JOB.
        reason: Kept in the log, and on the stopped Workload.

    Raises:
        NotAllowed: A workspace among them is not this person's to change.
        Rejected: No reason, or a job to which this cannot be done; every one of them is named.
    """
    states = _states(actor, jobs, verb)
    require_reason(reason)
    now = utc_now()
    try:
        with transaction.atomic():
            return _ask(actor, states, verb, reason.strip()[:300], now)
    except IntegrityError:
        words = (
            "Somebody asked for something else with one of these jobs at the same moment. Look at "
            "the jobs and try again."
        )
        raise Rejected.because("jobs", "asked_already", words) from None


def withdraw_action(actor: User | None, *, action: WorkloadAction) -> WorkloadAction:
    """Take back what was not carried out yet.

    Raises:
        NotAllowed: The workspace is not this person's to change.
        Rejected: It was carried out, or refused, meanwhile.
    """
    _require_edit(actor, {action.namespace})
    with transaction.atomic():
        done = WorkloadAction.objects.filter(
            pk=action.pk, state=State.WAITING, is_stopped=False
        ).update(state=State.WITHDRAWN, finished_at=utc_now())
        if not done:
            words = "This has already been done. Put the job back in its queue instead."
            raise Rejected.because("", "not_waiting", words)
        _tell(actor, action, "workload.withdraw", action.reason)
    action.refresh_from_db()
    return action


def run_workload_actions(*, now: datetime | None = None) -> dict[str, int]:
    """Carry out what is due; see :func:`clusters.reconcile.acting.carry_out_due`."""
    clients = Clients(shares=IN_TASKS)
    try:
        return carry_out_due(clients.of, kinds=submitted_kinds(), now=now or utc_now())
    finally:
        clients.close()


def _ask(
    actor: User | None, states: Sequence[WorkloadState], verb: str, reason: str, now: datetime
) -> list[WorkloadAction]:
    waiting = _waiting(states)
    reject_any(
        Fault("jobs", "not_possible", f"{state.namespace}/{state.job_name or state.name}: {words}")
        for state in states
        if (words := _fault(state, verb, is_asked=(state.cluster_id, state.uid) in waiting))
    )
    made = []
    for state in sorted(states, key=lambda state: state.pk):
        action = WorkloadAction.objects.create(
            cluster=state.cluster,
            uid=state.uid,
            namespace=state.namespace,
            name=state.name,
            verb=verb,
            reason=reason,
            asked_by=actor,
            next_attempt_at=now,
        )
        _tell(actor, action, f"workload.{verb}", reason, job=state.job_name, phase=state.phase)
        made.append(action)
    announce(Work.ACTIONS)
    return made


def _tell(actor: User | None, action: WorkloadAction, name: str, reason: str, **after: str) -> None:
    found = Workspace.objects.filter(namespace=action.namespace).select_related("account")
    audit(
        actor,
        name,
        f"workload:{action.namespace}/{action.name}",
        workspace=found.first(),
        cluster=action.cluster.slug,
        reason=reason,
        after=after,
    )


def _states(actor: User | None, jobs: Sequence[JobKey], verb: str) -> list[WorkloadState]:
    """The jobs themselves, if this person may do something to all of them."""
    wanted = list(dict.fromkeys(jobs))
    faults = []
    if verb not in (Verb.DEACTIVATE, Verb.ACTIVATE, Verb.DELETE_JOB):
        faults.append(Fault("verb", "unknown_verb", f"There is no action {verb[:40]!r}."))
    if not wanted:
        faults.append(Fault("jobs", "no_jobs", "Choose at least one job."))
    if len(wanted) > MOST:
        words = f"{len(wanted)} jobs are too many at once. Choose at most {MOST}."
        faults.append(Fault("jobs", "too_many", words))
    reject_any(faults)
    rows = WorkloadState.objects.filter(uid__in=[uid for _, uid in wanted]).select_related(
        "cluster"
    )
    known = {(row.cluster.slug, row.uid): row for row in rows}
    roles = roles_for(actor)
    spaces = Workspace.objects.filter(namespace__in={row.namespace for row in known.values()})
    seen = {row.namespace for row in spaces if roles.sees_workspace(row.pk, row.account_id)}
    reject_any(
        Fault("jobs", "unknown_job", f"There is no job {cluster}/{uid}.")
        for cluster, uid in wanted
        if (row := known.get((cluster, uid))) is None or row.namespace not in seen
    )
    states = [known[key] for key in wanted]
    _require_edit(actor, {state.namespace for state in states})
    return states


def _require_edit(actor: User | None, namespaces: set[str]) -> None:
    roles = roles_for(actor)
    for workspace in Workspace.objects.filter(namespace__in=namespaces):
        if not roles.may_edit(workspace):
            raise NotAllowed(f"Only the owners of {workspace.name} and admins can act on its jobs.")


def _waiting(states: Sequence[WorkloadState]) -> set[tuple[int, str]]:
    rows = WorkloadAction.objects.filter(state=State.WAITING, uid__in=[s.uid for s in states])
    return set(rows.values_list("cluster_id", "uid"))


def _fault(state: WorkloadState, verb: str, *, is_asked: bool) -> str:
    """Why this cannot be done to this job now; empty when it can."""
    is_deactivated = state.phase == Phase.PENDING and state.reason == DEACTIVATED
    if state.is_remote_copy:
        return "this is a copy on a worker; choose the job that was submitted"
    if is_asked:
        return "an earlier action has not been carried out yet"
    if verb == Verb.DEACTIVATE and is_deactivated:
        return "it has already been cancelled"
    if verb == Verb.DEACTIVATE and state.phase not in _LIVE:
        return f"it is neither waiting nor running, but {Phase(state.phase).label.lower()}"
    if verb == Verb.ACTIVATE and not is_deactivated:
        return "it has not been cancelled"
    if verb == Verb.DELETE_JOB and state.phase == Phase.GONE:
        return "it has already been deleted"
    if verb == Verb.DELETE_JOB and not state.job_name:
        return "no job that owns it is known"
    return ""


def _used(states: Sequence[WorkloadState]) -> dict[tuple[str, str], int]:
    """(namespace, Workload name) → GPU-seconds metered, of the jobs and their copies."""
    keys = {(state.namespace, state.name) for state in states}
    runs = WorkloadState.objects.filter(at_keys(keys)).values_list(
        "cluster__slug", "uid", "namespace", "name"
    )
    key_of = {(cluster, uid): (ns, name) for cluster, uid, ns, name in runs if (ns, name) in keys}
    sums = (
        WorkloadUsage.objects.filter(at_places(key_of))
        .order_by()
        .values_list("cluster", "uid")
        .annotate(used=Sum(USED))
    )
    found: dict[tuple[str, str], int] = {}
    for cluster, uid, used in sums:
        key = key_of.get((cluster, uid))
        if key is not None:
            found[key] = found.get(key, 0) + used
    return found
