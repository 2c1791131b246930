"""The outcome of looking for flavors: modes, choices, reasons, and the message they make.

Values only; ``flavor_assigner`` finds them. Source: Kueue pkg/scheduler/flavorassigner, v0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Any

from clusters.kueue.amounts import (
    ZERO,
    Amount,
    FlavorResource,
    Requests,
    add,
    format_amount,
    multiply,
    split,
    subtract,
)
from clusters.kueue.topology.need import PodSetNeed
from clusters.kueue.workload.placement import Placement, placement_document
from clusters.kueue.workload.workloads import PodSetHold

LastTried = Mapping[tuple[str, str], int]


class FlavorMode(IntEnum):
    """How a request and a flavor get along, worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class AssignmentMode(Enum):
    """What an assignment allows for, as users know it."""

    NO_FIT = "NoFit"
    PREEMPT = "Preempt"
    DEFERRED_FIT = "DeferredFit"
    FIT = "Fit"


class Obstacle(IntEnum):
    """Why nothing fits, mildest first; the condition's reason is the name in ``text``."""

    NONE = 0
    TOPOLOGY_PLACEMENT_FAILED = 1
    WAITING_FOR_QUOTA = 2
    EXCEEDS_MAX_QUOTA = 3
    NO_MATCHING_FLAVOR = 4

    @property
    def text(self) -> str:
        """Reason as a condition shows it."""
        return {
            Obstacle.EXCEEDS_MAX_QUOTA: "ExceedsMaxQuota",
            Obstacle.NO_MATCHING_FLAVOR: "NoMatchingFlavor",
            Obstacle.TOPOLOGY_PLACEMENT_FAILED: "TopologyPlacementFailed",
        }.get(self, "WaitingForQuota")


@dataclass(frozen=True, slots=True)
class FlavorChoice:
    """The flavor of one resource.

    Attributes:
        mode: how far the request is from fitting.
        level: borrowing level, the height of the subtree that must lend; 0 without borrowing.
    """

    flavor: str
    mode: FlavorMode
    level: int


@dataclass(frozen=True, slots=True)
class FlavorAttempt:
    """One flavor that was looked at for one pod set, as evidence for people.

    Attributes:
        missing: by resource, the amount that was not free, in the resource's own unit.
        reasons: texts, as in the condition's message.
    """

    pod_set: str
    flavor: str
    mode: FlavorMode
    missing: Mapping[str, int]
    reasons: tuple[str, ...]


@dataclass(slots=True)
class PodSetAssignment:
    """Flavors of one pod set; ``choices`` stays empty when some resource found none.

    Attributes:
        held: what the slice that the workload replaces holds for it, ``None`` without one.
        placement: where its pods run, ``None`` as long as they have no domains.
        delayed: state of a placement that follows later, empty for none.
        error: why no domains can be looked for, empty when they can.
    """

    name: str
    count: int
    requests: Requests
    held: PodSetHold | None = None
    choices: dict[str, FlavorChoice] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    has_failed: bool = False
    placement: Placement | None = None
    delayed: str = ""
    error: str = ""

    def beyond_held(self, resource: str) -> Amount:
        """Amount that it asks for in addition to what the replaced slice holds."""
        amount = self.requests.get(resource, ZERO)
        if self.held is None:
            return amount
        return subtract(amount, self.held.amounts.get(resource, ZERO))

    def of_more_pods(self, resource: str) -> Amount:
        """Amount of the pods that it has more than the replaced slice."""
        amount = self.requests.get(resource, ZERO)
        if self.held is None or not self.count:
            return amount
        return multiply(split(amount, self.count), self.count - self.held.count)

    @property
    def mode(self) -> FlavorMode:
        """The worst mode of its resources."""
        if self.has_failed or self.error:
            return FlavorMode.NO_FIT
        return min([choice.mode for choice in self.choices.values()], default=FlavorMode.FIT)


