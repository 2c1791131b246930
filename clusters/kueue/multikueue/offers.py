"""What a worker could give a workload now: which flavor, within which quota, at what price. Pure.

The worker's own quota objects are read as its scheduler reads them, with usage as its ClusterQueues
report it; preemption is not tried. A worker whose objects cannot be read gives an unknown offer.

Source: issue "Dispatch" section 1, cheapest fit; ``flavor_assigner`` for the choice of flavors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final

from clusters.documents.keys import place_of
from clusters.kueue.amounts import Amount, FlavorResource, Usage, parse_amount, whole
from clusters.kueue.assignment.flavor_assigner import AssignmentRequest, FlavorAssigner
from clusters.kueue.assignment.outcome import Assignment, AssignmentMode, FlavorMode
from clusters.kueue.configuration import Configuration
from clusters.kueue.quota.snapshot import Snapshot
from clusters.kueue.quota.specifications import (
    parse_cluster_queue,
    parse_cohort,
    parse_flavor,
)
from clusters.kueue.quota.tree import ClusterQueueState
from clusters.kueue.workload.parser import WorkloadParser
from clusters.kueue.workload.requests import PodSurroundings
from clusters.kueue.workload.workloads import Workload

Document = Mapping[str, Any]


class Fit(IntEnum):
    """How well a workload fits now, best first."""

    FLOOR = 0
    BURST = 1
    RECLAIM = 2
    FULL = 3
    UNKNOWN = 4
    NEVER = 5


_WORDS: Final[Mapping[Fit, str]] = {
    Fit.FLOOR: "fits in the workspace's own quota",
    Fit.BURST: "fits by borrowing",
    Fit.RECLAIM: "its own quota there is lent out",
    Fit.FULL: "no room now",
    Fit.UNKNOWN: "quota there is not known",
    Fit.NEVER: "cannot run there",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """One worker's side of a nomination.

    Attributes:
        fit: How well the workload fits.
        flavors: Flavors that would be used for devices, by name.
        hourly_price: Of the whole workload, in the currency of the rate card; None without one.
        times: How many such workloads would fit at once.
        locality: How many of the workload's wishes for a place are met.
        failures: Of this worker lately.
        why_not: Why it can never run there; empty otherwise.
        usage: What it would use.
    """

    fit: Fit = Fit.UNKNOWN
    flavors: tuple[str, ...] = ()
    hourly_price: Decimal | None = None
    times: int = 0
    locality: int = 0
    failures: int = 0
    why_not: str = ""
    usage: Usage | None = None

    def rank(self, name: str) -> tuple[Any, ...]:
        """Sorts workers: floor first, then price, free quota, locality, failures, name."""
        price = (self.hourly_price is None, self.hourly_price or Decimal(0))
        return (self.fit, *price, -self.times, -self.locality, self.failures, name)

    def words(self) -> str:
        """Why it stands where it stands, for people."""
        parts = [self.why_not or _WORDS[self.fit]]
        if self.flavors:
            parts.append(f"flavor {', '.join(self.flavors)}")
        if self.fit < Fit.UNKNOWN:
            price = self.hourly_price
            parts.append("no price" if price is None else f"{price.normalize():f} per hour")
            parts.append(f"room for {self.times}")
        if self.locality:
            parts.append(f"{self.locality} wished labels")
        if self.failures:
            parts.append(f"{self.failures} recent failures")
        return ", ".join(parts)


UNKNOWN_OFFER: Final = Offer()
_CONFIGURATION: Final = Configuration()


def as_sent(document: Document) -> Workload:
    """A workload of the manager as any worker would meet it: what it holds here is not held there.

    Raises:
        KeyError: a required field is missing.
        ValueError: a quantity or time is malformed.
    """
    status = document.get("status") or {}
    sent = {**document, "status": {"reclaimablePods": status.get("reclaimablePods") or []}}
    # A parser of its own: one for all would be shared by the threads of several managers.
    parser = WorkloadParser(_CONFIGURATION)
    return parser.parse(sent, surroundings=PodSurroundings(_CONFIGURATION))


class _NoPreemption:
    """Answers the assigner that nobody is stopped for this."""

    def try_preemption(
        self, workload: Workload, *, queue: ClusterQueueState, key: FlavorResource, amount: Amount
    ) -> tuple[FlavorMode, int]:
        return FlavorMode.NO_CANDIDATES, 0


class WorkerQuota:
    """The quota of one worker as its own objects tell it.

    Args:
        queues: ClusterQueues with ``status.flavorsReservation``.
        cohorts: Cohorts.
        flavors: ResourceFlavors.
        local_queues: LocalQueues.

    Raises:
        KeyError: a required field of an object is missing.
        ValueError: a quantity or enum value is unknown.
    """

    def __init__(
        self,
        *,
        queues: Iterable[Document],
        cohorts: Iterable[Document] = (),
        flavors: Iterable[Document] = (),
        local_queues: Iterable[Document] = (),
    ) -> None:
        kinds = {
            "queues": list(queues),
            "cohorts": list(cohorts),
            "flavors": list(flavors),
            "local_queues": list(local_queues),
        }
        self._read = {kind: {place_of(d): _asked(d) for d in kinds[kind]} for kind in kinds}
        self._reserved = {d["metadata"]["name"]: _reserved(d) for d in kinds["queues"]}
        self._snapshot = Snapshot()
        for document in kinds["flavors"]:
            flavor = parse_flavor(document)
            self._snapshot.flavors[flavor.name] = flavor
        for document in kinds["cohorts"]:
            self._snapshot.set_cohort(parse_cohort(document))
        for document in kinds["queues"]:
            spec = parse_cluster_queue(document)
            self._snapshot.set_queue(spec)
            self._snapshot.set_active(spec.name, is_active=True)
            self._snapshot.queues[spec.name].node.add_all(self._reserved[spec.name])
        self._snapshot.refresh()
        self._assigner = FlavorAssigner(
            self._snapshot, configuration=_CONFIGURATION, oracle=_NoPreemption()
        )
        self._queue_of = {
            place_of(item): str((item.get("spec") or {}).get("clusterQueue") or "")
            for item in kinds["local_queues"]
        }

    def count(self, kind: str, document: Document) -> bool:
        """Count what one of its objects tells now, as ``kind``, an argument of the constructor.

        False where it asks for something else than what was read: then all is to be read anew.
        Queues tell of every workload, so this is worth its while.
        """
        if self._read[kind].get(place_of(document)) != _asked(document):
            return False
        if kind == "queues":
            name = document["metadata"]["name"]
            before, self._reserved[name] = self._reserved[name], _reserved(document)
            node = self._snapshot.queues[name].node
            node.remove_all(before)
            node.add_all(self._reserved[name])
        return True

    def queue_of(self, document: Document) -> str:
        """Name of the ClusterQueue that a workload would wait in; empty when there is none."""
        place = document["metadata"].get("namespace", ""), document["spec"].get("queueName", "")
        return self._queue_of.get(place, "")

    def book(self, queue: str, usage: Usage) -> None:
        """Count what was just sent there and is not reported yet."""
        state = self._snapshot.queues.get(queue)
        if state is not None:
            state.node.add_all(usage)

    def unbook(self, queue: str, usage: Usage) -> None:
        """Count it no more: it is reported by now, or never will be."""
        state = self._snapshot.queues.get(queue)
        if state is not None:
            state.node.remove_all(usage)

    def labels_of(self, flavors: Iterable[str]) -> dict[str, str]:
        """Node labels of some flavors."""
        found: dict[str, str] = {}
        for name in flavors:
            spec = self._snapshot.flavors.get(name)
            found.update(spec.node_labels if spec is not None else {})
        return found

    def offer(self, workload: Workload, *, prices: Mapping[str, Decimal]) -> Offer:
        """What this worker could give a workload now, as :func:`as_sent` reads it.

        Prices are per device and hour, by flavor; none without a rate card.
        """
        place = workload.namespace, workload.queue_name
        queue = self._snapshot.queues.get(self._queue_of.get(place, ""))
        if queue is None:
            name = workload.queue_name
            return Offer(Fit.NEVER, why_not=f"it has no LocalQueue {name} with a ClusterQueue")
        found = self._assigner.assign(AssignmentRequest(workload=workload, queue=queue))
        if found.outcome is AssignmentMode.NO_FIT:
            return Offer(Fit.NEVER, why_not=found.message() or "no flavor takes it")
        devices = {key: n for key, n in found.usage.items() if "/" in key.resource and n}
        return Offer(
            fit=_fit(found, queue),
            flavors=tuple(sorted({key.flavor for key in devices})),
            hourly_price=_price(devices, prices),
            times=_times(devices, queue),
            usage=dict(found.usage),
        )


def _asked(document: Document) -> tuple[Any, bool]:
    """What of an object is read, but for what a queue reports."""
    return document.get("spec"), bool(document["metadata"].get("deletionTimestamp"))


def _fit(found: Assignment, queue: ClusterQueueState) -> Fit:
    if found.outcome is AssignmentMode.FIT:
        return Fit.BURST if found.level else Fit.FLOOR
    is_owed = all(not queue.node.exceeds_with(key, n) for key, n in found.usage.items())
    return Fit.RECLAIM if is_owed else Fit.FULL


def _times(devices: Usage, queue: ClusterQueueState) -> int:
    free = [
        max(0, whole(queue.node.available(key))) // whole(amount) for key, amount in devices.items()
    ]
    return min(free, default=0)


def _price(devices: Usage, prices: Mapping[str, Decimal]) -> Decimal | None:
    if not devices or any(key.flavor not in prices for key in devices):
        return None
    return sum((prices[key.flavor] * whole(n) for key, n in devices.items()), Decimal(0))


def _reserved(document: Document) -> dict[FlavorResource, Amount]:
    listed = (document.get("status") or {}).get("flavorsReservation") or ()
    return {
        FlavorResource(flavor["name"], item["name"]): parse_amount(str(item["total"]), item["name"])
        for flavor in listed
        for item in flavor.get("resources") or ()
    }
