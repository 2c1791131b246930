"""Carries out what people want done to single jobs: the writes that a WorkloadAction stands for.

What each verb means on the cluster that the job was submitted to:

* DEACTIVATE: ``spec.active: false`` on its Workload, whoever decides there. Kueue (or the portal
  in its place) takes its quota back and suspends the job, whatever its kind; a manager removes the
  copy from the worker. Nothing is deleted.
* ACTIVATE: put back in its queue by ``guard.reactivate``, the one rule for it: once the quota of
  its last run is free it is active again, and the mark of a check that rejected it goes.
* RESTART: both after one another.
* DELETE_JOB: the object that owns the Workload is deleted, with its pods. Kinds that the portal
  does not know, and pods that form a group, are left to whoever made them.

Every write is bound to the object that was read. A refusal for want of rights, or by the cluster's
own rules, ends an action; anything else is tried again with growing pauses, as long as it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import DatabaseError
from django.db.models import F

from clusters.documents import labels
from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, bound, controller_of
from clusters.errors import (
    AdmissionDenied,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Terminal,
)
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, KubeClient, WriteOptions
from clusters.kube.resources import Resource
from clusters.models import ShiftRun, WorkloadAction
from clusters.reconcile.context import ClusterFacts, registered
from clusters.reconcile.identity import confirm
from clusters.reconcile.past import look_back
from clusters.reconcile.reactivation import is_active, reactivation
from clusters.reconcile.runtime.faults import words_of
from clusters.reconcile.shift import lease_name

log = structlog.stdlib.get_logger(__name__)

Verb, State = WorkloadAction.Verb, WorkloadAction.State
ClientFor = Callable[[str], KubeClient]
CLAIM: Final = timedelta(seconds=60)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1, 300
SLOW_S: Final = 5.0
POLL: Final = timedelta(seconds=2)
GONE: Final = "It was gone already."
CHANGED: Final = "It has changed since."


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt came to; WAITING means again, at ``again_in`` or after the usual pause."""

    state: str
    message: str = ""
    again_in: timedelta | None = None
    is_stopped: bool = False
    is_silent: bool = False


def carry_out_due(
    client_for: ClientFor, *, kinds: Collection[Resource], now: datetime, most: int = 200
) -> dict[str, int]:
    """Attempt every action that is due, the oldest first; ``kinds`` are those besides Job.

    Returns:
        State → how many came to it. An action that somebody else attempts is passed over, and so
        are further ones of a cluster that has just not answered, or took long: its time is that
        of the others.
    """
    silent: set[str] = set()
    due = WorkloadAction.objects.filter(state=State.WAITING, next_attempt_at__lte=now)
    found: dict[str, int] = {}
    for action in due.select_related("cluster").order_by("next_attempt_at", "pk")[:most]:
        if action.cluster.slug in silent or not _claim(action, now):
            continue
        began = time.monotonic()
        outcome = _safely(action, client_for, kinds)
        if outcome.is_silent or time.monotonic() - began > SLOW_S:
            silent.add(action.cluster.slug)
        _record(action, outcome, now)
        found[outcome.state] = found.get(outcome.state, 0) + 1
    return found


def _claim(action: WorkloadAction, now: datetime) -> bool:
    """Whether this attempt is ours; one whose process dies is due again when the claim ends."""
    mine = WorkloadAction.objects.filter(
        pk=action.pk, state=State.WAITING, attempts=action.attempts
    )
    action.attempts += 1
    return bool(mine.update(attempts=F("attempts") + 1, next_attempt_at=now + CLAIM))


def _record(action: WorkloadAction, outcome: Attempt, now: datetime) -> None:
    pause = min(FIRST_PAUSE_S * 2 ** min(action.attempts, 12), LONGEST_PAUSE_S)
    is_over = outcome.state != State.WAITING
    # One that was taken back meanwhile stays so.
    WorkloadAction.objects.filter(pk=action.pk, state=State.WAITING).update(
        state=outcome.state,
        message=outcome.message[:500],
        is_stopped=action.is_stopped or outcome.is_stopped,
        next_attempt_at=now + (outcome.again_in or timedelta(seconds=pause)),
        finished_at=now if is_over else None,
    )
    log.info(
        "workload_action",
        cluster=action.cluster.slug,
        workload=f"{action.namespace}/{action.name}",
        verb=action.verb,
        state=outcome.state,
        attempts=action.attempts,
        message=outcome.message,
    )


def _safely(action: WorkloadAction, client_for: ClientFor, kinds: Collection[Resource]) -> Attempt:
    """An attempt; what one cluster's answer raises ends no other's."""
    try:
        return _attempt(action, client_for, kinds)
    except DatabaseError:
        raise
    except Exception as error:
        log.exception("workload_action_broke", cluster=action.cluster.slug)
        words = f"The cluster's answer cannot be used. The error is: {words_of(error)}"
        return Attempt(State.WAITING, words)