@dataclass(slots=True)
class Assignment:
    """Flavors of a whole workload.

    Attributes:
        pod_sets: in order, up to the first that found no flavor.
        usage: amounts by (flavor, resource) of all that found one, beyond what is held already.
        last_tried: index of the last flavor looked at, by pod set and resource; -1 after the last.
        obstacle: the severest reason of the pod set that failed.
        attempts: every flavor looked at.
        needs: pods that look for domains.
        forced: what the search for domains made of it, ``None`` where quota decides.
    """

    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    usage: dict[FlavorResource, Amount] = field(default_factory=dict)
    last_tried: dict[tuple[str, str], int] = field(default_factory=dict)
    obstacle: Obstacle = Obstacle.NONE
    attempts: list[FlavorAttempt] = field(default_factory=list)
    needs: list[PodSetNeed] = field(default_factory=list)
    forced: AssignmentMode | None = None

    @property
    def outcome(self) -> AssignmentMode:
        """What the assignment allows for: the worst over its pod sets."""
        if self.forced is not None:
            return self.forced
        worst = min([item.mode for item in self.pod_sets], default=FlavorMode.FIT)
        if worst is FlavorMode.FIT:
            return AssignmentMode.FIT
        return AssignmentMode.NO_FIT if worst is FlavorMode.NO_FIT else AssignmentMode.PREEMPT

    @property
    def level(self) -> int:
        """Highest borrowing level of its choices."""
        return max(
            (choice.level for item in self.pod_sets for choice in item.choices.values()), default=0
        )

    @property
    def flavors(self) -> frozenset[str]:
        """Flavors that it uses."""
        return frozenset(
            choice.flavor for item in self.pod_sets for choice in item.choices.values()
        )

    def add(self, item: PodSetAssignment) -> None:
        """Take in the next pod set; its usage counts for those after it.

        An amount of 0 needs a flavor but no quota: it never makes the whole workload a borrower.
        """
        self.pod_sets.append(item)
        _add_amounts(self.usage, item, item.beyond_held)

    def to_free(self) -> Mapping[FlavorResource, Amount]:
        """Amounts by (flavor, resource) that preemption makes room for.

        Those of the pods that are new where a slice is replaced, by what one of them asks for now.
        """
        if all(item.held is None for item in self.pod_sets):
            return self.usage
        total: dict[FlavorResource, Amount] = {}
        for item in self.pod_sets:
            _add_amounts(total, item, item.of_more_pods)
        return total

    @property
    def nominated(self) -> dict[tuple[str, str], str]:
        """Flavors by pod set and resource."""
        return {
            (item.name, resource): choice.flavor
            for item in self.pod_sets
            for resource, choice in item.choices.items()
        }

    def item(self, name: str) -> PodSetAssignment:
        """The assignment of a pod set."""
        return next(item for item in self.pod_sets if item.name == name)

    def force(self, name: str, mode: FlavorMode) -> None:
        """Set the mode of a pod set, in all its resources, and of the whole."""
        item = self.item(name)
        item.choices = {
            resource: replace(choice, mode=mode) for resource, choice in item.choices.items()
        }
        is_hopeless = mode is FlavorMode.NO_FIT
        self.forced = AssignmentMode.NO_FIT if is_hopeless else AssignmentMode.PREEMPT

    def needing_preemption(self) -> frozenset[FlavorResource]:
        """Pairs whose quota has to be freed first."""
        return frozenset(
            FlavorResource(choice.flavor, resource)
            for item in self.pod_sets
            for resource, choice in item.choices.items()
            if FlavorMode.NO_FIT < choice.mode < FlavorMode.FIT
        )

    def message(self) -> str:
        """Why it does not fit, pod set by pod set; empty when everything fits."""
        for item in self.pod_sets:
            if item.error:
                return f"failed to assign flavors to pod set {item.name}: {item.error}"
        return "; ".join(
            f"couldn't assign flavors to pod set {item.name}: {', '.join(sorted(item.reasons))}"
            for item in self.pod_sets
            if item.reasons
        )

    def admission(self, cluster_queue: str, *, splits_by_prefix: bool = True) -> dict[str, Any]:
        """The ``status.admission`` document that it becomes."""
        return {
            "clusterQueue": cluster_queue,
            "podSetAssignments": [
                _pod_set_document(item, splits_by_prefix) for item in self.pod_sets
            ],
        }


def _add_amounts(
    total: dict[FlavorResource, Amount],
    item: PodSetAssignment,
    amount_of: Callable[[str], Amount],
) -> None:
    for resource, choice in item.choices.items():
        if amount := amount_of(resource):
            key = FlavorResource(choice.flavor, resource)
            total[key] = add(total.get(key, ZERO), amount)


def _pod_set_document(item: PodSetAssignment, splits_by_prefix: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"name": item.name}
    resources = sorted(item.choices)
    if resources:
        document["flavors"] = {name: item.choices[name].flavor for name in resources}
        document["resourceUsage"] = {
            name: format_amount(item.requests.get(name, 0), name) for name in resources
        }
    document["count"] = item.count
    if item.placement is not None:
        document["topologyAssignment"] = placement_document(
            item.placement, splits_by_prefix=splits_by_prefix
        )
    if item.delayed:
        document["delayedTopologyRequest"] = item.delayed
    return document
