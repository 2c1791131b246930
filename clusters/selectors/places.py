"""A registered cluster in the words of plan and manifests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings

from budgets.models import Flavor
from budgets.plan import ClusterPlace
from budgets.selectors.fleet.places import flavor_places
from clusters.documents.resources import Resource
from clusters.kueue.configuration import Configuration
from clusters.kueue.multikueue.dispatchers import dispatcher_named
from clusters.kueue.multikueue.settings import DispatchSettings
from clusters.manifests.rbac import Post
from clusters.manifests.translate import Site
from clusters.manifests.wish import PolicyWish, account_user
from clusters.models import Cluster
from clusters.selectors.cordons import cordons_now


def active_workers() -> tuple[str, ...]:
    """Slugs of the workers that the manager dispatches to, in their order. One query."""
    return tuple(Cluster.objects.active().workers().values_list("slug", flat=True))


@dataclass(frozen=True, slots=True)
class Homes:
    """Which flavor stands in which fleet.

    Attributes:
        fleets: Cluster slug → its fleet: its own slug where jobs run on the cluster itself, empty
            for the fleet that the manager dispatches to.
        flavors: Flavor slug → fleet; none of one that has no GPUs anywhere.
        own_manager: Slug of a manager that has a queue of its own; empty without one.
        first: The fleet that goes first; None where there is one fleet at most.
    """

    fleets: Mapping[str, str] = field(default_factory=dict)
    flavors: Mapping[str, str] = field(default_factory=dict)
    own_manager: str = ""
    first: str | None = None

    def elsewhere(self, slug: str) -> frozenset[str]:
        """Flavors whose GPUs are not in the fleet of a cluster, nor where it dispatches to."""
        here = self._within_reach(slug)
        return frozenset(flavor for flavor, home in self.flavors.items() if home not in here)

    def concern(self, slug: str, flavors: Collection[str]) -> bool:
        """Whether a cluster carries queues of who is promised these flavors.

        Where one of them may be had, on it or through it; without flavors, in the first fleet.
        """
        if self.first is None:
            return True
        if not flavors:
            return self.fleets.get(slug) == self.first
        here = self._within_reach(slug)
        return any(self.flavors.get(flavor) in (None, *here) for flavor in flavors)

    def _within_reach(self, slug: str) -> set[str]:
        """The fleet of a cluster, and that which it dispatches to."""
        return {self.fleets.get(slug, ""), *(("",) if slug == self.own_manager else ())}

    def standing_on(self, slug: str) -> frozenset[str]:
        """Flavors whose GPUs a cluster has for itself."""
        return frozenset(flavor for flavor, home in self.flavors.items() if home == slug)


def homes_of(clusters: Iterable[Cluster]) -> Homes:
    """Where flavors stand.

    The manager with its workers is one fleet, each single cluster another, and so is what a manager
    runs itself. A flavor stands in one of them: where it has GPUs; of several where the manager
    itself runs jobs, for they were there first, then the manager's fleet, then the first in order.
    One query where there are several fleets, else none.

    Args:
        clusters: The active ones, in their order.
    """
    known = list(clusters)
    own = next((row.slug for row in known if row.is_manager and row.own_queue), "")
    fleets = {row.slug: row.slug if row.is_single or row.slug == own else "" for row in known}
    order = sorted(dict.fromkeys(fleets.values()), key=lambda fleet: (fleet != own, bool(fleet)))
    homes, is_divided = {}, len(order) > 1
    if own or is_divided:
        for flavor, places in flavor_places().items():
            there = {fleets[place] for place in places if place in fleets}
            if there:
                homes[flavor] = next(fleet for fleet in order if fleet in there)
    return Homes(fleets, homes, own, order[0] if is_divided else None)


def flavors_elsewhere(clusters: Iterable[Cluster]) -> Mapping[str, frozenset[str]]:
    """Cluster slug → flavors whose GPUs are not in its fleet, see :func:`homes_of`."""
    homes = homes_of(clusters)
    return {
        slug: frozenset(flavor for flavor, home in homes.flavors.items() if home != fleet)
        for slug, fleet in homes.fleets.items()
        if homes.flavors
    }


def submitted_on(flavors: Iterable[str]) -> list[Cluster]:
    """Clusters where jobs of a budget of these flavors are submitted. Two queries at most.

    Of several fleets those where one of the flavors stands; all of them for no flavor.
    """
    clusters = list(Cluster.objects.active().only("slug", "name", "role", "own_queue"))
    homes, wanted = homes_of(clusters), set(flavors)
    return [
        row
        for row in clusters
        if row.takes_jobs and (not wanted or homes.concern(row.slug, wanted))
    ]


def place_of(
    slug: str,
    *,
    is_manager: bool,
    is_single: bool = False,
    workers: Iterable[str] = (),
    elsewhere: Iterable[str] = (),
) -> ClusterPlace:
    """The plan's view of a cluster; host resources that the admin added are covered, too.

    Windows of maintenance that are in force now are part of it. One query.
    """
    dispatched_to = tuple(workers) if is_manager else ()
    cordons = cordons_now()
    place = ClusterPlace(
        name=slug,
        is_manager=is_manager,
        workers=dispatched_to,
        stop_policy=cordons.on_manager(dispatched_to) if is_manager else cordons.on(slug),
        cordoned_flavors=(
            cordons.flavors_on_manager(dispatched_to) if is_manager else cordons.flavors_on(slug)
        ),
        is_single=is_single,
        elsewhere=frozenset(elsewhere),
    )
    extra: tuple[str, ...] = tuple(getattr(settings, "PORTAL_HOST_RESOURCES", ()))
    covered = tuple(dict.fromkeys(place.host_resources + extra))
    return replace(place, host_resources=covered)


def site_of(*, is_manager: bool, generation: int) -> Site:
    """How documents of a cluster are marked."""
    return Site(
        installation=settings.PORTAL_INSTALLATION,
        generation=generation,
        has_multikueue=is_manager,
        checks_spend=settings.PORTAL_SPEND_CHECK == "wait",
    )


def post_of(cluster: Cluster) -> Post:
    """A cluster's place in the fleet, for its rights. Two queries at most."""
    workers: tuple[str, ...] = ()
    if cluster.is_manager:
        known = Cluster.objects.registered().workers()
        workers = tuple(known.values_list("slug", flat=True))
    dispatch, guard = _settings_of(cluster) if cluster.is_single else _manager_settings()
    is_beside = cluster.is_manager and cluster.mode == Cluster.Mode.KUEUE
    configured = configuration_or_defaults(cluster.kueue_configuration)
    return Post(
        is_manager=cluster.is_manager,
        is_portal_mode=cluster.mode == Cluster.Mode.PORTAL,
        installation=settings.PORTAL_INSTALLATION,
        workers=workers,
        lease_namespace=settings.PORTAL_LEASE_NAMESPACE,
        kinds=dispatch.kinds,
        nominates=is_beside and dispatch.in_force.is_ours,
        cures=is_beside and guard == Cluster.Guard.CURE,
        has_profiles=bool(settings.PORTAL_ACCESS_PROVIDERS),
        is_single=cluster.is_single,
        has_own_queue=bool(cluster.own_queue),
        counts_claims=configured.counts_claims,
        counts_named_devices=configured.counts_named_devices,
    )


