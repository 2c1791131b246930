"""What a draft would change on each cluster, in words and as the manifests to come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from budgets.models import User
from budgets.plan import Promises
from budgets.selectors import promises_in_force, roles_of
from clusters.manifests.diff import FieldChange, changes
from clusters.manifests.names import Document, Key, key_of
from clusters.models import Cluster, ObjectState
from clusters.selectors.carried import ClusterPlaces, standing_of
from clusters.selectors.places import Homes, homes_of

_NUMBERS = {
    "nominalQuota": "committed",
    "borrowingLimit": "may borrow",
    "lendingLimit": "lendable",
}


@dataclass(frozen=True, slots=True)
class ManifestChange:
    """One object that changes: what, in words, and its document."""

    kind: str
    name: str
    words: str
    yaml: str


@dataclass(frozen=True, slots=True)
class ClusterChanges:
    """What changes on one cluster."""

    cluster: str
    changes: tuple[ManifestChange, ...]


def preview_manifests(
    user: User, promises_before: Promises, promises_after: Promises
) -> list[ClusterChanges]:
    """Render both sides for every active cluster and name the differences.

    Where a draft would stand on the workers depends on what others have there: who does not see
    everything is shown where jobs are submitted: there the whole lines are.

    Args:
        user: The viewer.
        promises_before: What stands.
        promises_after: With the draft; only what differs is shown, so only its own objects are.

    Returns:
        Clusters that change, the manager first. Three queries.
    """
    shown = Cluster.objects.active()
    if not roles_of(user).sees_everything:
        shown = shown.taking_jobs()
    slugs = set(shown.values_list("slug", flat=True))
    return [
        ClusterChanges(slug, differing)
        for slug, before, after in _both_sides(promises_before, promises_after)
        if slug in slugs and (differing := tuple(_differences(before, after)))
    ]


def changed_quota(promises_before: Promises, promises_after: Promises) -> dict[str, list[Document]]:
    """Cluster slug → ClusterQueues and Cohorts that one side has otherwise than the other.

    Every active cluster that differs is there, the manager first; documents are those of the
    second side. Two queries.
    """
    found: dict[str, list[Document]] = {}
    for slug, before, after in _both_sides(promises_before, promises_after):
        changed = [
            document
            for key, document in after.items()
            if key.kind in ("Cohort", "ClusterQueue") and before.get(key) != document
        ]
        if changed:
            found[slug] = changed
    return found


def _both_sides(
    promises_before: Promises, promises_after: Promises
) -> Iterator[tuple[str, dict[Key, Document], dict[Key, Document]]]:
    """Slug of every active cluster, manager first, and what it carries on each side.

    Three queries at most, and one for each cluster.
    """
    clusters = list(
        Cluster.objects.active().only("slug", "role", "own_queue", "mode", "generation")
    )
    homes = homes_of(clusters)
    there = _queues(promises_before, homes)
    for slug, standing in _standings(clusters, homes):
        before, after = (
            standing.documents(promises, there=there[slug])
            for promises in (promises_before, promises_after)
        )
        yield slug, _by_key(before), _by_key(after)


def preview_role(cluster: Cluster, changed: Cluster) -> list[ClusterChanges]:
    """What changes on each cluster when one of them gets another role; for admins.

    Args:
        cluster: As it is.
        changed: The same, as it would be; it is not stored.

    Returns:
        Clusters that change, in their order. Eleven queries at most, and two for each cluster.
    """
    clusters = list(Cluster.objects.active())
    as_changed = [changed if row.pk == cluster.pk else row for row in clusters]
    promises = promises_in_force()
    homes = [homes_of(rows) for rows in (clusters, as_changed)]
    there = _queues(promises, *homes)
    sides = [
        {
            slug: _by_key(standing.documents(promises, there=there[slug]))
            for slug, standing in _standings(rows, found)
        }
        for rows, found in zip((clusters, as_changed), homes, strict=True)
    ]
    return [
        ClusterChanges(slug, differing)
        for slug, before in sides[0].items()
        if (differing := tuple(_differences(before, sides[1][slug])))
    ]


def _queues(promises: Promises, *homes: Homes) -> Mapping[str, Collection[str]]:
    """Cluster slug → namespaces of workspaces that have a queue there.

    One query where there are several fleets, else none.
    """
    there: defaultdict[str, set[str]] = defaultdict(set)
    if all(found.first is None for found in homes):
        return there
    namespaces = [row.namespace for row in promises.workspaces]
    rows = ObjectState.objects.filter(kind="ClusterQueue", generation__gt=0, name__in=namespaces)
    for slug, name in rows.values_list("cluster__slug", "name"):
        there[slug].add(name)
    return there


def _standings(clusters: Sequence[Cluster], homes: Homes) -> Iterator[tuple[str, ClusterPlaces]]:
    """Slug of each active cluster and how it stands; queries as of :func:`standing_of`."""
    workers = [row.slug for row in clusters if row.is_worker]
    for row in clusters:
        yield row.slug, standing_of(row, workers=workers, homes=homes)


def _by_key(documents: Iterable[Document]) -> dict[Key, Document]:
    return {key_of(document): document for document in documents}


def _differences(
    before: Mapping[Key, Document], after: Mapping[Key, Document]
) -> Iterator[ManifestChange]:
    for key, document in after.items():
        old = before.get(key)
        if old == document:
            continue
        told = "is made" if old is None else "; ".join(map(_sentence, changes(document, old)))
        text = yaml.safe_dump(document, sort_keys=False)
        yield ManifestChange(key.kind, key.path, told or "changes", text)
    for key in before.keys() - after.keys():
        yield ManifestChange(key.kind, key.path, "is drained and goes", "")


def _sentence(change: FieldChange) -> str:
    leaf = change.steps[-1] if change.steps else ""
    if leaf in _NUMBERS:
        flavors = [step.strip("[]") for step in change.steps if step.startswith("[")]
        flavor = flavors[1] if len(flavors) > 1 else ""
        return f"{flavor} {_NUMBERS[leaf]} {_short(change.found)} → {_short(change.wanted)}".strip()
    return f"{change.path}: {_short(change.found)} → {_short(change.wanted)}"


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        names = [
            item.get("name") or _covered(item) if isinstance(item, dict) else str(item)
            for item in value
        ]
        return ", ".join(names) or "nothing"
    return str(value)


def _covered(item: Mapping[str, Any]) -> str:
    """A resource group, named by its flavors."""
    return ", ".join(str(flavor.get("name")) for flavor in item.get("flavors") or []) or "…"
