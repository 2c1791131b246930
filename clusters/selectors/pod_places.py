"""Where the pods of a job are: blocks, racks and nodes, as its admission says.

Where a topology goes down to nodes, an admission names nodes alone; in which rack and block they
stand is then what the nodes themselves showed when they were counted last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from budgets.models import Flavor
from clusters.documents.labels import HOSTNAME
from clusters.documents.numbers import whole_number
from clusters.jobs.workloads import assignments_of
from clusters.kueue.workload.placement import parse_placement
from clusters.models import NodeSight
from clusters.selectors.racks import level_word


@dataclass(frozen=True, slots=True)
class PodsInDomain:
    """Pods in one domain; ``values`` belong to the levels, empty where one is not known."""

    values: tuple[str, ...]
    pods: int

    @property
    def name(self) -> str:
        """Of the smallest domain."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class PodPlaces:
    """Where the pods of one pod set are.

    Attributes:
        cluster: Slug.
        levels: Labels of nodes, the largest domain first.
        domains: In the order of their values.
        more: Pods that are placed in domains beyond those listed.
    """

    cluster: str
    pod_set: str
    levels: tuple[str, ...]
    domains: tuple[PodsInDomain, ...]
    more: int

    @property
    def columns(self) -> str:
        """Headings: the levels in a word each, and below the last its domains with their pods."""
        *above, last = map(level_word, self.levels)
        return "|".join((*map(_headline, above), f"Pods by {last}"))

    def together(self) -> list[tuple[tuple[str, ...], list[PodsInDomain]]]:
        """Domains by what they stand in: values of all levels but the smallest."""
        grouped = groupby(self.domains, key=lambda each: each.values[:-1])
        return [(values, list(found)) for values, found in grouped]


def _headline(word: str) -> str:
    return f"{word[:1].upper()}{word[1:]}"


def pod_places(shown: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[PodPlaces, ...]:
    """Where pods are placed; two queries where some are placed on nodes, else none.

    Args:
        shown: Cluster slug and recorded state of each Workload of a job that holds quota.
    """
    found: list[tuple[PodPlaces, Sequence[str]]] = []
    for cluster, payload in shown:
        for assignment in assignments_of(payload):
            placement = parse_placement(assignment.get("topologyAssignment"))
            if placement is None or not placement.domains:
                continue
            places = PodPlaces(
                cluster,
                str(assignment.get("name") or ""),
                placement.levels,
                tuple(PodsInDomain(each.values, each.count) for each in placement.domains),
                max(0, (whole_number(assignment.get("count")) or 0) - placement.count),
            )
            found.append((places, _flavors(assignment.get("flavors"))))
    if not any(places.levels == (HOSTNAME,) for places, _ in found):
        return tuple(places for places, _ in found)
    levels = _levels(flavor for _, flavors in found for flavor in flavors)
    labels = _labels(places for places, _ in found)
    return tuple(
        _standing(places, next((levels[each] for each in flavors if each in levels), ()), labels)
        for places, flavors in found
    )


def _flavors(told: Any) -> list[str]:
    """Of a pod set, as its cluster tells them."""
    return (
        [each for each in told.values() if isinstance(each, str)] if isinstance(told, dict) else []
    )


def _levels(flavors: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Flavor slug → levels of its topology."""
    rows = Flavor.objects.filter(slug__in=set(flavors), topology__isnull=False)
    return {slug: tuple(levels) for slug, levels in rows.values_list("slug", "topology__levels")}


def _labels(found: Iterable[PodPlaces]) -> dict[tuple[str, str], Mapping[str, str]]:
    """(cluster, node) → its labels."""
    nodes = {(each.cluster, domain.name) for each in found for domain in each.domains}
    rows = NodeSight.objects.filter(
        cluster__in={cluster for cluster, _ in nodes}, name__in={name for _, name in nodes}
    )
    return {
        (cluster, name): labels
        for cluster, name, labels in rows.values_list("cluster", "name", "labels")
        # A node may be called otherwise than its label says, which is what an admission names.
        if (cluster, name) in nodes and labels.get(HOSTNAME, name) == name
    }


def _standing(
    places: PodPlaces, levels: tuple[str, ...], labels: Mapping[tuple[str, str], Mapping[str, str]]
) -> PodPlaces:
    """The same with the levels above nodes."""
    if places.levels != (HOSTNAME,) or levels[-1:] != (HOSTNAME,):
        return places
    above = levels[:-1]
    domains = (
        PodsInDomain(
            (
                *(labels.get((places.cluster, each.name), {}).get(level, "") for level in above),
                each.name,
            ),
            each.pods,
        )
        for each in places.domains
    )
    found = tuple(sorted(domains, key=lambda each: each.values))
    return replace(places, levels=levels, domains=found)