def nominates_beside(cluster: Cluster) -> bool:
    """Whether the Kueue of a manager leaves nominations to the portal."""
    section = (cluster.kueue_configuration or {}).get("multiKueue") or {}
    is_kueues = cluster.is_manager and cluster.mode == Cluster.Mode.KUEUE
    return is_kueues and dispatcher_named(str(section.get("dispatcherName"))).is_ours


def submitted_kinds() -> tuple[Resource, ...]:
    """Kinds of jobs besides batch/v1 Job that are submitted on some cluster. One query."""
    rows = Cluster.objects.registered().taking_jobs().only("kueue_configuration", "guard")
    return tuple(dict.fromkeys(kind for row in rows for kind in _settings_of(row)[0].kinds))


def _manager_settings() -> tuple[DispatchSettings, str]:
    """How the manager dispatches, and what its guard may do. One query."""
    found = Cluster.objects.registered().filter(role=Cluster.Role.MANAGER)
    manager = found.only("kueue_configuration", "guard").first()
    return (DispatchSettings(), "") if manager is None else _settings_of(manager)


def _settings_of(cluster: Cluster) -> tuple[DispatchSettings, str]:
    """By the Configuration that is stored for a cluster."""
    try:
        return DispatchSettings.from_document(cluster.kueue_configuration), cluster.guard
    except ValueError:
        return DispatchSettings(), cluster.guard  # what cannot be read is told where it is stored


def configuration_or_defaults(document: Mapping[str, Any] | None) -> Configuration:
    """As it is stored; the defaults where that cannot be read, which is told where it is stored."""
    try:
        return Configuration.from_document(document)
    except (ValueError, TypeError, AttributeError, KeyError):
        return Configuration()


def policy_wish(cluster: Cluster) -> PolicyWish:
    """What the admission policies of a cluster have to know. Two queries at most."""
    own = {"portal_user": cluster.context} if cluster.is_own else {}
    found = Flavor.objects.filter(archived_at__isnull=True)
    resources = tuple(found.order_by("resource_name").values_list("resource_name", flat=True))
    return PolicyWish(
        post=post_of(cluster),
        allows_local_jobs=cluster.allows_local_jobs,
        gpu_resources=tuple(dict.fromkeys(resources)) or ("nvidia.com/gpu",),
        operators=tuple(map(account_user, cluster.operators)),
        denies_elsewhere=cluster.gpu_namespaces is not None,
        exempt_namespaces=tuple(cluster.gpu_namespaces or ()),
        **own,
    )
