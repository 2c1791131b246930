"""What Kueue's CRD expressions and webhooks refuse, for the kinds that the portal writes.

Source: Kueue v0.19.2, the x-kubernetes-validations of its CRDs and the rules of pkg/webhooks, as
`spec/admission.md` 1.2 to 1.7 and `spec/dispatch.md` 1 and 2.8 state them. `cel_faults` are
answered 422 by the API server itself, `webhook_faults` 403 by Kueue's webhooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from clusters.devcluster import problems
from clusters.devcluster.problems import Cause, Document
from clusters.devcluster.workload_rules import (
    IMMUTABLE,
    object_fault,
    spec_of,
    workload_cel,
    workload_webhook,
)
from clusters.documents import labels
from clusters.kueue.amounts import parse_decimal

Rule = Callable[[Document | None, Document], Iterator[Cause]]


def cel_faults(kind: str, old: Document | None, new: Document) -> Iterator[Cause]:
    """Faults of the CRD's own expressions; `old` is None on creation."""
    rule = _CEL.get(kind)
    if rule:
        yield from rule(old, new)


def webhook_faults(kind: str, old: Document | None, new: Document) -> Iterator[Cause]:
    """Faults that Kueue's validating webhook finds; `old` is None on creation."""
    rule = _WEBHOOKS.get(kind)
    if rule:
        yield from rule(old, new)


