"""The cluster that the portal runs in: whether it can be registered, and doing so once."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Case, When

from budgets.errors import Rejected
from budgets.models import User
from budgets.services.guards import require_admin
from clusters.credentials import own_credential
from clusters.errors import CredentialUnusable
from clusters.kube.own_account import is_in_a_cluster
from clusters.models import Cluster
from clusters.models.cluster import ClusterQuerySet
from clusters.services.registration import REGISTERED_ALREADY, register_cluster


@dataclass(frozen=True, slots=True)
class OwnOffer:
    """What registering the portal's own cluster would go by.

    Attributes:
        problem: Why it is not possible now, with the way out; empty where it is.
    """

    server: str = ""
    user: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class OwnRegistration:
    """What became of the wish to have the portal's own cluster registered.

    Attributes:
        cluster: The new one; None where nothing was to do.
        why_not: Why there was nothing to do, for people.
    """

    cluster: Cluster | None = None
    why_not: str = ""


def own_cluster_offer(actor: User | None) -> OwnOffer | None:
    """Whether this server runs in a cluster that is not registered; None where it does not, or is.

    Raises:
        NotAllowed: for everybody but an admin.
    """
    require_admin(actor)
    if not is_in_a_cluster() or _own().exclude(state=Cluster.State.REMOVED).exists():
        return None
    try:
        facts = own_credential().facts
    except CredentialUnusable as error:
        return OwnOffer(problem=error.message)
    return OwnOffer(server=facts.server, user=facts.context)


def ensure_own_cluster(
    actor: User | None, *, slug: str, name: str, role: str, mode: str
) -> OwnRegistration:
    """Register the cluster that the portal runs in, unless somebody did, or let it go before.

    Args:
        actor: An admin, or None for the portal itself.
        slug: As for :func:`register_cluster`.
        name: Likewise.
        role: Likewise.
        mode: Likewise.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: every fault at once; nothing was stored.
    """
    require_admin(actor)
    known = _own().first()
    if known is not None and known.state == Cluster.State.REMOVED:
        return OwnRegistration(
            why_not=f"It was registered as {known.slug}, and an admin de-registered it. If it is "
            "to come back, register it on the portal's pages."
        )
    if known is not None:
        return OwnRegistration(why_not=f"It is registered already, as {known.slug}.")
    try:
        made = register_cluster(actor, slug=slug, name=name, role=role, mode=mode, own_account=True)
    except Rejected as rejected:
        codes = {fault.code for fault in rejected.faults}
        if codes != {REGISTERED_ALREADY}:
            raise
        return OwnRegistration(why_not=rejected.faults[0].message)
    return OwnRegistration(made)


def _own() -> ClusterQuerySet:
    """Those that ever were the portal's own; one that is registered comes first."""
    found = Cluster.objects.without_secrets().filter(user_kind=Cluster.OWN_ACCOUNT)
    return found.order_by(Case(When(state=Cluster.State.REMOVED, then=1), default=0), "-pk")
