"""Where nodes stand: domains of a topology with their GPUs, and what labels of nodes get wrong.

Everything comes from the nodes that workers and single clusters showed when they were counted last;
no cluster is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from django.db.models import BigIntegerField, Case, F, Sum, When
from django.db.models.fields.json import KeyTextTransform

from budgets.models import Flavor, Topology
from clusters.documents.labels import HOSTNAME, level_word
from clusters.explaining.evidence import Room
from clusters.models import Cluster, NodeSight

NAMED: Final = 3
"""Nodes that a sentence names."""
MOST_FINDINGS: Final = 50
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One node: GPUs that it offers, and those that nobody uses."""

    cluster: str
    name: str
    labels: Mapping[str, str]
    gpus: int
    free: int


@dataclass(slots=True)
class Domain:
    """A block, a rack, a node: ``path`` has the values of the levels down to it."""

    path: Path
    nodes: int = 0
    gpus: int = 0
    free: int = 0

    @property
    def name(self) -> str:
        """Of its own level."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Finding:
    """What labels of nodes get wrong, and what to do about it."""

    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class FlavorDomains:
    """The nodes of one flavor on one cluster, by a topology.

    Attributes:
        levels: Labels, the largest domain first.
        domains: Level by level, each by path.
        outside: Nodes that lack a label.
    """

    cluster: str
    levels: tuple[str, ...]
    domains: tuple[Mapping[Path, Domain], ...]
    outside: tuple[str, ...]
    findings: tuple[Finding, ...]

    def below(self, path: Path) -> list[Domain]:
        """Domains right below one, those with most room first; the largest ones for ()."""
        if len(path) >= len(self.levels):
            return []
        found = [each for each in self.domains[len(path)].values() if each.path[:-1] == path]
        return sorted(found, key=lambda each: (-each.free, each.path))


@dataclass(frozen=True, slots=True)
class LabelSeen:
    """A label of nodes: on how many it is, and with how many values."""

    key: str
    nodes: int
    values: int


def nodes_of(flavors: Iterable[str]) -> dict[str, list[Node]]:
    """Flavor slug → its nodes on registered clusters, by cluster and name. One query."""
    found: dict[str, list[Node]] = {}
    rows = NodeSight.objects.filter(
        flavor__in=list(flavors), cluster__in=Cluster.objects.registered().values("slug")
    ).order_by("cluster", "name")
    for cluster, name, flavor, labels, gpus, used in rows.values_list(
        "cluster", "name", "flavor", "labels", "gpus", "used"
    ):
        node = Node(cluster, name, labels, gpus, max(0, gpus - used))
        found.setdefault(flavor, []).append(node)
    return found


def labels_seen(nodes: Iterable[Node]) -> list[LabelSeen]:
    """Labels by which nodes may stand together, those with the fewest values first."""
    values: dict[str, set[str]] = defaultdict(set)
    counts: dict[str, int] = defaultdict(int)
    for node in nodes:
        for key, value in node.labels.items():
            values[key].add(value)
            counts[key] += 1
    found = [LabelSeen(key, counts[key], len(values[key])) for key in counts if key != HOSTNAME]
    return sorted(found, key=lambda each: (each.values, -each.nodes, each.key))


def standings(levels: Sequence[str], nodes: Iterable[Node]) -> list[FlavorDomains]:
    """Nodes of one flavor by a topology, cluster by cluster. O(nodes × levels)."""
    by_cluster: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        by_cluster[node.cluster].append(node)
    return [_standing(cluster, tuple(levels), found) for cluster, found in by_cluster.items()]


def rooms(wanted: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str, str], Room]:
    """What is free in the one domain with most room, and in all nodes together.

    One query, and one more for each flavor and level; domains are added up by the database.

    Args:
        wanted: Cluster slug, flavor slug, and label of the level.
    """
    clusters: dict[tuple[str, str], set[str]] = defaultdict(set)
    for cluster, flavor, level in wanted:
        clusters[flavor, level].add(cluster)
    flavors = Flavor.objects.filter(slug__in={flavor for flavor, _ in clusters})
    levels = dict(flavors.filter(topology__isnull=False).values_list("slug", "topology__levels"))
    found: dict[tuple[str, str, str], Room] = {}
    for (flavor, level), places in clusters.items():
        labels = levels.get(flavor, ())
        if level in labels:
            path = labels[: labels.index(level) + 1]
            for cluster, free in _free_in(flavor, path, places):
                most, total = found.get((cluster, flavor, level), Room(0, 0))
                found[cluster, flavor, level] = Room(max(most, free), total + free)
    return found


def _free_in(
    flavor: str, path: Sequence[str], clusters: Collection[str]
) -> Iterator[tuple[str, int]]:
    """Cluster and free GPUs of each domain; nodes that lack a label are in none."""
    values = {f"level_{number}": KeyTextTransform(key, "labels") for number, key in enumerate(path)}
    free = Case(When(gpus__gt=F("used"), then=F("gpus") - F("used")), default=0)
    rows = NodeSight.objects.filter(flavor=flavor, cluster__in=clusters).order_by()
    grouped = rows.values("cluster", **values).annotate(
        free=Sum(free, output_field=BigIntegerField())
    )
    for cluster, *path_values, free_gpus in grouped.values_list("cluster", *values, "free"):
        if all(path_values):
            yield cluster, free_gpus


def largest_domains(flavors: Iterable[Flavor]) -> list[tuple[Flavor, list[tuple[str, int]]]]:
    """Flavors with a topology, each with its levels and the GPUs of the largest domain of each.

    Two queries where a flavor has a topology, else none.
    """
    placed = [flavor for flavor in flavors if flavor.topology_id is not None]
    if not placed:
        return []
    topologies = Topology.objects.in_bulk([flavor.topology_id for flavor in placed])
    nodes = nodes_of(flavor.slug for flavor in placed)
    found = (
        (flavor, largest_in_one(topologies[flavor.topology_id].levels, nodes.get(flavor.slug, ())))
        for flavor in placed
        if flavor.topology_id in topologies
    )
    return [(flavor, levels) for flavor, levels in found if levels]


def largest_in_one(levels: Sequence[str], nodes: Iterable[Node]) -> list[tuple[str, int]]:
    """Level in a word → GPUs of the largest domain of it; nodes are left out. Smallest first."""
    most: dict[str, int] = {}
    for standing in standings(levels, nodes):
        for level, domains in zip(standing.levels, standing.domains, strict=True):
            if level != HOSTNAME and domains:
                gpus = max(each.gpus for each in domains.values())
                most[level] = max(most.get(level, 0), gpus)
    return [(level_word(level), gpus) for level, gpus in reversed(most.items())]


def _standing(cluster: str, levels: tuple[str, ...], nodes: Sequence[Node]) -> FlavorDomains:
    domains: tuple[dict[Path, Domain], ...] = tuple({} for _ in levels)
    outside: list[str] = []
    lacking: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        missing = [level for level in levels if not node.labels.get(level)]
        for level in missing:
            lacking[level].append(node.name)
        if missing:
            outside.append(node.name)
            continue
        path = tuple(node.labels[level] for level in levels)
        for depth, found in enumerate(domains, start=1):
            domain = found.setdefault(path[:depth], Domain(path[:depth]))
            domain.nodes += 1
            domain.gpus += node.gpus
            domain.free += node.free
    findings = [
        *(_missing(level, lacking[level], len(nodes)) for level in levels if level in lacking),
        *_crossing(levels, domains),
    ]
    return FlavorDomains(cluster, levels, domains, tuple(outside), tuple(findings[:MOST_FINDINGS]))


def _missing(level: str, names: Sequence[str], of: int) -> Finding:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    are = "node has" if len(names) == 1 else "nodes have"
    return Finding(
        f"{len(names):,} of {of:,} {are} no label {level}: {', '.join(names[:NAMED])}{more}. "
        "No pod that asks for a topology runs there.",
        f"kubectl label node {names[0]} {level}={level_word(level).upper()}",
    )


def _crossing(levels: Sequence[str], domains: Sequence[Mapping[Path, Domain]]) -> Iterator[Finding]:
    """A value below several others is several domains, which is seldom what was meant."""
    for depth, level in enumerate(levels):
        if not depth or level == HOSTNAME:
            continue
        above: dict[str, list[str]] = defaultdict(list)
        for path in domains[depth]:
            above[path[-1]].append("/".join(path[:-1]))
        upper, lower = level_word(levels[depth - 1]), level_word(level)
        for value, parents in sorted(above.items()):
            if len(parents) > 1:
                listed = ", ".join(sorted(parents)[:NAMED])
                yield Finding(
                    f"The {lower} {value} is in {len(parents)} domains of the level {upper}: "
                    f"{listed}. It counts as {len(parents)}, and no job spans them as one.",
                    f"If it is one {lower}, give its nodes the same label {levels[depth - 1]}.",
                )
