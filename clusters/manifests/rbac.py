"""Rights on a cluster in the words of RBAC: rules, the questions they come to, and Role documents.

The portal never writes these documents: an admin applies them, and preflight asks the API server
about every line. Which rights each identity needs is ``rights``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.documents import labels
from clusters.documents.resources import Resource
from clusters.manifests import names
from clusters.manifests.names import Document

_RBAC_API: Final = "rbac.authorization.k8s.io/v1"
_LEASE_NAMESPACE: Final = "kube-system"


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources of one API group, cluster-wide or in one namespace, on some names or all.

    Attributes:
        why: One phrase for people; why the portal asks for it.
        is_required: Without it something does not work; else only a check or a hint is missing.
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    namespace: str = ""
    resource_names: tuple[str, ...] = ()
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Right:
    """One right, as a SelfSubjectAccessReview asks about it."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    why: str
    is_required: bool

    @property
    def attributes(self) -> dict[str, str]:
        """What the review asks about; empty ones left out."""
        keys = ("verb", "group", "resource", "subresource", "namespace", "name")
        found = {key: getattr(self, key) for key in keys}
        return {key: value for key, value in found.items() if value or key == "group"}


@dataclass(frozen=True, slots=True)
class Post:
    """A cluster's place in the fleet: what the rights depend on.

    Attributes:
        is_manager: Jobs are submitted here to run on workers; else they run here.
        is_portal_mode: The portal decides; else Kueue does.
        installation: Id of the portal's installation.
        workers: Worker slugs, for the Secrets that the manager holds.
        lease_namespace: Where shifts keep their Leases.
        kinds: Kinds of jobs besides batch/v1 Job that are dispatched, or queue here.
        nominates: The portal nominates workers beside a live Kueue (manager only).
        cures: The guard may cure what it finds beside a live Kueue (manager only).
        has_profiles: ClusterProfiles may lead to workers (manager in portal mode only).
        is_single: Jobs are submitted here, and run here.
        has_own_queue: It was a single cluster and became a manager: queue ``default`` is its own.
        counts_claims: Devices of claims count there, so their templates are read.
        counts_named_devices: So do devices that are asked for by the name of their class.
    """

    is_manager: bool
    is_portal_mode: bool
    installation: str
    workers: tuple[str, ...] = ()
    lease_namespace: str = _LEASE_NAMESPACE
    kinds: tuple[Resource, ...] = ()
    nominates: bool = False
    cures: bool = False
    has_profiles: bool = False
    is_single: bool = False
    has_own_queue: bool = False
    counts_claims: bool = False
    counts_named_devices: bool = False

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs are submitted here."""
        return self.is_manager or self.is_single


def questions(rules: Iterable[Rule]) -> tuple[Right, ...]:
    """Every single right of the rules, one question each."""
    return tuple(
        Right(
            verb=verb,
            group=rule.group,
            resource=resource.partition("/")[0],
            subresource=resource.partition("/")[2],
            namespace=rule.namespace,
            name=name,
            why=rule.why,
            is_required=rule.is_required,
        )
        for rule in rules
        for resource in rule.resources
        for verb in rule.verbs
        for name in rule.resource_names or ("",)
    )


def role_documents(rules: Sequence[Rule], *, account: str, name: str) -> tuple[Document, ...]:
    """A service account and the Roles that give it the rules, ready for ``kubectl apply``.

    Args:
        rules: Of one identity on one cluster.
        account: Service account.
        name: Name of every Role and binding.
    """
    namespace = names.KUEUE_NAMESPACE
    documents: tuple[Document, ...] = (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": namespace},
        },
    )
    return documents + bound_roles(rules, account=account, namespace=namespace, name=name)


def bound_roles(
    rules: Sequence[Rule], *, account: str, namespace: str, name: str
) -> tuple[Document, ...]:
    """The Roles alone, for a service account that is there already."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    documents: list[Document] = []
    for place in dict.fromkeys(rule.namespace for rule in rules):
        kind = "Role" if place else "ClusterRole"
        metadata: Document = {"name": name, "labels": {labels.MANAGED_BY: names.MANAGED_BY}}
        metadata |= {"namespace": place} if place else {}
        rows = [rule_document(rule) for rule in rules if rule.namespace == place]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        parts: dict[str, Document] = {
            kind: {"rules": rows},
            f"{kind}Binding": {"roleRef": reference, "subjects": [subject]},
        }
        documents += [
            {"apiVersion": _RBAC_API, "kind": part, "metadata": metadata, **content}
            for part, content in parts.items()
        ]
    return tuple(documents)


def rule_document(rule: Rule) -> Document:
    """One entry of a Role's ``rules``."""
    found: Document = {
        "apiGroups": [rule.group],
        "resources": list(rule.resources),
        "verbs": list(rule.verbs),
    }
    if rule.resource_names:
        found["resourceNames"] = list(rule.resource_names)
    return found
