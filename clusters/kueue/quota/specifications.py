"""Specifications of quota objects, read from v1beta2 API documents.

Source: Kueue apis/kueue/v1beta2, v0.19.2. Validation is the API server's; the
unreadable raises.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from budgets.plan import StopPolicy
from clusters.documents.conditions import is_true
from clusters.kueue.amounts import Amount, FlavorResource, parse_amount
from clusters.kueue.configuration import parse_weight
from clusters.kueue.quota.resource_node import Quota
from clusters.kueue.workload.matching import (
    LabelSelector,
    Taint,
    Toleration,
    parse_selector,
    parse_taints,
    parse_tolerations,
)

Document = Mapping[str, Any]

_BY_USAGE: Final = "UsageBasedAdmissionFairSharing"
PROVISIONING_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"


class QueueingStrategy(Enum):
    """What a head that cannot be admitted does to those behind it."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class PreemptionPolicy(Enum):
    """Which workloads may be preempted."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that come from one flavor together, and the flavors in order of preference."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fungibility:
    """When to go on to the next flavor."""

    tries_next_before_borrowing: bool = False
    tries_next_before_preempting: bool = True
    prefers_preemption: bool = False


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """Preemption policies of a ClusterQueue."""

    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    max_priority_threshold: int | None = None

    @property
    def may_borrow_while_preempting(self) -> bool:
        """Whether borrowWithinCohort is on."""
        return self.borrow_within_cohort is not PreemptionPolicy.NEVER


_MATCHES_NOTHING: Final = LabelSelector(None)


@dataclass(frozen=True, slots=True)
class ClusterQueueSpec:
    """Specification of a ClusterQueue.

    Attributes:
        checks: flavors by AdmissionCheck name; an empty set stands for all flavors.
        is_usage_based: what LocalQueues used lately orders their workloads.
        is_deleted: a deletion timestamp is set.
    """

    name: str
    cohort: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    namespace_selector: LabelSelector = _MATCHES_NOTHING
    fungibility: Fungibility = Fungibility()
    preemption: PreemptionRules = PreemptionRules()
    stop_policy: StopPolicy = StopPolicy.NONE
    weight: float = 1.0
    checks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_usage_based: bool = False
    is_deleted: bool = False

    def checks_for(self, flavors: Collection[str]) -> tuple[str, ...]:
        """AdmissionChecks that a workload with these flavors needs, sorted.

        Without any flavor only those that apply to all flavors.
        """
        found = self.checks.items()
        return tuple(sorted(name for name, on in found if not on or not on.isdisjoint(flavors)))


@dataclass(frozen=True, slots=True)
class CohortSpec:
    """Specification of a Cohort; without an object every field is the default."""

    name: str
    parent: str = ""
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class LocalQueueSpec:
    """Specification of a LocalQueue. ``key`` is ``namespace/name``."""

    key: str
    namespace: str
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE


@dataclass(frozen=True, slots=True)
class FlavorSpec:
    """Specification of a ResourceFlavor."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """An AdmissionCheck: who answers it and whether that controller is active."""

    name: str
    controller: str
    is_active: bool


def parse_cluster_queue(document: Document) -> ClusterQueueSpec:
    """Read a ClusterQueue.

    Raises:
        KeyError: a required field is missing.
        ValueError: a quantity or enum value is unknown.
    """
    metadata, spec = document["metadata"], document.get("spec") or {}
    groups, quotas = _resource_groups(spec)
    rules = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    return ClusterQueueSpec(
        name=metadata["name"],
        cohort=spec.get("cohortName") or "",
        groups=groups,
        quotas=quotas,
        strategy=QueueingStrategy(
            spec.get("queueingStrategy") or QueueingStrategy.BEST_EFFORT_FIFO.value
        ),
        namespace_selector=parse_selector(spec.get("namespaceSelector")),
        fungibility=_fungibility(spec.get("flavorFungibility") or {}),
        preemption=_preemption(spec.get("preemption") or {}),
        stop_policy=_stop_policy(spec),
        weight=parse_weight(spec.get("fairSharing")),
        checks={item["name"]: frozenset(item.get("onFlavors") or ()) for item in rules},
        is_usage_based=(spec.get("admissionScope") or {}).get("admissionMode") == _BY_USAGE,
        is_deleted=bool(metadata.get("deletionTimestamp")),
    )


def parse_cohort(document: Document) -> CohortSpec:
    """Read a Cohort; raises as ``parse_cluster_queue`` does."""
    spec = document.get("spec") or {}
    return CohortSpec(
        name=document["metadata"]["name"],
        parent=spec.get("parentName") or "",
        quotas=_resource_groups(spec)[1],
        weight=parse_weight(spec.get("fairSharing")),
    )


def parse_local_queue(document: Document) -> LocalQueueSpec:
    """Read a LocalQueue; raises as ``parse_cluster_queue`` does."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    namespace = metadata.get("namespace", "")
    return LocalQueueSpec(
        key=f"{namespace}/{metadata['name']}",
        namespace=namespace,
        cluster_queue=spec.get("clusterQueue") or "",
        stop_policy=_stop_policy(spec),
    )


