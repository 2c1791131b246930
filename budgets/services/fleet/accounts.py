"""Accounts, workspaces and envelopes."""

from __future__ import annotations

from decimal import Decimal

from budgets.announcements import Work, announce
from budgets.errors import Fault, reject_any
from budgets.models import (
    Account,
    Budget,
    BudgetRevision,
    Envelope,
    Flavor,
    Pool,
    PoolShare,
    User,
    Workspace,
)
from budgets.plan import RevisionDraft
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit, state_of
from budgets.services.budget.holds import set_stop_policy
from budgets.services.budget.in_force import generations_follow, lock_budget
from budgets.services.budget.revisions import revise_budget
from budgets.services.guards import by_admin, lock_accounts, require_reason, save_checked

RESERVED_ACCOUNTS = frozenset(
    {"kube", "kueue", "default", "openshift", "pool", "host", "istio", "cert", "gatekeeper"}
)
"""Slugs whose namespaces would look like, or be, those of a cluster's own parts."""
LIMITS = ("committed", "ceiling", "pool")


@by_admin
def create_account(actor: User | None, *, slug: str, name: str) -> Account:
    """Add a customer; the slug is for ever."""
    faults = []
    if slug in RESERVED_ACCOUNTS:
        words = f"{slug} is kept for parts of a cluster, such as {slug}-system. Choose another."
        faults.append(Fault("slug", "reserved", words))
    account = Account(slug=slug, name=name)
    save_checked(account, also=faults)
    audit(actor, "account.create", account)
    return account


@by_admin
def edit_account(actor: User | None, *, account: Account, name: str) -> Account:
    """Rename an account."""
    row = Account.objects.select_for_update().get(pk=account.pk)
    before, row.name = row.name, name
    save_checked(row)
    audit(actor, "account.edit", row, before={"name": before}, after={"name": name})
    return row


@by_admin
def weigh_account(
    actor: User | None, *, account: Account, weight: Decimal, reason: str = ""
) -> Account:
    """Give an account a weight of fair sharing among those that draw on the same platform pool."""
    row = Account.objects.select_for_update().get(pk=account.pk)
    _weigh(actor, row, row.slug, weight=weight, reason=reason)
    return row


@by_admin
def weigh_workspace(
    actor: User | None, *, workspace: Workspace, weight: Decimal, reason: str = ""
) -> Workspace:
    """Give a workspace a weight of fair sharing among the workspaces of its account."""
    lock_accounts(workspace.account)
    row = (
        Workspace.objects.select_for_update(of=("self",))
        .select_related("account")
        .get(pk=workspace.pk)
    )
    _weigh(actor, row, row.account.slug, weight=weight, reason=reason)
    return row


def _weigh(
    actor: User | None, row: Account | Workspace, slug: str, *, weight: Decimal, reason: str
) -> None:
    """As Kueue has it: 0 or more, and 0 stands behind everybody else once it borrows."""
    what = "workspace" if isinstance(row, Workspace) else "account"
    faults = []
    if row.archived_at is not None:
        words = f"The {what} is archived: it shares nothing any more."
        faults.append(Fault("weight", f"archived_{what}", words))
    before = state_of(row, "fair_weight")
    with generations_follow(slug):
        row.fair_weight = weight
        save_checked(row, also=faults)
    after = {"fair_weight": f"{row.fair_weight:.3f}"}
    audit(actor, f"{what}.weigh", row, before=before, after=after, reason=reason)


@by_admin
def archive_account(actor: User | None, *, account: Account, reason: str) -> Account:
    """Put an account away, once its workspaces are archived and its pool is empty."""
    require_reason(reason)
    row = Account.objects.select_for_update().get(pk=account.pk)
    open_ones = row.workspaces.filter(archived_at__isnull=True)
    faults = [
        Fault("", "open_workspace", f"The workspace {name} is still open. Archive it first.")
        for name in open_ones.values_list("name", flat=True)
    ]
    if Pool.objects.filter(account=row, archived_at__isnull=True).exists():
        faults.append(Fault("", "open_pool", "The account's pool is still open. Archive it first."))
    reject_any(faults)
    with generations_follow(row.slug):
        PoolShare.objects.filter(account=row).delete()
        row.archived_at = utc_now()
        row.save(update_fields=["archived_at"])
    audit(actor, "account.archive", row, reason=reason)
    return row


