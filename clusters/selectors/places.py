"""A registered cluster in the words of plan and manifests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from django.conf import settings

from budgets.models import Flavor
from budgets.plan import ClusterPlace
from clusters.documents.resources import Resource
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


def place_of(slug: str, *, is_manager: bool, workers: Iterable[str] = ()) -> ClusterPlace:
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
    dispatch, guard = _manager_settings()
    is_beside = cluster.is_manager and cluster.mode == Cluster.Mode.KUEUE
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
    )


def nominates_beside(cluster: Cluster) -> bool:
    """Whether the Kueue of a manager leaves nominations to the portal."""
    section = (cluster.kueue_configuration or {}).get("multiKueue") or {}
    is_kueues = cluster.is_manager and cluster.mode == Cluster.Mode.KUEUE
    return is_kueues and dispatcher_named(str(section.get("dispatcherName"))).is_ours


def dispatched_kinds() -> tuple[Resource, ...]:
    """Kinds of jobs besides batch/v1 Job that the manager's Configuration names. One query."""
    return _manager_settings()[0].kinds


def _manager_settings() -> tuple[DispatchSettings, str]:
    """How the manager dispatches, and what its guard may do. One query."""
    found = Cluster.objects.registered().filter(role=Cluster.Role.MANAGER)
    stored, guard = found.values_list("kueue_configuration", "guard").first() or ({}, "")
    try:
        return DispatchSettings.from_document(stored), guard
    except ValueError:
        return DispatchSettings(), guard  # what cannot be read is told where it is stored


def policy_wish(cluster: Cluster) -> PolicyWish:
    """What the admission policies of a cluster have to know. Two queries at most."""
    found = Flavor.objects.filter(archived_at__isnull=True)
    resources = tuple(found.order_by("resource_name").values_list("resource_name", flat=True))
    return PolicyWish(
        post=post_of(cluster),
        allows_local_jobs=cluster.allows_local_jobs,
        gpu_resources=tuple(dict.fromkeys(resources)) or ("nvidia.com/gpu",),
        operators=tuple(map(account_user, cluster.operators)),
        denies_elsewhere=cluster.gpu_namespaces is not None,
        exempt_namespaces=tuple(cluster.gpu_namespaces or ()),
    )
