"""The part of a Kueue Configuration that changes decisions.

Source: Kueue apis/config/v1beta2, pkg/features/kube_features.go, v0.19.2 defaults.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final

from clusters.kueue import feature_gates
from clusters.kueue.amounts import parse_decimal

_DURATION_PART: Final = re.compile(r"([0-9.]+)(ms|h|m|s)")
_QUALIFIED: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_LONGEST_NAME: Final = 253
MAPPINGS_MOST: Final = 16
CLASSES_MOST: Final = 8
_SAMPLING_S: Final = 300.0
_UNIT_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class FairStrategy(Enum):
    """Rules that allow a preemption for fair shares."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


DEFAULT_STRATEGIES = (
    FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
    FairStrategy.LESS_THAN_INITIAL_SHARE,
)


@dataclass(frozen=True, slots=True)
class Gates:
    """Feature gates that the engine follows, with the defaults of 0.19.2.

    Recorded runs of 0.19.2 decide where descriptions of later versions differ: progress of the
    flavor scan is preserved there, and overlapping targets lead to a plain skip.
    """

    flavor_fungibility: bool = True
    partial_admission: bool = True
    reclaimable_pods: bool = True
    priority_sorting_within_cohort: bool = True
    fair_sharing_preempt_within_nominal: bool = True
    fair_sharing_prioritize_non_borrowing: bool = True
    scheduling_equivalence_hashing: bool = True
    flavor_fungibility_preserve_scan_progress: bool = True
    recompute_assignment_upon_preemption_targets_overlap: bool = False
    elastic_jobs_via_workload_slices: bool = True
    admission_fair_sharing: bool = True
    topology_aware_scheduling: bool = True
    tas_profile_mixed: bool = True
    tas_balanced_placement: bool = False
    tas_handle_overlapping_flavors: bool = True
    tas_recompute_assignment_within_scheduling_cycle: bool = True
    tas_respect_node_affinity_preferred: bool = False
    tas_assignments_encoding_by_hostname_prefix: bool = True
    tas_failed_node_replacement_fail_fast: bool = True
    tas_failed_node_replacement: bool = True
    tas_replace_node_on_pod_termination: bool = True
    tas_replace_node_on_node_taints: bool = True
    tas_replace_node_due_to_not_ready_over_fixed_time: bool = False
    skip_reassignment_for_pod_owned_workloads: bool = True
    elastic_jobs_via_workload_slices_with_tas: bool = False
    kueue_dra_integration: bool = True
    kueue_dra_integration_extended_resource: bool = True
    kueue_dra_reject_workloads_when_dra_disabled: bool = True
    scheduler_library_integration: bool = False
    unadmitted_workloads_observability: bool = False


@dataclass(frozen=True, slots=True)
class Transformation:
    """How one resource of a pod counts as others."""

    outputs: Mapping[str, str]
    keeps_input: bool = True
    multiply_by: str = ""