def _quotas(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for g, group in enumerate(spec.get("resourceGroups") or []):
        for f, flavor in enumerate(group.get("flavors") or []):
            for r, resource in enumerate(flavor.get("resources") or []):
                yield f"spec.resourceGroups[{g}].flavors[{f}].resources[{r}]", resource


def _group_cel(spec: Mapping[str, Any]) -> Iterator[Cause]:
    for index, group in enumerate(spec.get("resourceGroups") or []):
        covered = len(group["coveredResources"])
        if any(len(flavor["resources"]) != covered for flavor in group["flavors"]):
            yield object_fault(
                f"spec.resourceGroups[{index}]",
                "flavors must have the same number of resources as the coveredResources",
            )


def _cluster_queue_cel(_: Document | None, new: Document) -> Iterator[Cause]:
    spec = spec_of(new)
    yield from _group_cel(spec)
    if "cohortName" not in spec and any("borrowingLimit" in quota for _, quota in _quotas(spec)):
        yield object_fault("spec", "borrowingLimit must be nil when cohort is empty")
    fungibility = spec.get("flavorFungibility") or {}
    if "preference" in fungibility and not (
        fungibility["whenCanBorrow"] == fungibility["whenCanPreempt"] == "TryNextFlavor"
    ):
        yield object_fault(
            "spec.flavorFungibility",
            "preference can only be set when both whenCanBorrow and whenCanPreempt are"
            " TryNextFlavor",
        )
    preemption = spec.get("preemption") or {}
    borrow = (preemption.get("borrowWithinCohort") or {}).get("policy", "Never")
    if preemption.get("reclaimWithinCohort") == "Never" and borrow != "Never":
        yield object_fault(
            "spec.preemption",
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        )


def _cohort_cel(_: Document | None, new: Document) -> Iterator[Cause]:
    yield from _group_cel(spec_of(new))


def _fixed_once_set(field: str) -> Rule:
    """The rule of a field of ``spec`` that stays as it was first written."""

    def rule(old: Document | None, new: Document) -> Iterator[Cause]:
        before, after = spec_of(old).get(field), spec_of(new).get(field)
        if before is not None and after is not None and before != after:
            yield problems.invalid(f"spec.{field}", after, IMMUTABLE)

    return rule


def _flavor_cel(old: Document | None, new: Document) -> Iterator[Cause]:
    spec = spec_of(new)
    before = spec_of(old).get("topologyName")
    after = spec.get("topologyName")
    if after is not None and not spec.get("nodeLabels"):
        yield object_fault("spec", "at least one nodeLabel is required when topology is set")
    if before is not None and before != after:
        yield object_fault("spec", "resourceFlavorSpec are immutable when topologyName is set")
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    for index, taint in enumerate(spec.get("nodeTaints") or []):
        if taint["effect"] not in effects:
            yield problems.invalid(
                "spec.nodeTaints", index, f"supported taint effect values: {', '.join(effects)}"
            )
    yield from toleration_faults(spec.get("tolerations") or [], "spec.tolerations")


def toleration_faults(tolerations: Sequence[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    """What the CRDs say about tolerations."""
    for index, toleration in enumerate(tolerations):
        where, operator = f"{path}[{index}]", toleration.get("operator")
        if "key" not in toleration and operator != "Exists":
            yield object_fault(where, "operator must be Exists when 'key' is empty")
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
            yield object_fault(where, "effect must be 'NoExecute' when 'tolerationSeconds' is set")
        if operator not in (None, "Equal", "Exists"):
            yield object_fault(where, "supported toleration values: 'Equal'(default), 'Exists'")
        if operator == "Exists" and "value" in toleration:
            yield object_fault(where, "a value must be empty when 'operator' is 'Exists'")


def _config_cel(_: Document | None, new: Document) -> Iterator[Cause]:
    clusters = spec_of(new).get("clusters") or []
    if len(set(clusters)) != len(clusters):
        yield problems.invalid("spec.clusters", "array", "must be unique")


def _cluster_cel(_: Document | None, new: Document) -> Iterator[Cause]:
    source = spec_of(new).get("clusterSource")
    if source is not None and ("kubeConfig" in source) == ("clusterProfileRef" in source):
        message = "exactly one of the fields in [kubeConfig clusterProfileRef] must be set"
        yield object_fault("spec.clusterSource", message)


def _topology_cel(old: Document | None, new: Document) -> Iterator[Cause]:
    path = "spec.levels"
    levels = [level["nodeLabel"] for level in spec_of(new).get("levels") or []]
    if old is not None:
        before = [level["nodeLabel"] for level in spec_of(old).get("levels") or []]
        if before != levels:
            yield problems.invalid(path, "array", IMMUTABLE)
    if len(set(levels)) != len(levels):
        yield problems.invalid(path, "array", "must be unique")
    if labels.HOSTNAME in levels[:-1]:
        message = (
            "the kubernetes.io/hostname label can only be used at the lowest level of topology"
        )
        yield problems.invalid(path, "array", message)


def _group_webhook(spec: Mapping[str, Any]) -> Iterator[Cause]:
    resources: set[str] = set()
    flavors: set[str] = set()
    for g, group in enumerate(spec.get("resourceGroups") or []):
        path = f"spec.resourceGroups[{g}]"
        for index, name in enumerate(group["coveredResources"]):
            if name in resources:
                yield problems.duplicate(f"{path}.coveredResources[{index}]", name)
            resources.add(name)
        for f, flavor in enumerate(group["flavors"]):
            if flavor["name"] in flavors:
                yield problems.duplicate(f"{path}.flavors[{f}].name", flavor["name"])
            flavors.add(flavor["name"])
            for r, resource in enumerate(flavor["resources"]):
                if resource["name"] != group["coveredResources"][r]:
                    yield problems.invalid(
                        f"{path}.flavors[{f}].resources[{r}].name",
                        resource["name"],
                        "must match the name in coveredResources",
                    )


def _limit_webhook(
    spec: Mapping[str, Any], *, parent: str, missing: str, lends_within_nominal: bool
) -> Iterator[Cause]:
    for path, quota in _quotas(spec):
        for key in ("nominalQuota", "borrowingLimit", "lendingLimit"):
            if key in quota and parse_decimal(str(quota[key])) < 0:
                text = "must be greater than or equal to 0"
                yield problems.invalid(f"{path}.{key}", str(quota[key]), text)
        for key in ("borrowingLimit", "lendingLimit"):
            if key in quota and not parent:
                yield problems.invalid(f"{path}.{key}", str(quota[key]), missing)
        lends = quota.get("lendingLimit")
        if (
            lends_within_nominal
            and lends is not None
            and parse_decimal(str(lends)) > parse_decimal(str(quota["nominalQuota"]))
        ):
            text = "must be less than or equal to the nominalQuota"
            yield problems.invalid(f"{path}.lendingLimit", str(lends), text)


def _fair_sharing_webhook(spec: Mapping[str, Any]) -> Iterator[Cause]:
    weight = parse_decimal(str((spec.get("fairSharing") or {}).get("weight", 1)))
    if weight < 0:
        text = "must be greater than or equal to 0"
        yield problems.invalid("spec.fairSharing", str(weight), text)
    elif 0 < weight <= Decimal("1e-9"):
        text = "When not zero, weight must be greater than 1n"
        yield problems.invalid("spec.fairSharing", str(weight), text)


def _cluster_queue_webhook(_: Document | None, new: Document) -> Iterator[Cause]:
    spec = spec_of(new)
    groups = spec.get("resourceGroups") or []
    yield from _group_webhook(spec)
    yield from _limit_webhook(
        spec,
        parent=spec.get("cohortName", ""),
        missing="must be nil when cohort is empty",
        lends_within_nominal=True,
    )
    yield from _fair_sharing_webhook(spec)
    flavors = {flavor["name"] for group in groups for flavor in group["flavors"]}
    resources = {name for group in groups for name in group["coveredResources"]}
    for label, names in (("flavors", flavors), ("covered resources", resources)):
        if len(names) > 256:
            text = f"must have at most 256 {label} in all resource groups"
            yield problems.invalid("spec.resourceGroups", len(names), text)
    for index, group in enumerate(groups):
        pairs = len(group["flavors"]) * len(group["coveredResources"])
        if pairs > 512:
            yield problems.too_many(f"spec.resourceGroups[{index}]", pairs, 512)
    checks = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or []
    for index, check in enumerate(checks):
        for place, flavor in enumerate(check.get("onFlavors") or []):
            if flavor not in flavors:
                path = f"spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{place}]"
                yield problems.unsupported(path, flavor, sorted(flavors))


def _cohort_webhook(_: Document | None, new: Document) -> Iterator[Cause]:
    spec = spec_of(new)
    yield from _group_webhook(spec)
    yield from _limit_webhook(
        spec,
        parent=spec.get("parentName", ""),
        missing="must be nil when parent is empty",
        lends_within_nominal=False,
    )
    yield from _fair_sharing_webhook(spec)


def _flavor_webhook(_: Document | None, new: Document) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(spec_of(new).get("nodeTaints") or []):
        key = taint["key"], taint["effect"]
        if key in seen:
            yield problems.duplicate(f"spec.nodeTaints[{index}]", taint)
        seen.add(key)


_CEL: Mapping[str, Rule] = {
    "ClusterQueue": _cluster_queue_cel,
    "Cohort": _cohort_cel,
    "LocalQueue": _fixed_once_set("clusterQueue"),
    "ResourceFlavor": _flavor_cel,
    "AdmissionCheck": _fixed_once_set("controllerName"),
    "MultiKueueConfig": _config_cel,
    "MultiKueueCluster": _cluster_cel,
    "Topology": _topology_cel,
    "Workload": workload_cel,
}
_WEBHOOKS: Mapping[str, Rule] = {
    "ClusterQueue": _cluster_queue_webhook,
    "Cohort": _cohort_webhook,
    "ResourceFlavor": _flavor_webhook,
    "Workload": workload_webhook,
}
