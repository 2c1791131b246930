"""The documents that a cluster carries for promises, whatever its role is.

A manager that was a single cluster carries two queues of each workspace: its own, for flavors whose
GPUs it has, and that of jobs which go to a worker, for the fleet's. A flavor belongs to one of the
two, so nothing counts twice. Kueue takes MultiKueue's check for whole queues alone, which is why
one queue cannot do both (Kueue, ClusterQueue condition MultiKueueAdmissionCheckAppliedPerFlavor).

A workspace none of whose flavors stands in a cluster's fleet has no queue there, and one that is
promised nothing has queues in the first fleet alone. One that has a queue already keeps it, with
nothing: GPUs that move elsewhere must not drain the jobs they ran.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Protocol

from budgets.plan import (
    ClusterPlace,
    CohortPlan,
    Promises,
    QuotaPlan,
    StopPolicy,
    WorkspacePromise,
    plan_quota,
    strongest_stop,
)
from clusters.manifests.names import Document
from clusters.manifests.translate import Site, render
from clusters.models import Cluster
from clusters.selectors.places import Homes, place_of, site_of


class Carrier(Protocol):
    """What of a cluster decides what it carries: of its row, or of the facts of a shift."""

    @property
    def slug(self) -> str:
        """Its name."""

    @property
    def is_manager(self) -> bool:
        """Whether it dispatches to workers."""

    @property
    def is_single(self) -> bool:
        """Whether it is a cluster of its own."""

    @property
    def own_queue(self) -> str:
        """What a manager that was one does with its own queue."""

    @property
    def generation(self) -> int:
        """Of its row."""


@dataclass(frozen=True, slots=True)
class ClusterPlaces:
    """A cluster as documents are made for it.

    Attributes:
        place: For everything, or where jobs run here and on workers, for what is dispatched.
        homes: Where flavors stand.
        alone: For what a manager runs itself; None on every other cluster.
        own: Flavors whose GPUs such a manager has for itself.
    """

    site: Site
    place: ClusterPlace
    homes: Homes
    alone: ClusterPlace | None = None
    own: frozenset[str] = frozenset()

    def documents(self, promises: Promises, *, there: Collection[str] = ()) -> tuple[Document, ...]:
        """Everything that the cluster carries for promises, in the order of application.

        Args:
            promises: Everything in force, or a part.
            there: Namespaces that have a queue on the cluster.
        """
        promises = replace(
            promises,
            workspaces=tuple(
                row for row in promises.workspaces if row.namespace in there or self._concerns(row)
            ),
        )
        if self.alone is None:
            return render(plan_quota(promises, self.place), site=self.site)
        others = frozenset(flavor.name for flavor in promises.flavors) - self.own
        here = plan_quota(promises, replace(self.alone, elsewhere=others))
        away = replace(self.place, elsewhere=self.place.elsewhere | self.own)
        dispatched = plan_quota(promises, away)
        return render(_joined(here, dispatched, self.own), site=self.site, dispatched=dispatched)

    def _concerns(self, workspace: WorkspacePromise) -> bool:
        return self.homes.concern(self.place.name, [line.flavor for line in workspace.lines])


def standing_of(cluster: Carrier, *, workers: Collection[str], homes: Homes) -> ClusterPlaces:
    """How an active cluster stands. One query; two for a manager with a queue of its own.

    Args:
        cluster: Its row, or the facts of a shift.
        workers: Slugs of the workers that the manager dispatches to, in order.
        homes: Of the active clusters.
    """
    site = site_of(is_manager=cluster.is_manager, generation=cluster.generation)
    place = place_of(
        cluster.slug,
        is_manager=cluster.is_manager,
        is_single=cluster.is_single,
        workers=workers,
        elsewhere=homes.elsewhere(cluster.slug),
    )
    site = replace(site, has_fleet_queue=bool(homes.own_manager) and not cluster.is_single)
    if not (cluster.is_manager and cluster.own_queue):
        return ClusterPlaces(site, place, homes)
    alone = place_of(cluster.slug, is_manager=False, is_single=True)
    if cluster.own_queue == Cluster.OwnQueue.HELD:
        alone = replace(alone, stop_policy=strongest_stop(alone.stop_policy, StopPolicy.HOLD))
    return ClusterPlaces(site, place, homes, alone, homes.standing_on(cluster.slug))


def _joined(alone: QuotaPlan, dispatched: QuotaPlan, own: frozenset[str]) -> QuotaPlan:
    """The plan of what runs here, its Cohorts and flavors shared with what is dispatched."""

    def shared(mine: CohortPlan, theirs: CohortPlan) -> CohortPlan:
        return replace(
            mine,
            quotas={
                flavor: quota if flavor in own else theirs.quotas[flavor]
                for flavor, quota in mine.quotas.items()
            },
        )

    return replace(
        alone,
        cohorts=tuple(map(shared, alone.cohorts, dispatched.cohorts)),
        flavors=tuple(
            mine if mine.name in own else theirs
            for mine, theirs in zip(alone.flavors, dispatched.flavors, strict=True)
        ),
    )