@dataclass(frozen=True, slots=True)
class DeviceClasses:
    """Which resource a device of a DeviceClass counts as.

    Attributes:
        resources: resource by DeviceClass.
        sourced: DeviceClasses whose devices count by what they consume, and not one by one.
    """

    resources: Mapping[str, str] = field(default_factory=dict)
    sourced: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PodsReadyRules:
    """How long pods may take to get ready, and how often a workload is tried again.

    Attributes:
        timeout_s, recovery_timeout_s: seconds; ``None`` for no limit.
        backoff_limit: number of tries, ``None`` for no limit.
        backoff_base_s, backoff_max_s: first and longest wait, seconds.
    """

    timeout_s: float | None = 1800.0
    recovery_timeout_s: float | None = 1800.0
    backoff_limit: int | None = None
    backoff_base_s: int = 60
    backoff_max_s: int = 3600


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """How LocalQueues' usage of the past orders the workloads of one ClusterQueue.

    Attributes:
        half_life_s: seconds after which half of past usage is forgotten; 0 forgets it at once.
        sampling_interval_s: seconds between two looks at what is used.
        resource_weights: by resource, what a unit of it counts; 1 where none is given.
    """

    half_life_s: float
    sampling_interval_s: float
    resource_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything outside of the API objects that decisions depend on.

    Attributes:
        fair_strategies: preemption strategies in order; empty when fair sharing is off.
        admission_fair_sharing: its rules, ``None`` when it is off.
        excluded_prefixes: resource names with these prefixes are not accounted.
        transformations: by input resource.
        device_classes: what devices that are claimed count as.
        ignores_undeclared: resources that no resource group covers are ignored, not refused.
        requeues_by_eviction: a workload evicted for PodsReadyTimeout re-enters at that time.
        blocks_admission: one workload starts at a time, when all others' pods are ready.
        pods_ready: time-outs, ``None`` when they are switched off.
        gates: feature gates.
        copied_labels: keys of labels that a Workload has from the job that it is made for.
        placed_kinds: kinds, as ``batch/v1, Kind=Job``, whose pods whoever carries decisions out
            brings to the domains that are chosen: others are refused that ask for a topology, and
            what is dispatched is left to its worker. ``None`` for a scheduler alone: all kinds.
        reads_templates: whoever feeds the engine may read what claims are made from.
    """

    fair_strategies: tuple[FairStrategy, ...] = ()
    admission_fair_sharing: AdmissionFairSharing | None = None
    excluded_prefixes: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = field(default_factory=dict)
    device_classes: DeviceClasses = field(default_factory=DeviceClasses)
    ignores_undeclared: bool = False
    requeues_by_eviction: bool = True
    blocks_admission: bool = False
    pods_ready: PodsReadyRules | None = field(default_factory=PodsReadyRules)
    gates: Gates = field(default_factory=Gates)
    copied_labels: tuple[str, ...] = ()
    placed_kinds: frozenset[str] | None = None
    reads_templates: bool = True

    @property
    def has_fair_sharing(self) -> bool:
        """Whether fair sharing is on."""
        return bool(self.fair_strategies)

    @property
    def counts_claims(self) -> bool:
        """Whether devices of claims count, so that ResourceClaimTemplates have to be known."""
        return self.gates.kueue_dra_integration and bool(self.device_classes.resources)

    @property
    def counts_named_devices(self) -> bool:
        """Whether DeviceClasses that stand for a resource name have to be known."""
        return self.counts_claims and self.gates.kueue_dra_integration_extended_resource

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | None) -> Configuration:
        """Read a Kueue ``Configuration`` document; missing parts mean defaults.

        Raises:
            ValueError: an enum value is unknown, a duration malformed, a weight negative, a mapping
                of DeviceClasses one that Kueue does not start with.
        """
        source = document or {}
        resources, integrations = source.get("resources") or {}, source.get("integrations") or {}
        requeuing = (source.get("waitForPodsReady") or {}).get("requeuingStrategy") or {}
        gates = _gates(source.get("featureGates") or {})
        by_usage = source.get("admissionFairSharing") if gates.admission_fair_sharing else None
        return cls(
            fair_strategies=_strategies(source.get("fairSharing")),
            admission_fair_sharing=_by_usage(by_usage) if by_usage is not None else None,
            excluded_prefixes=tuple(resources.get("excludeResourcePrefixes") or ()),
            transformations=_transformations(resources.get("transformations") or ()),
            device_classes=_device_classes(resources.get("deviceClassMappings") or ()),
            ignores_undeclared=resources.get("quotaCheckStrategy") == "IgnoreUndeclared",
            requeues_by_eviction=requeuing.get("timestamp", "Eviction") == "Eviction",
            blocks_admission=(source.get("waitForPodsReady") or {}).get("blockAdmission") is True,
            pods_ready=_pods_ready(source),
            gates=gates,
            copied_labels=tuple(map(str, integrations.get("labelKeysToCopy") or ())),
        )


def _strategies(section: Mapping[str, Any] | None) -> tuple[FairStrategy, ...]:
    if section is None or section.get("enable") is False:
        return ()
    listed = section.get("preemptionStrategies")
    return tuple(FairStrategy(name) for name in listed) if listed else DEFAULT_STRATEGIES


def _by_usage(section: Mapping[str, Any]) -> AdmissionFairSharing:
    weights = {name: float(value) for name, value in (section.get("resourceWeights") or {}).items()}
    if any(not 0 <= value < math.inf for value in weights.values()):
        raise ValueError("a resource weight of admissionFairSharing is negative, or no number")
    sampling_s = parse_duration(str(section.get("usageSamplingInterval") or "0s"))
    return AdmissionFairSharing(
        half_life_s=parse_duration(str(section.get("usageHalfLifeTime") or "0s")),
        sampling_interval_s=sampling_s or _SAMPLING_S,
        resource_weights=weights,
    )


def _transformations(section: Iterable[Mapping[str, Any]]) -> dict[str, Transformation]:
    return {
        item["input"]: Transformation(
            outputs={name: str(value) for name, value in (item.get("outputs") or {}).items()},
            keeps_input=item.get("strategy", "Retain") == "Retain",
            multiply_by=item.get("multiplyBy", ""),
        )
        for item in section
    }


def _device_classes(section: Sequence[Mapping[str, Any]]) -> DeviceClasses:
    """Mappings as Kueue's own validation lets them pass."""
    at = "deviceClassMappings"
    _bounded(at, section, most=MAPPINGS_MOST)
    resources: dict[str, str] = {}
    sourced: set[str] = set()
    named: set[str] = set()
    for index, item in enumerate(section):
        path, name = f"{at}[{index}]", _qualified(f"{at}[{index}].name", item.get("name"))
        if name in named:
            raise ValueError(f"{path}.name {name!r} is that of a mapping before it: join the two")
        named.add(name)
        classes = item.get("deviceClassNames") or ()
        if not classes:
            raise ValueError(f"{path}.deviceClassNames is empty: name at least one DeviceClass")
        _bounded(f"{path}.deviceClassNames", classes, most=CLASSES_MOST)
        for place, given in enumerate(classes):
            known = _qualified(f"{path}.deviceClassNames[{place}]", given)
            before = resources.setdefault(known, name)
            # What counts by sources may count for several resources.
            if before != name and not (item.get("sources") and known in sourced):
                raise ValueError(
                    f"{path}.deviceClassNames[{place}] {known!r} is mapped to {before} before: "
                    "a DeviceClass counts as one resource"
                )
        if item.get("sources"):
            sourced.update(classes)
    return DeviceClasses(resources, frozenset(sourced))


