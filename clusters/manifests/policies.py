"""Admission policies that keep GPUs under their budget, as documents for an admin to apply.

They are evaluated inside the API server, so they hold while the portal and Kueue are away. What a
policy knows of a kind of job comes from the table of kinds. Who writes is asked by name, since an
API server verifies no owner: its own controllers, and the operators that an admin registered.

Promises, each with its test and the answers of real API servers: docs/security.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from clusters.documents import labels
from clusters.documents import resources as r
from clusters.documents.queues import FLEET_QUEUE
from clusters.jobs.table import KINDS, suspendable
from clusters.manifests import cel, guards, names
from clusters.manifests.kueue_rules import configuration_rules, workload_rules
from clusters.manifests.names import Document
from clusters.manifests.wish import ALL, Guard, Guarded, PolicyWish, Served

_API: Final = "admissionregistration.k8s.io/v1"
_KUEUE: Final = "kueue.x-k8s.io"
_VALIDATING: Final = "ValidatingAdmissionPolicy"
_MUTATING: Final = "MutatingAdmissionPolicy"


@dataclass(frozen=True, slots=True)
class _Place:
    """Which namespaces a binding is for; all of them, and what is in none, when empty."""

    key: str = ""
    operator: str = "In"
    values: tuple[str, ...] = ()
    but: tuple[str, ...] = ()

    @property
    def resources(self) -> Document:
        """``matchResources`` of the binding."""
        found: list[Document] = [{"key": self.key, "operator": self.operator}]
        if self.values:
            found[0]["values"] = list(self.values)
        if self.but:
            not_these = {"key": labels.NAMESPACE_NAME, "operator": "NotIn"}
            found.append({**not_these, "values": list(self.but)})
        return {"namespaceSelector": {"matchExpressions": found}} if self.key else {}


def policy_documents(wish: PolicyWish) -> tuple[Document, ...]:
    """Policies and their bindings for one cluster, in the order of application.

    What an older API server may not know, the policies that mutate, comes last; without it the
    others refuse what it would have put right.
    """
    # A rehearsal makes workspaces of its own beside the portal's, with its identities.
    ours = (wish.post.installation, names.REHEARSAL)
    inside = _Place(labels.INSTALLATION, "In", ours)
    outside = _Place(labels.INSTALLATION, "NotIn", ours)
    # Portals that share a cluster share its accounts: each keeps off what is the other's itself.
    of_no_portal = _Place(labels.INSTALLATION, "DoesNotExist")
    found: list[Document] = []
    for what, guarded in _inside(wish):
        found += _validating(wish, what, guarded, inside)
    found += _validating(wish, "own-workspaces-only", _identities(wish), of_no_portal)
    found += _validating(wish, "namespaces", _namespaces(wish), _Place())
    if wish.denies_elsewhere:
        elsewhere = replace(outside, but=wish.exempt_namespaces)
        found += _validating(wish, "gpus-in-workspaces-only", guards.elsewhere(wish), elsewhere)
    if wish.post.is_portal_mode:
        found += _validating(wish, "kueue-configuration", configuration_rules(), _Place())
        found += _suspend_first(wish, inside)
    return tuple(found)


def policy_names(wish: PolicyWish) -> tuple[tuple[str, str], ...]:
    """(kind, name) of the policies that `policy_documents` gives, without bindings."""
    return tuple(
        (document["kind"], document["metadata"]["name"])
        for document in policy_documents(wish)
        if document["kind"].endswith("Policy")
    )


def _inside(wish: PolicyWish) -> Iterator[tuple[str, Guarded]]:
    """What holds in workspaces: by the end of its name."""
    for kind in suspendable():
        yield kind.resource.plural, guards.queued_kind(wish, kind)
    yield "pods", guards.pods(wish)
    yield "sets-of-pods", guards.sets(wish)
    yield "leaderworkersets", guards.leader_worker_sets(wish)
    yield "cronjobs", guards.cron_jobs(wish)
    yield "written-by-kueue", _kueue_objects(wish)
    if not wish.post.is_manager or wish.post.has_own_queue:
        yield "copies-by-manager", _copies(wish)
    if wish.post.is_portal_mode:
        yield "kueue-workloads", workload_rules()


def _kueue_objects(wish: PolicyWish) -> Guarded:
    """Who writes Workloads or queues decides who gets GPUs."""
    own = (wish.portal_user, wish.multikueue_user, wish.kueue_user)
    holds = f"{cel.by(own)} || {cel.by_controller(wish.operators)} || {cel.by_admin()}"
    plurals = ("workloads", "workloads/status", "localqueues", "localqueues/status")
    guard = Guard(
        holds,
        "Only the portal and Kueue write Workloads and queues. Submit a job instead; to cancel it, "
        "use its page or delete it.",
    )
    return Guarded([Served(_KUEUE, "*", plurals)], (guard,), operations=ALL)


def _copies(wish: PolicyWish) -> Guarded:
    """Worker: who calls a workload a copy could have its use billed to nobody."""
    had = f"(oldObject != null && {cel.label(labels.ORIGIN, of='oldObject')} != '')"
    gets = f"{cel.label(labels.ORIGIN)} != '' && !{had}"
    guard = Guard(
        f"!({gets}) || {cel.by((wish.multikueue_user, wish.portal_user))}",
        f"The label {labels.ORIGIN} marks copies that the manager cluster makes. Leave it out.",
    )
    return Guarded([Served(_KUEUE, "*", ("workloads",))], (guard,))


def _identities(wish: PolicyWish) -> Guarded:
    """Who may make jobs could run them as any service account of their namespace.

    Their statuses as well: one that says what is not so ends pods, and jobs. That of a LocalQueue
    decides nothing, and where the portal decides it keeps that of every queue.
    """
    kinds = (*(kind.resource for kind in KINDS.values()), *wish.post.kinds)
    rows = [Served(kind.group, "*", (kind.plural, f"{kind.plural}/*")) for kind in kinds]
    rows.append(Served(_KUEUE, "*", ("workloads", "workloads/*", "localqueues")))
    guard = Guard(
        f"!({cel.by((wish.portal_user, wish.multikueue_user))})",
        "The portal and the manager cluster can write jobs only in workspaces.",
    )
    return Guarded(list(dict.fromkeys(rows)), (guard,), operations=ALL)


def _namespaces(wish: PolicyWish) -> Guarded:
    """The portal writes its own; nobody else takes the label, and with it the policies, off."""
    ours = cel.quoted((wish.post.installation, names.REHEARSAL))
    had = "(oldObject == null ? object : oldObject)"
    by_portal = cel.by((wish.portal_user,))
    was = cel.label(labels.INSTALLATION, of="oldObject")
    kept = f"oldObject == null || !({was} in {ours}) || {cel.label(labels.INSTALLATION)} == {was}"
    guarded = (
        Guard(
            f"!({by_portal}) || {cel.label(labels.INSTALLATION, of=had)} != ''",
            "This namespace is not one of the portal's workspaces, so the portal does not write "
            f"it. If it is to be one, an admin gives it the label {labels.INSTALLATION} that the "
            "other workspaces have.",
        ),
        Guard(
            f"{kept} || {by_portal} || {cel.by_admin()}",
            f"The label {labels.INSTALLATION} says whose workspace this is. Only the portal can "
            "remove it.",
        ),
    )
    return Guarded([Served("", "v1", ("namespaces",))], guarded)


def _suspend_first(wish: PolicyWish, place: _Place) -> list[Document]:
    """Portal mode: a Job begins suspended; on the manager it is never run by the manager."""
    suspended = "spec: Object.spec{suspend: true}"
    sent = f"spec: Object.spec{{suspend: true, managedBy: '{labels.MULTIKUEUE}'}}"
    is_own = not wish.post.is_manager or wish.post.has_own_queue
    spec, named = suspended if is_own else sent, cel.label(labels.QUEUE)
    queue = f"metadata: Object.metadata{{labels: {{'{labels.QUEUE}': '{names.LOCAL_QUEUE}'}}}}"
    expression = f"{named} != '' ? Object{{{spec}}} : Object{{{queue}, {spec}}}"
    if wish.post.is_manager and is_own:
        expression = f"{named} == '{FLEET_QUEUE}' ? Object{{{sent}}} : ({expression})"
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    rules = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": _rules([Served.of(r.JOB)], ("CREATE",))},
        "matchConditions": [
            {"name": "no-part-of-a-queued-job", "expression": f"!({guards.is_child(wish)})"}
        ],
        "mutations": [change],
    }
    return _bound(wish, "suspend-first", _MUTATING, rules, place)


def _validating(wish: PolicyWish, what: str, guarded: Guarded, place: _Place) -> list[Document]:
    """Nothing where nothing is held against anybody: no API server takes a policy without rules."""
    if not guarded.guards:
        return []
    spec: Document = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": _rules(guarded.on, guarded.operations)},
    }
    if guarded.variables:
        spec["variables"] = [
            {"name": name, "expression": text} for name, text in guarded.variables.items()
        ]
    spec["validations"] = [
        {"expression": guard.holds, "message": guard.message, "reason": guard.reason}
        for guard in guarded.guards
    ]
    return _bound(wish, what, _VALIDATING, spec, place)


def _bound(wish: PolicyWish, what: str, kind: str, spec: Document, place: _Place) -> list[Document]:
    """A policy and its binding."""
    name = f"gpu-budget-{wish.post.installation}-{what}"
    marks = {labels.MANAGED_BY: names.MANAGED_BY}
    where: dict[str, Any] = {"policyName": name}
    if kind == _VALIDATING:
        where["validationActions"] = ["Deny"]
    if place.resources:
        where["matchResources"] = place.resources
    return [
        {
            "apiVersion": _API,
            "kind": found,
            "metadata": {"name": name, "labels": dict(marks)},
            "spec": content,
        }
        for found, content in ((kind, spec), (f"{kind}Binding", where))
    ]


def _rules(on: Iterable[Served], operations: Sequence[str]) -> list[Document]:
    return [
        {
            "apiGroups": [served.group],
            "apiVersions": [served.version],
            "operations": list(operations),
            "resources": list(served.plurals),
        }
        for served in on
    ]