def parse_flavor(document: Document) -> FlavorSpec:
    """Read a ResourceFlavor; raises as ``parse_cluster_queue`` does."""
    spec = document.get("spec") or {}
    return FlavorSpec(
        name=document["metadata"]["name"],
        node_labels=dict(spec.get("nodeLabels") or {}),
        taints=parse_taints(spec.get("nodeTaints")),
        tolerations=parse_tolerations(spec.get("tolerations")),
        topology=spec.get("topologyName") or "",
    )


def parse_check(document: Document) -> CheckSpec:
    """Read an AdmissionCheck; raises as ``parse_cluster_queue`` does."""
    return CheckSpec(
        name=document["metadata"]["name"],
        controller=(document.get("spec") or {}).get("controllerName") or "",
        is_active=is_true(document, "Active"),
    )


def _resource_groups(
    spec: Document,
) -> tuple[tuple[ResourceGroup, ...], dict[FlavorResource, Quota]]:
    groups: list[ResourceGroup] = []
    quotas: dict[FlavorResource, Quota] = {}
    for group in spec.get("resourceGroups") or ():
        flavors = group.get("flavors") or ()
        groups.append(
            ResourceGroup(
                resources=tuple(group.get("coveredResources") or ()),
                flavors=tuple(flavor["name"] for flavor in flavors),
            )
        )
        for flavor in flavors:
            for item in flavor.get("resources") or ():
                key = FlavorResource(flavor["name"], item["name"])
                quotas[key] = _quota(item)
    return tuple(groups), quotas


def _quota(item: Document) -> Quota:
    def limit(name: str) -> Amount | None:
        text = item.get(name)
        return None if text is None else parse_amount(str(text), item["name"])

    return Quota(
        nominal=parse_amount(str(item.get("nominalQuota") or "0"), item["name"]),
        borrowing_limit=limit("borrowingLimit"),
        lending_limit=limit("lendingLimit"),
    )


def _fungibility(section: Document) -> Fungibility:
    return Fungibility(
        tries_next_before_borrowing=section.get("whenCanBorrow") == "TryNextFlavor",
        tries_next_before_preempting=section.get("whenCanPreempt", "TryNextFlavor")
        == "TryNextFlavor",
        prefers_preemption=section.get("preference") == "PreemptionOverBorrowing",
    )


def _preemption(section: Document) -> PreemptionRules:
    def policy(source: Document, name: str) -> PreemptionPolicy:
        return PreemptionPolicy(source.get(name) or PreemptionPolicy.NEVER.value)

    borrow = section.get("borrowWithinCohort") or {}
    return PreemptionRules(
        within_cluster_queue=policy(section, "withinClusterQueue"),
        reclaim_within_cohort=policy(section, "reclaimWithinCohort"),
        borrow_within_cohort=policy(borrow, "policy"),
        max_priority_threshold=borrow.get("maxPriorityThreshold"),
    )


def _stop_policy(spec: Document) -> StopPolicy:
    return StopPolicy(spec.get("stopPolicy") or StopPolicy.NONE.value)