@by_admin
def create_workspace(
    actor: User | None, *, account: Account, slug: str, name: str, home_flavor: Flavor
) -> Workspace:
    """Add a workspace with an empty budget; its namespace ``ACCOUNT-WORKSPACE`` is for ever."""
    namespace = f"{account.slug}-{slug}"
    faults = []
    if len(namespace) > 63:
        words = f"{namespace} has {len(namespace)} characters; a namespace has at most 63."
        faults.append(Fault("slug", "namespace_too_long", words))
        namespace = namespace[:63]
    if account.archived_at is not None:
        faults.append(Fault("account", "archived_account", "The account is archived."))
    faults += _home_faults(home_flavor)
    workspace = Workspace(
        account=account, slug=slug, namespace=namespace, name=name, home_flavor=home_flavor
    )
    save_checked(workspace, also=faults)
    Budget.objects.create(workspace=workspace)
    announce(Work.SYNC)
    audit(actor, "workspace.create", workspace, after={"home_flavor": home_flavor.slug})
    return workspace


@by_admin
def edit_workspace(
    actor: User | None,
    *,
    workspace: Workspace,
    name: str | None = None,
    home_flavor: Flavor | None = None,
) -> Workspace:
    """Rename a workspace or change the flavor that the short form puts the floor on."""
    row = (
        Workspace.objects.select_for_update(of=("self",))
        .select_related("account", "home_flavor")
        .get(pk=workspace.pk)
    )
    before = {"name": row.name, "home_flavor": row.home_flavor.slug}
    faults: list[Fault] = []
    if name is not None:
        row.name = name
    if home_flavor is not None:
        faults = _home_faults(home_flavor)
        row.home_flavor = home_flavor
    save_checked(row, also=faults)
    audit(
        actor,
        "workspace.edit",
        row,
        before=before,
        after={"name": row.name, "home_flavor": row.home_flavor.slug},
    )
    return row


def _home_faults(flavor: Flavor) -> list[Fault]:
    if flavor.archived_at is None:
        return []
    return [Fault("home_flavor", "archived_flavor", "The flavor is archived.")]


@by_admin
def archive_workspace(actor: User | None, *, workspace: Workspace, reason: str) -> Workspace:
    """Put a workspace away: nothing is promised from now on and nothing new starts.

    Waiting requests and revisions that have not begun are withdrawn, an empty revision takes
    effect, the queue is held. What runs goes on; the queue leaves the clusters when nothing
    holds its flavors any more.
    """
    require_reason(reason)
    budget = lock_budget(workspace.budget.pk)
    row = budget.workspace
    if row.archived_at is not None:
        return row
    now = utc_now()
    states = BudgetRevision.State
    for state, window in ((states.REQUESTED, {}), (states.LIVE, {"valid_from__gt": now})):
        BudgetRevision.objects.filter(budget=budget, state=state, **window).update(
            state=states.WITHDRAWN,
            decided_by=actor,
            decided_at=now,
            decision_reason=f"Workspace archived: {reason}"[:500],
        )
    revise_budget(
        actor,
        workspace=row,
        draft=RevisionDraft(lines=(), reason=reason),
        expected_version=budget.version,
    )
    set_stop_policy(actor, budget=budget, policy=Budget.StopPolicy.HOLD, reason=reason)
    with generations_follow(row.account.slug):
        row.archived_at = now
        row.save(update_fields=["archived_at"])
    audit(actor, "workspace.archive", row, reason=reason)
    return row


@by_admin
def set_envelope(
    actor: User | None, *, account: Account, flavor: Flavor, committed: int, ceiling: int, pool: int
) -> Envelope:
    """Say what an account may promise itself of a flavor without asking.

    Lowering it below what is promised changes no promise: only what would make it worse has to
    be asked for.
    """
    lock_accounts(account)
    row = Envelope.objects.select_for_update().filter(account=account, flavor=flavor).first()
    before = state_of(row, *LIMITS) if row else {}
    row = row or Envelope(account=account, flavor=flavor)
    row.committed, row.ceiling, row.pool = committed, ceiling, pool
    save_checked(row)
    audit(
        actor,
        "envelope.set",
        account,
        before={"flavor": flavor.slug, **before},
        after={"flavor": flavor.slug, **state_of(row, *LIMITS)},
    )
    return row
