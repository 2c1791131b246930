"""Set-up of topologies: out of the labels that nodes have, checked, and given to flavors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import Flavor, Topology, User
from clusters import selectors as seen
from clusters.documents.labels import HOSTNAME
from clusters.selectors import racks
from portal.web import setup_forms
from portal.web.setup_pages import Row, Section, item_page, item_row, list_page, setup_page
from portal.web.tags import gpus, named


@setup_page
def topologies(request: HttpRequest, user: User) -> HttpResponseBase:
    """Topologies: list, and a new one of the labels that nodes have."""
    nodes = seen.nodes_of(row.slug for row in selectors.visible_flavors(user))
    labels = seen.labels_seen(node for found in nodes.values() for node in found)
    keys = {
        row.key: (f"{row.key}: {row.values:,} values on {row.nodes:,} nodes", row.key)
        for row in labels
    }
    return list_page(
        request,
        what="topology",
        title="Topologies",
        headline="Blocks and racks: jobs may ask to run within one.",
        columns=("Name", "Slug", "Levels"),
        rows=[
            item_row("setup_topology", row, row.slug, ", ".join(row.levels))
            for row in selectors.visible_topologies(user)
        ],
        empty="There is no topology yet."
        if labels
        else "No node with GPUs is known yet. Register a cluster; its nodes appear within seconds.",
        form=setup_forms.TopologyForm,
        arguments={"offered": dict.fromkeys(("first", "second", "third"), keys)},
        do=lambda typed: promises.create_topology(user, **_levels_of(typed)),
        said="Topology {name} is added. Look at its domains, then give it to a flavor.",
        to="/setup/topologies/{slug}/",
    )


def _levels_of(typed: dict[str, Any]) -> dict[str, Any]:
    """Levels out of the fields, in their order."""
    levels = [typed[name] for name in ("first", "second", "third") if typed[name]]
    if typed["by_host"]:
        levels.append(HOSTNAME)
    return {"slug": typed["slug"], "name": typed["name"], "levels": levels}


@setup_page
def topology(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """One topology: what its labels give on each flavor's nodes, who has it, the way out."""
    found = selectors.visible_topologies(user).get(slug=slug)
    flavors = {row.slug: row for row in selectors.visible_flavors(user)}
    nodes = seen.nodes_of(flavors)
    standings = [
        (flavors[key], standing)
        for key, rows in sorted(nodes.items())
        for standing in seen.standings(found.levels, rows)
    ]
    return item_page(
        request,
        found,
        what="topology",
        headline=f"Topology {slug}",
        sections=[*_labels(found, standings), _flavors(user, found, flavors)],
        above=("Topologies", "setup_topologies"),
        farewell="It is removed from the clusters. No flavor may have it.",
        archive=lambda reason: promises.archive_topology(user, topology=found, reason=reason),
    )


def _labels(
    found: Topology, standings: Sequence[tuple[Flavor, racks.FlavorDomains]]
) -> list[Section]:
    """What the labels of each flavor's nodes give, and what is wrong with them."""
    clusters = seen.cluster_names() if standings else {}
    words = [seen.level_word(level) for level in found.levels]
    return [
        Section(
            key="domains",
            title="Domains",
            text=f"Levels: {', '.join(found.levels)}. They never change.",
            columns=("Flavor", "Cluster", *words, f"Largest {words[-1]}", "Nodes outside"),
            numbers=(*words, f"Largest {words[-1]}", "Nodes outside"),
            rows=[
                Row(
                    flavor.name,
                    named(each.cluster, clusters),
                    *(len(domains) for domains in each.domains),
                    gpus(max((row.gpus for row in each.domains[-1].values()), default=0)),
                    len(each.outside),
                )
                for flavor, each in standings
            ],
            empty="No node with GPUs is known yet.",
        ),
        Section(
            key="findings",
            title="What is wrong with the labels",
            columns=("What", "Flavor", "Cluster", "To do"),
            rows=[
                Row(finding.text, flavor.name, named(each.cluster, clusters), finding.advice)
                for flavor, each in standings
                if flavor.topology_id in (None, found.pk)
                for finding in each.findings
            ],
            empty="Nothing. Every node has every label, and every domain lies within one domain "
            "above.",
        ),
    ]


def _flavors(user: User, found: Topology, flavors: Mapping[str, Flavor]) -> Section:
    """Which flavors have the topology, and the form that gives it to another."""
    free = {key: (row.name, row) for key, row in flavors.items() if row.topology_id is None}
    return Section(
        key="give",
        title="Flavors",
        text="This is for good: Kueue never lets the topology, node labels or tolerations of "
        "such a flavor change. From then on only jobs that ask for a topology can use "
        "it, unless every flavor of their budget has one. CPU and memory count in the "
        "flavor of the GPUs.",
        columns=("Flavor", "Slug"),
        rows=[
            Row(row.name, row.slug, url=reverse("setup_flavor", args=[row.slug]))
            for row in flavors.values()
            if row.topology_id == found.pk
        ],
        empty="No flavor has it yet.",
        form=setup_forms.FlavorTopologyForm,
        arguments={"offered": {"flavor": free}},
        do=lambda typed: promises.give_topology(user, topology=found, **typed),
        button="Give it to a flavor",
        said="The clusters follow: {flavor} has the topology.",
    )