def _bounded(path: str, listed: Sequence[Any], *, most: int) -> None:
    if len(listed) > most:
        raise ValueError(f"{path} has {len(listed):,} entries, and Kueue takes {most} at most")


def _qualified(path: str, given: object) -> str:
    text = given if isinstance(given, str) else ""
    if len(text) > _LONGEST_NAME or not _QUALIFIED.fullmatch(text):
        raise ValueError(
            f"{path} {str(given)[:60]!r} is no qualified name: write one such as example.com/gpu"
        )
    return text


def _pods_ready(source: Mapping[str, Any]) -> PodsReadyRules | None:
    if feature_gates.in_force(source.get("featureGates") or {})["DisableWaitForPodsReady"]:
        return None
    section = source.get("waitForPodsReady") or {}
    if section.get("enable") is False:
        return None
    requeuing = section.get("requeuingStrategy") or {}
    timeout = parse_duration(section.get("timeout") or "30m")
    recovery = section.get("recoveryTimeout")
    return PodsReadyRules(
        timeout_s=timeout,
        recovery_timeout_s=parse_duration(recovery) if recovery else timeout,
        backoff_limit=requeuing.get("backoffLimitCount"),
        backoff_base_s=int(requeuing.get("backoffBaseSeconds") or 60),
        backoff_max_s=int(requeuing.get("backoffMaxSeconds") or 3600),
    )


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``"1h30m"``, ``"5m0s"`` or ``"500ms"``.

    Raises:
        ValueError: the text is no duration.
    """
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"not a duration: {text!r}")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def not_followed(document: Mapping[str, Any]) -> list[str]:
    """What a Kueue ``Configuration`` says that no decision here follows, with its effect."""
    found = feature_gates.refused(document.get("featureGates") or {})
    mappings = (document.get("resources") or {}).get("deviceClassMappings") or ()
    return [*found, *_sources(mappings)]


def _sources(mappings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Of devices that are shared: Kueue reads what they consume from ResourceSlices."""
    for index, item in enumerate(mappings):
        if item.get("sources"):
            yield (
                f"resources.deviceClassMappings[{index}].sources: devices count as "
                f"{item.get('name')} by what they consume, not one by one, and jobs that claim "
                "them are refused"
            )


def _gates(section: Mapping[str, bool]) -> Gates:
    known = {name.lower(): value for name, value in feature_gates.in_force(section).items()}
    return Gates(**{item.name: known[item.name.replace("_", "")] for item in fields(Gates)})


def parse_weight(section: Mapping[str, Any] | None) -> float:
    """Weight of a ``fairSharing`` section, 1 unless declared."""
    weight = (section or {}).get("weight")
    return 1.0 if weight is None else float(parse_decimal(str(weight)))
