"""Admission policies that keep jobs under their budget, as documents for an admin to apply.

They are evaluated inside the API server, so they hold while the portal and Kueue are away. Each
looks only at namespaces that carry this installation's label.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clusters.documents import labels
from clusters.manifests import names
from clusters.manifests.names import Document
from clusters.manifests.rbac import Post

_API: Final = "admissionregistration.k8s.io/v1"
_QUEUE: Final = f"'{labels.QUEUE}'"


def _has(label: str, *, of: str = "object") -> str:
    """An object that carries a label."""
    return f"has({of}.metadata.labels) && '{label}' in {of}.metadata.labels"


def _gets(label: str) -> str:
    """A request that gives its object a label."""
    had = f"oldObject != null && {_has(label, of='oldObject')}"
    return f"({_has(label)}) && !({had})"


_HAS_QUEUE: Final = _has(labels.QUEUE)


@dataclass(frozen=True, slots=True)
class PolicyWish:
    """What the policies of one cluster have to know.

    Attributes:
        post: The cluster's place in the fleet.
        allows_local_jobs: Jobs may be submitted on this worker, outside the split.
        gpu_resources: Device resource names that count as GPUs.
        portal_user: Name under which the API server knows the *portal* identity.
        multikueue_user: Likewise for *multikueue*.
    """

    post: Post
    allows_local_jobs: bool = False
    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    portal_user: str = f"system:serviceaccount:{names.KUEUE_NAMESPACE}:{names.PORTAL_ACCOUNT}"
    multikueue_user: str = (
        f"system:serviceaccount:{names.KUEUE_NAMESPACE}:{names.MULTIKUEUE_ACCOUNT}"
    )


def policy_documents(wish: PolicyWish) -> tuple[Document, ...]:
    """Policies and their bindings for one cluster, in the order of application."""
    documents: list[Document] = []
    if wish.post.is_portal_mode:
        documents += _suspend_first(wish)
        documents += _started_by_portal_only(wish)
    if not wish.post.is_manager:
        if not wish.allows_local_jobs:
            documents += _through_the_manager(wish)
        documents += _copies_by_manager(wish)
        documents += _no_bare_pods(wish)
    return tuple(documents)


def policy_names(wish: PolicyWish) -> tuple[tuple[str, str], ...]:
    """(kind, name) of the policies that `policy_documents` gives, without bindings."""
    return tuple(
        (document["kind"], document["metadata"]["name"])
        for document in policy_documents(wish)
        if document["kind"].endswith("Policy")
    )


def _through_the_manager(wish: PolicyWish) -> list[Document]:
    """Worker: a job under a queue comes from the manager, or the manager's count is wrong."""
    user = json.dumps(wish.multikueue_user)
    return _validating(
        wish,
        "jobs-through-manager",
        rules=[_rule("batch", "jobs", ("CREATE", "UPDATE"))],
        expression=f"!({_gets(labels.QUEUE)}) || request.userInfo.username == {user}",
        message="Jobs of this workspace are submitted on the manager cluster, which gives them "
        "their place; this worker takes none directly.",
    )


def _copies_by_manager(wish: PolicyWish) -> list[Document]:
    """Worker: who calls a workload a copy could have its use billed to nobody."""
    users = json.dumps([wish.multikueue_user, wish.portal_user])
    return _validating(
        wish,
        "copies-by-manager",
        rules=[_rule("kueue.x-k8s.io", "workloads", ("CREATE", "UPDATE"), versions="*")],
        expression=f"!({_gets(labels.ORIGIN)}) || request.userInfo.username in {users}",
        message=f"The label {labels.ORIGIN} marks copies that the manager cluster makes; "
        "leave it out.",
    )


def _no_bare_pods(wish: PolicyWish) -> list[Document]:
    """Worker: a pod with GPUs belongs to a controller that is under the queue."""
    resources = json.dumps(list(wish.gpu_resources))
    asks = (
        "object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) && "
        f"{resources}.exists(r, r in c.resources.limits))"
    )
    owned = (
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, "
        "has(o.controller) && o.controller && o.kind != 'ReplicaSet')"
    )
    queued = _HAS_QUEUE
    message = "Pods with GPUs run as part of a Job here, so that they count against the budget."
    if wish.post.is_portal_mode:
        # Kueue's webhook gates such pods; here their owner does, or they would not wait.
        queued += (
            " && has(object.spec.schedulingGates) && "
            f"object.spec.schedulingGates.exists(g, g.name == '{labels.ADMISSION_GATE}')"
        )
        message += (
            f" One by itself names a queue and has the scheduling gate {labels.ADMISSION_GATE}."
        )
    return _validating(
        wish,
        "gpu-pods-of-jobs-only",
        rules=[_rule("", "pods", ("CREATE",))],
        expression=f"!({asks}) || ({owned}) || ({queued})",
        message=message,
    )


def _suspend_first(wish: PolicyWish) -> list[Document]:
    """Portal mode: a job begins suspended; on the manager it is never run by the manager."""
    fields = ["suspend: true"]
    if wish.post.is_manager:
        fields.append(f"managedBy: '{labels.MULTIKUEUE}'")
    queue = f"metadata: Object.metadata{{labels: {{{_QUEUE}: '{names.LOCAL_QUEUE}'}}}}"
    spec = f"spec: Object.spec{{{', '.join(fields)}}}"
    expression = f"{_HAS_QUEUE} ? Object{{{spec}}} : Object{{{queue}, {spec}}}"
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    rules = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": [_rule("batch", "jobs", ("CREATE",))]},
        "mutations": [change],
    }
    return _bound(wish, "suspend-first", "MutatingAdmissionPolicy", rules)


def _started_by_portal_only(wish: PolicyWish) -> list[Document]:
    """Portal mode: who else unsuspends a job would take GPUs without quota."""
    starts = (
        "(has(oldObject.spec.suspend) && oldObject.spec.suspend) && "
        "!(has(object.spec.suspend) && object.spec.suspend)"
    )
    user = json.dumps(wish.portal_user)
    return _validating(
        wish,
        "jobs-started-by-portal",
        rules=[_rule("batch", "jobs", ("UPDATE",))],
        expression=f"!({starts}) || request.userInfo.username == {user}",
        message="This job waits for its quota; it is started when the budget has room.",
    )


def _validating(
    wish: PolicyWish, what: str, *, rules: Sequence[Document], expression: str, message: str
) -> list[Document]:
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": list(rules)},
        "validations": [{"expression": expression, "message": message, "reason": "Forbidden"}],
    }
    return _bound(
        wish, what, "ValidatingAdmissionPolicy", spec, how={"validationActions": ["Deny"]}
    )


def _bound(
    wish: PolicyWish, what: str, kind: str, spec: Document, *, how: Document | None = None
) -> list[Document]:
    """A policy, and its binding to the namespaces of this installation."""
    name = f"gpu-budget-{wish.post.installation}-{what}"
    marks = {labels.MANAGED_BY: names.MANAGED_BY}
    ours = {"matchLabels": {labels.INSTALLATION: wish.post.installation}}
    where = {"policyName": name, **(how or {}), "matchResources": {"namespaceSelector": ours}}
    return [
        {
            "apiVersion": _API,
            "kind": found,
            "metadata": {"name": name, "labels": dict(marks)},
            "spec": content,
        }
        for found, content in ((kind, spec), (f"{kind}Binding", where))
    ]


def _rule(
    group: str, resource: str, operations: Sequence[str], *, versions: str = "v1"
) -> Document:
    return {
        "apiGroups": [group],
        "apiVersions": [versions],
        "operations": list(operations),
        "resources": [resource],
    }
