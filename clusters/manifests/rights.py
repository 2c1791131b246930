"""The least rights that each identity needs, as one table; Roles and preflight both come from it.

Identities: *portal* is who the registered kubeconfig stands for; *multikueue* is the service
account on a worker whose token the manager holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from clusters.documents.resources import Resource
from clusters.jobs.table import kind_served
from clusters.manifests import names
from clusters.manifests.rbac import Post, Rule

_READ: Final = ("get", "list", "watch")
_OWN: Final = ("get", "list", "watch", "create", "patch", "delete")
_KUEUE: Final = "kueue.x-k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_STATUS: Final = ("get", "patch", "update")
_hint: Final = partial(Rule, is_required=False)
KUEUE_CONFIG_MAP: Final = "kueue-manager-config"
KUEUE_DEPLOYMENT: Final = "kueue-controller-manager"
KUEUE_LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
KUEUE_WEBHOOKS: Final = (
    "kueue-mutating-webhook-configuration",
    "kueue-validating-webhook-configuration",
)


def portal_rules(post: Post) -> tuple[Rule, ...]:
    """What the *portal* identity needs on a cluster."""
    rules = [*_quota_rules(), *_reading_rules(), *_lease_rules(post), *_sign_rules()]
    rules += _acting_rules(post)
    rules += _device_rules(post)
    if post.is_portal_mode:
        rules += _deciding_rules()
        rules += _queueing_rules(post.kinds)
    if post.is_manager:
        rules += _multikueue_rules(post)
        if post.is_portal_mode:
            rules += _kind_rules(post.kinds)
        else:
            rules += _beside_rules(post)
    elif post.is_single:
        rules += _single_rules(post)
    else:
        rules += _worker_rules()
    return tuple(rules)


def multikueue_rules(kinds: Iterable[Resource] = ()) -> tuple[Rule, ...]:
    """What the *multikueue* identity needs on a worker to run jobs there, and nothing else.

    Args:
        kinds: Kinds of jobs besides batch/v1 Job. Their rights can be given before a worker
            serves them.
    """
    verbs = ("create", "get", "list", "watch", "delete")
    copies = ("create", "get", "list", "watch", "update", "patch", "delete")
    rules = [
        Rule(_KUEUE, ("workloads",), copies, "copies of the manager's workloads"),
        Rule(_KUEUE, ("workloads/status",), _STATUS, "stopping a copy"),
        Rule("batch", ("jobs",), verbs, "the jobs"),
        Rule("batch", ("jobs/status",), ("get",), "following the jobs"),
        _hint("batch", ("jobs",), ("patch",), "the size of elastic jobs"),
    ]
    for kind in kinds:
        of_kind = (*verbs, "patch") if kind_served(kind).is_followed else verbs
        rules.append(_hint(kind.group, (kind.plural,), of_kind, f"running {kind.kind}s"))
    return tuple(rules)


def _quota_rules() -> Iterator[Rule]:
    why = "a namespace per workspace; none is ever deleted"
    yield Rule("", ("namespaces",), (*_READ, "create", "patch"), why)
    quotas = ("resourceflavors", "cohorts", "clusterqueues", "localqueues")
    yield Rule(_KUEUE, quotas, _OWN, "the quota objects")
    yield _hint(_KUEUE, ("topologies",), _OWN, "placing pods by racks; explaining decisions")


def _reading_rules() -> Iterator[Rule]:
    yield Rule(_KUEUE, ("workloads",), _READ, "usage is metered from workloads")
    yield Rule("batch", ("jobs",), _READ, "which job a workload belongs to")
    yield Rule("", ("nodes",), _READ, "measured capacity")
    yield _hint("", ("pods",), ("list", "watch"), "GPUs in use on nodes")
    noted = ("workloadpriorityclasses", "admissionchecks")
    yield _hint(_KUEUE, noted, _READ, "explaining decisions")
    why = "why pods are refused or do not start"
    yield _hint("", ("events", "resourcequotas"), ("list",), why)
    yield _hint("", ("limitranges",), _READ, "requests that they default")
    yield _hint("node.k8s.io", ("runtimeclasses",), _READ, "the overhead of pods")


def _acting_rules(post: Post) -> Iterator[Rule]:
    """What people do to single jobs; without it only those actions are missing."""
    if not post.is_portal_mode:  # there the portal writes workloads anyway
        why = "cancelling a job and putting it back, for its owner"
        yield _hint(_KUEUE, ("workloads",), ("patch",), why)
        why = "putting back a job that a check rejected, for its owner"
        yield _hint(_KUEUE, ("workloads/status",), ("get", "patch"), why)
    why = "deleting a job for its owner"
    yield _hint("batch", ("jobs",), ("delete",), why)
    for kind in post.kinds if post.takes_jobs else ():
        yield _hint(kind.group, (kind.plural,), ("delete",), why)


def _device_rules(post: Post) -> Iterator[Rule]:
    """Where devices of claims count: what claims are made from, and no claim itself."""
    read = partial(Rule, "resource.k8s.io", verbs=_READ, is_required=post.is_portal_mode)
    if post.counts_claims:
        yield read(("resourceclaimtemplates",), why="devices that jobs claim")
    if post.counts_named_devices:
        yield read(("deviceclasses",), why="devices that jobs ask for by the name of their class")


def _lease_rules(post: Post) -> Iterator[Rule]:
    lease = partial(Rule, "coordination.k8s.io", ("leases",), why="one writer at a time")
    own = names.lease_names(post.installation, takes_jobs=post.takes_jobs)
    yield lease(("create",), namespace=post.lease_namespace)
    yield lease(("get", "update"), namespace=post.lease_namespace, resource_names=own)


def _sign_rules() -> Iterator[Rule]:
    """Only looked at by preflight: is a Kueue here, and how is it configured."""
    why, place = "telling whether a Kueue runs here, and how", names.KUEUE_NAMESPACE
    yield _hint("", ("configmaps",), ("get",), why, place, (KUEUE_CONFIG_MAP,))
    yield _hint("coordination.k8s.io", ("leases",), ("get",), why, place, (KUEUE_LEASE,))
    yield _hint("apps", ("deployments",), ("get",), why, place, (KUEUE_DEPLOYMENT,))
    webhooks = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
    yield _hint(_ADMISSION, webhooks, ("get",), why, resource_names=KUEUE_WEBHOOKS)
    policies = ("validatingadmissionpolicies", "mutatingadmissionpolicies")
    why = "seeing whether the generated policies are in place"
    yield _hint(_ADMISSION, policies, ("get", "list"), why)


def _deciding_rules() -> Iterator[Rule]:
    """Portal mode: what a Kueue controller would write."""
    verbs = ("create", "update", "patch", "delete")
    yield Rule(_KUEUE, ("workloads",), verbs, "a workload for each job")
    written = ("workloads/status", "clusterqueues/status", "localqueues/status", "cohorts/status")
    yield Rule(_KUEUE, written, _STATUS, "admission and its conditions")
    yield Rule("batch", ("jobs",), ("patch", "update"), "starting and suspending jobs")
    yield Rule("batch", ("jobs/status",), _STATUS, "the manager's copy")
    yield Rule("", ("pods",), _READ, "whether pods are ready")
    yield _hint("", ("pods",), ("patch",), "bringing pods to the racks that were chosen for them")
    why = "ending pods that wait for a node that failed"
    yield _hint("", ("pods/status",), ("patch",), why)
    yield Rule("scheduling.k8s.io", ("priorityclasses",), _READ, "priorities of jobs")
    yield _hint("", ("events",), ("create", "patch"), "telling users")


def _queueing_rules(kinds: Iterable[Resource]) -> Iterator[Rule]:
    """Portal mode: kinds besides Job that are started and suspended here."""
    for kind in kinds:
        row, why = kind_served(kind), f"starting and suspending {kind.kind}s"
        if row.is_queued_here:
            verbs = (*_READ, "patch", *(("delete",) if row.stops_by_deletion else ()))
            yield _hint(kind.group, (kind.plural,), verbs, why)


def _kind_rules(kinds: Iterable[Resource]) -> Iterator[Rule]:
    """A manager in portal mode: each kind is read, and its status is what the worker's says."""
    for kind in kinds:
        why, name = f"dispatching {kind.kind}s", kind.plural
        yield _hint(kind.group, (name,), _READ, why)
        if kind_served(kind).takes_status:
            yield _hint(kind.group, (f"{name}/status",), ("patch",), why)