def _attempt(action: WorkloadAction, client_for: ClientFor, kinds: Collection[Resource]) -> Attempt:
    registration = registered(action.cluster.slug)
    if registration is None:
        return Attempt(State.FAILED, "The cluster is no longer registered.")
    if not registration.facts.may_write:
        return Attempt(State.WAITING, "Writing to this cluster is stopped by an admin.")
    try:
        client = client_for(action.cluster.slug)
    except ClusterError as error:
        return Attempt(State.WAITING, f"The cluster cannot be reached. The error is: {error}")
    try:
        confirm(action.cluster.slug, client)
        if not _is_same_past(registration.facts, client):
            words = "A backup was restored, and an admin has not yet said which side is right."
            return Attempt(State.WAITING, words)
        return _write(action, client, kinds)
    except NotFound:
        return Attempt(State.DONE, GONE)
    except Conflict:
        return Attempt(State.WAITING, CHANGED, timedelta(0))
    except (AdmissionDenied, Invalid) as error:
        return Attempt(State.FAILED, f"The cluster refuses it. It says: {error.message}")
    except Forbidden as error:
        words = "The portal has no right to do this there; an admin finds it on the cluster's page."
        return Attempt(State.FAILED, f"{words} {error.message}")
    except Terminal as error:
        return Attempt(State.WAITING, error.message)
    except ClusterError as error:
        words = f"The cluster does not answer. The error is: {error.message}"
        return Attempt(State.WAITING, words, is_silent=True)


def _is_same_past(facts: ClusterFacts, client: KubeClient) -> bool:
    """A wish of a restored backup may have been carried out, and undone by hand, since."""
    quota = lease_name(ShiftRun.Role.QUOTA, facts.installation)
    look_back(client, quota, cluster_id=facts.pk, slug=facts.slug)
    found = registered(facts.slug)
    return found is not None and found.facts.may_write


def _write(action: WorkloadAction, client: KubeClient, kinds: Collection[Resource]) -> Attempt:
    live = client.get(r.WORKLOAD, action.name, namespace=action.namespace)
    if live["metadata"]["uid"] != action.uid:
        return Attempt(State.DONE, GONE)
    match action.verb:
        case Verb.DELETE_JOB:
            return _delete_job(action, live, client, kinds)
        case Verb.ACTIVATE:
            return _put_back(client, live)
        case Verb.RESTART if action.is_stopped:
            return _put_back(client, live, "It waits in its queue again.")
    if is_true(live, "Finished"):
        return Attempt(State.DONE, "It had finished already.")
    if is_active(live):
        _deactivate(client, live, action.reason)
    if action.verb == Verb.RESTART:
        return Attempt(State.WAITING, "It is being stopped.", POLL, is_stopped=True)
    return Attempt(State.DONE)


def _deactivate(client: KubeClient, live: Document, reason: str) -> None:
    """One merge patch, bound to what was read."""
    metadata, body = live["metadata"], {**bound(live), "spec": {"active": False}}
    body["metadata"]["annotations"] = {labels.STOPPED_BECAUSE: reason}
    client.patch(r.WORKLOAD, metadata["name"], body, namespace=metadata["namespace"])


def _put_back(client: KubeClient, live: Document, words: str = "") -> Attempt:
    """Every write that brings it back, each about the answer to the one before.

    The reason why it was stopped goes with the first of them.
    """
    if is_true(live, "QuotaReserved") and not (is_active(live) or is_true(live, "Finished")):
        return Attempt(State.WAITING, "It is being stopped.", POLL)
    for _ in range(2):  # to be active, and to lose the mark
        write = reactivation(live)
        if write is None:
            return Attempt(State.DONE, words)
        body = write.body or {}
        if not write.subresource:
            body["metadata"]["annotations"] = {labels.STOPPED_BECAUSE: None}
        options = WriteOptions(subresource=write.subresource)
        live = client.patch(
            write.resource, write.name, body, namespace=write.namespace, options=options
        )
    is_back = reactivation(live) is None
    return Attempt(State.DONE, words) if is_back else Attempt(State.WAITING, CHANGED)


def _delete_job(
    action: WorkloadAction, live: Document, client: KubeClient, kinds: Collection[Resource]
) -> Attempt:
    owner = controller_of(live)
    if not owner:
        words = (
            "This workload does not belong to a single job, so the portal cannot delete it. Find "
            "what it was made for, and delete that: "
            f"kubectl -n {action.namespace} get workload {action.name} -o yaml"
        )
        return Attempt(State.FAILED, words)
    resource = _resource_of(owner, kinds)
    if resource is None:
        words = (
            f"The portal does not delete objects of kind {owner['kind']}: "
            f"kubectl -n {action.namespace} delete {owner['kind'].lower()} {owner['name']}"
        )
        return Attempt(State.FAILED, words)
    client.delete(
        resource,
        owner["name"],
        namespace=action.namespace,
        options=DeleteOptions(uid=owner["uid"]),
    )
    return Attempt(State.DONE)


def _resource_of(owner: Document, kinds: Collection[Resource]) -> Resource | None:
    named = owner["apiVersion"].rpartition("/")[0], owner["kind"]
    return next((kind for kind in (r.JOB, *kinds) if (kind.group, kind.kind) == named), None)
