"""Rows of the set-up as somebody may list them."""

from __future__ import annotations

from django.db.models import Prefetch, Q, QuerySet

from budgets.models import Capacity, Envelope, Membership, Pool, PoolAmount, PoolShare, User
from budgets.selectors.roles import roles_of, visible_accounts


def visible_memberships(user: User) -> QuerySet[Membership]:
    """Roles that a user may list: all on the platform, those of what they own, and their own."""
    roles = roles_of(user)
    found = Membership.objects.select_related("user", "account", "workspace__account").order_by(
        "user__username", "role", "pk"
    )
    if roles.sees_everything:
        return found
    return found.filter(
        Q(user_id=roles.user_id)
        | Q(account__in=roles.owned_accounts)
        | Q(workspace__account__in=roles.owned_accounts)
        | Q(workspace__in=roles.owned_workspaces)
    )


def visible_capacities(user: User) -> QuerySet[Capacity]:
    """Stated capacities; only for those who see the whole platform."""
    found = Capacity.objects.select_related("flavor").order_by("cluster", "flavor", "valid_from")
    return found if roles_of(user).sees_everything else found.none()


def visible_envelopes(user: User) -> QuerySet[Envelope]:
    """Envelopes of the accounts in which a user sees something."""
    found = Envelope.objects.select_related("account", "flavor").order_by(
        "account__slug", "flavor__position", "flavor__slug"
    )
    if roles_of(user).sees_everything:
        return found
    accounts = visible_accounts(user, include_archived=True).order_by().values("pk")
    return found.filter(account__in=accounts)


def visible_pools(user: User) -> QuerySet[Pool]:
    """Pools that a user's accounts have or draw on; shares of other accounts are left out."""
    everything = roles_of(user).sees_everything
    accounts = visible_accounts(user, include_archived=True).order_by().values("pk")
    shares = PoolShare.objects.select_related("account").order_by("account__slug")
    found = Pool.objects.filter(archived_at__isnull=True).select_related("account")
    if not everything:
        shares = shares.filter(account__in=accounts)
        found = found.filter(Q(account__in=accounts) | Q(shares__account__in=accounts)).distinct()
    amounts = PoolAmount.objects.select_related("flavor").order_by("flavor", "-valid_from", "-pk")
    return found.prefetch_related(
        Prefetch("shares", shares), Prefetch("amounts", amounts)
    ).order_by("slug")
