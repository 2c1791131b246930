"""Who may see and change what. Invisible means the same as absent: ``DoesNotExist``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from django.db.models import Prefetch, Q, QuerySet

from budgets.models import (
    Account,
    Capacity,
    Envelope,
    Flavor,
    Membership,
    Pool,
    PoolAmount,
    PoolShare,
    Role,
    Topology,
    User,
    Workspace,
)

ACCOUNT, WORKSPACE = 0, 1
# User key → roles, while one request is answered that changes nothing; None outside of one.
_remembered: ContextVar[dict[int, RoleSet] | None] = ContextVar("remembered_roles", default=None)


@dataclass(frozen=True, slots=True)
class RoleSet:
    """All roles of one user; sets hold primary keys."""

    user_id: int | None
    is_admin: bool = False
    is_finance: bool = False
    is_auditor: bool = False
    owned_accounts: frozenset[int] = frozenset()
    viewed_accounts: frozenset[int] = frozenset()
    owned_workspaces: frozenset[int] = frozenset()
    viewed_workspaces: frozenset[int] = frozenset()

    @property
    def sees_everything(self) -> bool:
        """Admin, finance and auditor see the whole platform."""
        return self.is_admin or self.is_finance or self.is_auditor

    @property
    def accounts(self) -> frozenset[int]:
        """Accounts in which there is a role: they and all of their workspaces are visible."""
        return self.owned_accounts | self.viewed_accounts

    @property
    def workspaces(self) -> frozenset[int]:
        """Workspaces in which there is a role of their own."""
        return self.owned_workspaces | self.viewed_workspaces

    def within(self, account: str = "account", workspace: str = "workspace") -> Q:
        """Rows of these accounts and workspaces; of somebody who does not see everything.

        Args:
            account: What leads from a row to its account.
            workspace: What leads from it to a workspace.
        """
        return Q(**{f"{account}__in": self.accounts}) | Q(**{f"{workspace}__in": self.workspaces})

    def sees_account(self, account_id: int) -> bool:
        """Whether the account and all of its workspaces are visible."""
        return self.sees_everything or account_id in self.accounts

    def sees_workspace(self, workspace_id: int, account_id: int) -> bool:
        """Whether a workspace is visible of which only the keys were read."""
        return self.sees_account(account_id) or workspace_id in self.workspaces

    def may_edit(self, workspace: Workspace) -> bool:
        """Whether this person may change the workspace's budget, within the envelope or not."""
        return (
            self.is_admin
            or workspace.account_id in self.owned_accounts
            or workspace.pk in self.owned_workspaces
        )


@contextmanager
def remembered_roles() -> Iterator[None]:
    """Within it the roles of a user are asked for once; for requests that change nothing."""
    token = _remembered.set({})
    try:
        yield
    finally:
        _remembered.reset(token)


def roles_of(user: User | None) -> RoleSet:
    """Collect the roles of a user; none for the anonymous and the deactivated.

    One query; none for a user that was asked for before within :func:`remembered_roles`.
    """
    if user is None or not user.is_authenticated or not user.is_active:
        return RoleSet(user_id=None)
    known = _remembered.get()
    if known is None:
        return _read_roles(user)
    if user.pk not in known:
        known[user.pk] = _read_roles(user)
    return known[user.pk]


def _read_roles(user: User) -> RoleSet:
    rows = list(
        Membership.objects.filter(user=user).values_list("role", "account_id", "workspace_id")
    )

    def scope(role: Role, column: int) -> frozenset[int]:
        keys = ((row[1], row[2])[column] for row in rows if row[0] == role)
        return frozenset(key for key in keys if key is not None)

    platform = {row[0] for row in rows if row[1] is None and row[2] is None}
    return RoleSet(
        user_id=user.pk,
        is_admin=user.is_superuser or Role.ADMIN in platform,
        is_finance=Role.FINANCE in platform,
        is_auditor=Role.AUDITOR in platform,
        owned_accounts=scope(Role.OWNER, ACCOUNT),
        viewed_accounts=scope(Role.VIEWER, ACCOUNT),
        owned_workspaces=scope(Role.OWNER, WORKSPACE),
        viewed_workspaces=scope(Role.VIEWER, WORKSPACE),
    )


def visible_workspaces(user: User, *, include_archived: bool = False) -> QuerySet[Workspace]:
    """Workspaces that a user may see, with account, home flavor and budget joined."""
    return workspaces_of(roles_of(user), include_archived=include_archived)


def workspace_names(user: User) -> dict[str, str]:
    """Namespace → name of the visible workspaces, archived ones too. One query."""
    found = visible_workspaces(user, include_archived=True)
    return told_apart(found.values_list("namespace", "name", "account__name"))


def told_apart(rows: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Namespace → name, with the account behind it where two have it: ``Research (Acme)``.

    Args:
        rows: Namespace, name, and name of the account.
    """
    known = list(rows)
    times = Counter(name for _, name, _ in known)
    return {
        namespace: name if times[name] == 1 else f"{name} ({account})"
        for namespace, name, account in known
    }


def workspaces_of(roles: RoleSet, *, include_archived: bool = True) -> QuerySet[Workspace]:
    """The same of roles that were asked for already."""
    found = Workspace.objects.select_related(
        "account", "home_flavor", "budget", "budget__in_force", "budget__spend_effect"
    ).order_by("namespace")
    if not include_archived:
        found = found.filter(archived_at__isnull=True)
    return found if roles.sees_everything else found.filter(roles.within(workspace="pk"))


def workspace_for(user: User, namespace: str) -> Workspace:
    """One visible workspace by its namespace, archived ones too.

    Raises:
        Workspace.DoesNotExist: It is not there, or not for this user.
    """
    return visible_workspaces(user, include_archived=True).get(namespace=namespace)


def visible_accounts(user: User, *, include_archived: bool = False) -> QuerySet[Account]:
    """Accounts that a user sees as a whole or in which they see a workspace."""
    roles = roles_of(user)
    found = Account.objects.order_by("slug")
    if not include_archived:
        found = found.filter(archived_at__isnull=True)
    if roles.sees_everything:
        return found
    return found.filter(roles.within("pk", "workspaces")).distinct()


def account_for(user: User, slug: str) -> Account:
    """One visible account.

    Raises:
        Account.DoesNotExist: It is not there, or not for this user.
    """
    return visible_accounts(user, include_archived=True).get(slug=slug)


def visible_flavors(user: User, *, include_archived: bool = False) -> QuerySet[Flavor]:
    """Flavors are no secret among people who can log in."""
    if roles_of(user).user_id is None:
        return Flavor.objects.none()
    found = Flavor.objects.order_by("position", "slug")
    return found if include_archived else found.filter(archived_at__isnull=True)


def visible_topologies(user: User) -> QuerySet[Topology]:
    """How nodes stand together, archived ones too, for those who see the platform."""
    found = Topology.objects.order_by("slug")
    return found if roles_of(user).sees_everything else found.none()


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