def _beside_rules(post: Post) -> Iterator[Rule]:
    """A manager under a live Kueue: nominations, and the cures of the guard."""
    if post.nominates:
        why = "nominating workers, and waking what waits for one"
        yield Rule(_KUEUE, ("workloads/status",), ("get", "patch"), why)
        yield Rule(_KUEUE, ("workloads",), ("patch",), why)
    if post.cures:
        why = "putting back a job that was rejected and is active again"
        yield Rule(_KUEUE, ("workloads/status",), ("get", "patch"), why)
        why = "giving back the quota of a stopped job whose copy is gone"
        yield Rule("batch", ("jobs/status",), ("get", "patch"), why)
        for kind in post.kinds:
            status = (f"{kind.plural}/status",)
            yield _hint(kind.group, (kind.plural,), _READ, why)
            yield _hint(kind.group, status, ("patch",), why)
    if post.nominates or post.cures:
        # What tells which way of nominating is possible.
        why = "seeing whether Kueue's policy for nominations is bound"
        yield _hint(_ADMISSION, ("mutatingadmissionpolicybindings",), ("get", "list"), why)


def _multikueue_rules(post: Post) -> Iterator[Rule]:
    connecting = ("admissionchecks", "multikueueconfigs", "multikueueclusters")
    yield Rule(_KUEUE, connecting, _OWN, "connecting the workers")
    yield from _spend_rules(post)
    if post.is_portal_mode:
        # Dispatch holds the credentials itself: no Secret is written for a Kueue to read.
        status = ("multikueueclusters/status", "admissionchecks/status")
        yield Rule(_KUEUE, status, _STATUS, "showing which workers answer")
        if post.has_profiles:
            why, place = "workers that a ClusterProfile leads to", names.KUEUE_NAMESPACE
            yield Rule("multicluster.x-k8s.io", ("clusterprofiles",), ("get",), why, place)
        return
    secret = partial(
        Rule, "", ("secrets",), why="kubeconfigs of the workers", namespace=names.KUEUE_NAMESPACE
    )
    yield secret(("create",))
    if post.workers:
        own = tuple(names.secret_name(worker) for worker in post.workers)
        yield secret(("get", "patch", "delete"), resource_names=own)


