"""What Kueue's CRD expressions and webhooks refuse, for the kinds that the portal writes.

Source: Kueue v0.19.2, the x-kubernetes-validations of its CRDs and the rules of pkg/webhooks, as
`spec/admission.md` 1.2 to 1.7 and `spec/dispatch.md` 1 and 2.8 state them. What `EXPRESSIONS` find
is answered 422 by the API server itself, what `WEBHOOKS` find 403 by Kueue's webhooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from clusters.devcluster import problems
from clusters.devcluster.problems import Cause, Document
from clusters.devcluster.workload_rules import (
    IMMUTABLE,
    each,
    object_fault,
    spec_of,
    workload_cel,
    workload_webhook,
)
from clusters.documents import labels
from clusters.kueue.amounts import parse_decimal

Rule = Callable[[Document | None, Document], Iterator[Cause]]
"""From an object before, None on creation, and after a write to its faults."""
_NOT_NEGATIVE = "must be greater than or equal to 0"
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _groups(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return each(spec, "resourceGroups", "spec")


def _quotas(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for group_path, group in _groups(spec):
        for flavor_path, flavor in each(group, "flavors", group_path):
            yield from each(flavor, "resources", flavor_path)


def _group_cel(spec: Mapping[str, Any]) -> Iterator[Cause]:
    for path, group in _groups(spec):
        covered = len(group["coveredResources"])
        if any(len(flavor["resources"]) != covered for flavor in group["flavors"]):
            text = "flavors must have the same number of resources as the coveredResources"
            yield object_fault(path, text)


def _cluster_queue_cel(_: Document | None, new: Document) -> Iterator[Cause]:
    spec = spec_of(new)
    yield from _group_cel(spec)
    if "cohortName" not in spec and any("borrowingLimit" in quota for _, quota in _quotas(spec)):
        yield object_fault("spec", "borrowingLimit must be nil when cohort is empty")
    fungibility = spec.get("flavorFungibility") or {}
    if "preference" in fungibility and not (
        fungibility["whenCanBorrow"] == fungibility["whenCanPreempt"] == "TryNextFlavor"
    ):
        text = "preference can only be set when both whenCanBorrow and whenCanPreempt are"
        yield object_fault("spec.flavorFungibility", f"{text} TryNextFlavor")
    preemption = spec.get("preemption") or {}
    borrow = (preemption.get("borrowWithinCohort") or {}).get("policy", "Never")
    if preemption.get("reclaimWithinCohort") == "Never" and borrow != "Never":
        text = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
        yield object_fault("spec.preemption", text)


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
    before, after = spec_of(old).get("topologyName"), spec.get("topologyName")
    if after is not None and not spec.get("nodeLabels"):
        yield object_fault("spec", "at least one nodeLabel is required when topology is set")
    if before is not None and before != after:
        yield object_fault("spec", "resourceFlavorSpec are immutable when topologyName is set")
    for index, taint in enumerate(spec.get("nodeTaints") or []):
        if taint["effect"] not in _TAINT_EFFECTS:
            text = f"supported taint effect values: {', '.join(_TAINT_EFFECTS)}"
            yield problems.invalid("spec.nodeTaints", index, text)
    for path, toleration in each(spec, "tolerations", "spec"):
        operator = toleration.get("operator")
        if "key" not in toleration and operator != "Exists":
            yield object_fault(path, "operator must be Exists when 'key' is empty")
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
            yield object_fault(path, "effect must be 'NoExecute' when 'tolerationSeconds' is set")
        if operator not in (None, "Equal", "Exists"):
            yield object_fault(path, "supported toleration values: 'Equal'(default), 'Exists'")
        if operator == "Exists" and "value" in toleration:
            yield object_fault(path, "a value must be empty when 'operator' is 'Exists'")


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
    before, levels = (
        [level["nodeLabel"] for level in spec_of(found).get("levels") or []] for found in (old, new)
    )
    rules = (
        (old is None or before == levels, IMMUTABLE),
        (len(set(levels)) == len(levels), "must be unique"),
        (
            labels.HOSTNAME not in levels[:-1],
            f"the {labels.HOSTNAME} label can only be used at the lowest level of topology",
        ),
    )
    for holds, message in rules:
        if not holds:
            yield problems.invalid("spec.levels", "array", message)


def _group_webhook(spec: Mapping[str, Any]) -> Iterator[Cause]:
    resources: set[str] = set()
    flavors: set[str] = set()
    for group_path, group in _groups(spec):
        for path, name in each(group, "coveredResources", group_path):
            if name in resources:
                yield problems.duplicate(path, name)
            resources.add(name)
        for flavor_path, flavor in each(group, "flavors", group_path):
            if flavor["name"] in flavors:
                yield problems.duplicate(f"{flavor_path}.name", flavor["name"])
            flavors.add(flavor["name"])
            quotas = each(flavor, "resources", flavor_path)
            for (path, quota), covered in zip(quotas, group["coveredResources"], strict=True):
                if quota["name"] != covered:
                    text = "must match the name in coveredResources"
                    yield problems.invalid(f"{path}.name", quota["name"], text)


def _limit_webhook(spec: Mapping[str, Any], parent: str) -> Iterator[Cause]:
    for path, quota in _quotas(spec):
        amounts = {
            key: str(quota[key])
            for key in ("nominalQuota", "borrowingLimit", "lendingLimit")
            if key in quota
        }
        for key, amount in amounts.items():
            if parse_decimal(amount) < 0:
                yield problems.invalid(f"{path}.{key}", amount, _NOT_NEGATIVE)
            if key != "nominalQuota" and not spec.get(parent):
                text = f"must be nil when {parent.removesuffix('Name')} is empty"
                yield problems.invalid(f"{path}.{key}", amount, text)
        lent, nominal = amounts.get("lendingLimit"), parse_decimal(amounts["nominalQuota"])
        is_queue = parent == "cohortName"
        if is_queue and lent is not None and parse_decimal(lent) > nominal:
            text = "must be less than or equal to the nominalQuota"
            yield problems.invalid(f"{path}.lendingLimit", lent, text)


def _fair_sharing_webhook(spec: Mapping[str, Any]) -> Iterator[Cause]:
    weight = parse_decimal(str((spec.get("fairSharing") or {}).get("weight", 1)))
    if weight < 0:
        yield problems.invalid("spec.fairSharing", str(weight), _NOT_NEGATIVE)
    elif 0 < weight <= Decimal("1e-9"):
        text = "When not zero, weight must be greater than 1n"
        yield problems.invalid("spec.fairSharing", str(weight), text)


def _node_webhook(spec: Mapping[str, Any], parent: str) -> Iterator[Cause]:
    """What holds for ClusterQueues and Cohorts; ``parent`` is the field with the Cohort above."""
    yield from _group_webhook(spec)
    yield from _limit_webhook(spec, parent)
    yield from _fair_sharing_webhook(spec)


def _cluster_queue_webhook(_: Document | None, new: Document) -> Iterator[Cause]:
    spec = spec_of(new)
    yield from _node_webhook(spec, "cohortName")
    groups = spec.get("resourceGroups") or []
    flavors = {flavor["name"] for group in groups for flavor in group["flavors"]}
    resources = {name for group in groups for name in group["coveredResources"]}
    for label, names in (("flavors", flavors), ("covered resources", resources)):
        if len(names) > 256:
            text = f"must have at most 256 {label} in all resource groups"
            yield problems.invalid("spec.resourceGroups", len(names), text)
    for path, group in _groups(spec):
        pairs = len(group["flavors"]) * len(group["coveredResources"])
        if pairs > 512:
            yield problems.too_many(path, pairs, 512)
    strategy = spec.get("admissionChecksStrategy") or {}
    for check_path, check in each(strategy, "admissionChecks", "spec.admissionChecksStrategy"):
        for path, flavor in each(check, "onFlavors", check_path):
            if flavor not in flavors:
                yield problems.unsupported(path, flavor, sorted(flavors))


def _cohort_webhook(_: Document | None, new: Document) -> Iterator[Cause]:
    yield from _node_webhook(spec_of(new), "parentName")


def _flavor_webhook(_: Document | None, new: Document) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for path, taint in each(spec_of(new), "nodeTaints", "spec"):
        key = taint["key"], taint["effect"]
        if key in seen:
            yield problems.duplicate(path, taint)
        seen.add(key)


EXPRESSIONS: Mapping[str, Rule] = {
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
WEBHOOKS: Mapping[str, Rule] = {
    "ClusterQueue": _cluster_queue_webhook,
    "Cohort": _cohort_webhook,
    "ResourceFlavor": _flavor_webhook,
    "Workload": workload_webhook,
}
