"""Which Kueue each cluster has, how that is known, what it lacks and what an upgrade changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from budgets.models import User
from clusters.documents.kueue_versions import (
    FOLLOWED,
    FORMER,
    Feature,
    Release,
    Support,
    has_setting,
    lacking,
    removed_gates,
    support_of,
)
from clusters.models import Cluster
from clusters.selectors.cluster_detail import StoredPreflight
from clusters.selectors.fleet import health_of, require_platform, visible_clusters


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One cluster.

    Attributes:
        version: Of the controller; empty where it is not known, or where none runs.
        crds: Minor version of the CRDs; empty where it is not known.
        how: By what that is known, or why not, a sentence.
        checked_at: When it was looked at; None for never.
        support: How far the portal goes with it.
        lacks: What it cannot do and concerns its role.
        changes: What an upgrade to :data:`FOLLOWED` would change there, in sentences.
    """

    slug: str
    name: str
    role: str
    mode_label: str
    is_kueue_mode: bool
    version: str
    crds: str
    how: str
    checked_at: datetime | None
    support: Support
    lacks: tuple[Feature, ...]
    changes: tuple[str, ...]


def kueue_versions(user: User) -> list[VersionRow]:
    """Every cluster, manager first. One query, beside those for the person's roles.

    Raises:
        NotAllowed: for people who do not see the platform.
    """
    require_platform(user, "versions of Kueue")
    found = visible_clusters(user).without_secrets().select_related("health")
    return [_row(cluster) for cluster in found]


def _row(cluster: Cluster) -> VersionRow:
    tag = health_of(cluster).kueue_version
    checked = msgspec.convert(cluster.preflight, StoredPreflight)
    is_kueue_mode = cluster.mode == Cluster.Mode.KUEUE
    release = Release.read(tag) if is_kueue_mode else _of_line(checked.kueue_crds)
    lacks = tuple(
        feature
        for feature in (lacking(release) if release else ())
        if (feature.in_crds or is_kueue_mode) and (cluster.is_manager or not feature.on_managers)
    )
    return VersionRow(
        slug=cluster.slug,
        name=cluster.name,
        role=cluster.role,
        mode_label=cluster.get_mode_display(),
        is_kueue_mode=is_kueue_mode,
        version=str(release) if release and is_kueue_mode else "",
        crds=checked.kueue_crds,
        how=_how(checked, tag, is_kueue_mode=is_kueue_mode),
        checked_at=checked.checked_at,
        support=support_of(release),
        lacks=lacks,
        changes=tuple(_changes(release, lacks, cluster.kueue_configuration)),
    )


def _of_line(crds: str) -> Release | None:
    """Where no Kueue runs, its CRDs stand for it."""
    return {FOLLOWED.line: FOLLOWED, FORMER.line: FORMER}.get(crds)


def _how(checked: StoredPreflight, tag: str, *, is_kueue_mode: bool) -> str:
    if checked.checked_at is None:
        return "The preflight of this cluster was not run yet."
    crds = "the published schemas of its CRDs" if checked.kueue_crds else ""
    image = f"the image of kueue-controller-manager ({tag})" if tag and is_kueue_mode else ""
    if image or crds:
        return f"By {' and '.join(filter(None, (image, crds)))}."
    if is_kueue_mode:
        return (
            "Not known: the portal sees no Deployment kueue-controller-manager in kueue-system, "
            "and no published schemas."
        )
    return "Not known: the cluster does not publish the schemas of its CRDs."


def _changes(
    release: Release | None, lacks: tuple[Feature, ...], configuration: Mapping[str, Any]
) -> Iterator[str]:
    if release is None or release >= FOLLOWED:
        return
    for gate in removed_gates(configuration) if not release.is_of(FOLLOWED) else ():
        yield (
            f"Kueue {FOLLOWED.line} does not start while featureGates names {gate}. Take it out "
            "first."
        )
    for feature in lacks:
        is_settled = feature.settled_by and has_setting(configuration, feature.settled_by)
        if feature.since <= FOLLOWED and not is_settled:
            yield feature.upgrade