def _single_rules(post: Post) -> Iterator[Rule]:
    """Where jobs are submitted and run: no MultiKueue, and the portal's own check alone."""
    yield Rule(_KUEUE, ("admissionchecks",), _OWN, "the check of spend rules")
    if post.has_own_queue:
        connecting = ("multikueueconfigs", "multikueueclusters")
        yield _hint(_KUEUE, connecting, _OWN, "removing what connected workers")
    yield from _spend_rules(post)
    if post.is_portal_mode:
        yield Rule(_KUEUE, ("admissionchecks/status",), _STATUS, "answering the check")


def _spend_rules(post: Post) -> Iterator[Rule]:
    """Answering the portal's own AdmissionCheck; without it queues with a hard cap stay closed."""
    why = "spend rules: letting jobs in, holding them back, and bringing them back"
    if post.is_portal_mode:  # there the portal writes all of it anyway
        return
    yield _hint(_KUEUE, ("admissionchecks/status",), ("get", "patch"), why)
    yield _hint(_KUEUE, ("workloads/status",), ("get", "patch"), why)
    yield _hint(_KUEUE, ("workloads",), ("patch",), why)


def _worker_rules() -> Iterator[Rule]:
    account, place = (names.MULTIKUEUE_ACCOUNT,), names.KUEUE_NAMESPACE
    why = "short-lived tokens for dispatch"
    yield Rule("", ("serviceaccounts/token",), ("create",), why, place, account)
    yield Rule("", ("serviceaccounts",), ("get",), why, place, account)
