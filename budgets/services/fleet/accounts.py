"""Accounts, workspaces and envelopes."""

from __future__ import annotations

from django.db import transaction

from budgets.errors import Fault, Rejected
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
from budgets.services.announcements import Work, announce
from budgets.services.audit import audit
from budgets.services.budget.holds import set_stop_policy
from budgets.services.budget.in_force import generations_follow, lock_budget
from budgets.services.budget.revisions import revise_budget
from budgets.services.guards import lock_accounts, require_admin, require_reason, save_checked

RESERVED_ACCOUNTS = frozenset(
    {"kube", "kueue", "default", "openshift", "pool", "host", "istio", "cert", "gatekeeper"}
)
"""Slugs whose namespaces would look like, or be, those of a cluster's own parts."""


@transaction.atomic
def create_account(actor: User | None, *, slug: str, name: str) -> Account:
    """Add a customer; the slug is for ever."""
    require_admin(actor)
    faults = []
    if slug in RESERVED_ACCOUNTS:
        faults.append(
            Fault(
                "slug",
                "reserved",
                f"{slug} is kept for parts of a cluster, such as {slug}-system; choose another.",
            )
        )
    account = Account(slug=slug, name=name)
    save_checked(account, also=faults)
    audit(actor, action="account.create", subject=f"account:{slug}", account=account)
    return account


@transaction.atomic
def edit_account(actor: User | None, *, account: Account, name: str) -> Account:
    """Rename an account."""
    require_admin(actor)
    row = Account.objects.select_for_update().get(pk=account.pk)
    before, row.name = row.name, name
    save_checked(row)
    audit(
        actor,
        action="account.edit",
        subject=f"account:{row.slug}",
        account=row,
        before={"name": before},
        after={"name": name},
    )
    return row


@transaction.atomic
def archive_account(actor: User | None, *, account: Account, reason: str) -> Account:
    """Put an account away, once its workspaces are archived and its pool is empty."""
    require_admin(actor)
    require_reason(reason)
    row = Account.objects.select_for_update().get(pk=account.pk)
    open_ones = list(
        row.workspaces.filter(archived_at__isnull=True).values_list("namespace", flat=True)
    )
    faults = [
        Fault("", "open_workspace", f"{namespace} is still open; archive it first.")
        for namespace in open_ones
    ]
    if Pool.objects.filter(account=row, archived_at__isnull=True).exists():
        faults.append(Fault("", "open_pool", "Its pool is still open; archive it first."))
    if faults:
        raise Rejected(faults)
    with generations_follow(row.slug):
        PoolShare.objects.filter(account=row).delete()
        row.archived_at = utc_now()
        row.save(update_fields=["archived_at"])
    audit(
        actor,
        action="account.archive",
        subject=f"account:{row.slug}",
        account=row,
        reason=reason,
    )
    return row


@transaction.atomic
def create_workspace(
    actor: User | None, *, account: Account, slug: str, name: str, home_flavor: Flavor
) -> Workspace:
    """Add a workspace with an empty budget; its namespace ``ACCOUNT-WORKSPACE`` is for ever."""
    require_admin(actor)
    namespace = f"{account.slug}-{slug}"
    faults = []
    if len(namespace) > 63:
        faults.append(
            Fault(
                "slug",
                "namespace_too_long",
                f"{namespace} has {len(namespace)} characters; a namespace has at most 63.",
            )
        )
        namespace = namespace[:63]
    if account.archived_at is not None:
        faults.append(Fault("account", "archived_account", "The account is archived."))
    if home_flavor.archived_at is not None:
        faults.append(Fault("home_flavor", "archived_flavor", "The flavor is archived."))
    workspace = Workspace(
        account=account, slug=slug, namespace=namespace, name=name, home_flavor=home_flavor
    )
    save_checked(workspace, also=faults)
    Budget.objects.create(workspace=workspace)
    announce(Work.SYNC)
    audit(
        actor,
        action="workspace.create",
        subject=f"workspace:{namespace}",
        workspace=workspace,
        after={"home_flavor": home_flavor.slug},
    )
    return workspace


@transaction.atomic
def edit_workspace(
    actor: User | None,
    *,
    workspace: Workspace,
    name: str | None = None,
    home_flavor: Flavor | None = None,
) -> Workspace:
    """Rename a workspace or change the flavor that the short form puts the floor on."""
    require_admin(actor)
    row = (
        Workspace.objects.select_for_update(of=("self",))
        .select_related("account", "home_flavor")
        .get(pk=workspace.pk)
    )
    before = {"name": row.name, "home_flavor": row.home_flavor.slug}
    faults = []
    if name is not None:
        row.name = name
    if home_flavor is not None:
        if home_flavor.archived_at is not None:
            faults.append(Fault("home_flavor", "archived_flavor", "The flavor is archived."))
        row.home_flavor = home_flavor
    save_checked(row, also=faults)
    audit(
        actor,
        action="workspace.edit",
        subject=f"workspace:{row.namespace}",
        workspace=row,
        before=before,
        after={"name": row.name, "home_flavor": row.home_flavor.slug},
    )
    return row


@transaction.atomic
def archive_workspace(actor: User | None, *, workspace: Workspace, reason: str) -> Workspace:
    """Put a workspace away: nothing is promised from now on and nothing new starts.

    Waiting requests and revisions that have not begun are withdrawn, an empty revision takes
    effect, the queue is held. What runs goes on; the queue leaves the clusters when nothing
    holds its flavors any more.
    """
    require_admin(actor)
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
    audit(
        actor,
        action="workspace.archive",
        subject=f"workspace:{row.namespace}",
        workspace=row,
        reason=reason,
    )
    return row


@transaction.atomic
def set_envelope(
    actor: User | None,
    *,
    account: Account,
    flavor: Flavor,
    committed: int,
    ceiling: int,
    pool: int,
) -> Envelope:
    """Say what an account may promise itself of a flavor without asking.

    Lowering it below what is promised changes no promise: only what would make it worse has to
    be asked for.
    """
    require_admin(actor)
    lock_accounts(account)
    row = Envelope.objects.select_for_update().filter(account=account, flavor=flavor).first()
    before = (
        {}
        if row is None
        else {"committed": row.committed, "ceiling": row.ceiling, "pool": row.pool}
    )
    row = row or Envelope(account=account, flavor=flavor)
    row.committed, row.ceiling, row.pool = committed, ceiling, pool
    save_checked(row)
    audit(
        actor,
        action="envelope.set",
        subject=f"account:{account.slug}",
        account=account,
        before={"flavor": flavor.slug, **before},
        after={"flavor": flavor.slug, "committed": committed, "ceiling": ceiling, "pool": pool},
    )
    return row
