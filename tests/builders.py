"""Fluent plain-data builders for the pure core, and a small fleet made by the services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine

from budgets import services
from budgets.models import Account, Approval, Flavor, Proposal, Role, User, Workspace
from budgets.plan import (
    AccountPromise,
    FlavorPromise,
    Line,
    PoolPromise,
    Promises,
    RevisionDraft,
    Spill,
    WorkspacePromise,
)
from budgets.services import billing

PASSWORD = "correct horse battery"
START = datetime(2026, 3, 1, tzinfo=UTC)


def hours(count: float) -> datetime:
    """An instant so many hours after :data:`START`."""
    return START + timedelta(hours=count)


def line(flavor: str, committed: int, ceiling: int | None = None, lendable: int | None = None):
    """A line; the ceiling is the floor and everything is lendable unless told otherwise."""
    return Line(
        flavor,
        committed,
        committed if ceiling is None else ceiling,
        committed if lendable is None else lendable,
    )


@dataclass(frozen=True)
class PromisesBuilder:
    """``promises().account("acme").workspace("acme", "vision", line("h100", 16)).build()``."""

    made: Promises = field(default_factory=lambda: Promises((), (), (), ()))

    def flavor(self, name: str, *, gpus_per_node: int = 8) -> PromisesBuilder:
        spec = FlavorPromise(name, "nvidia.com/gpu", (("gpu", name),), gpus_per_node=gpus_per_node)
        return self._with(flavors=(*self.made.flavors, spec))

    def account(
        self,
        name: str,
        *,
        pool: Mapping[str, int] | None = None,
        split: Mapping[tuple[str, str], int] | None = None,
    ) -> PromisesBuilder:
        account = AccountPromise(name, 1, dict(pool or {}), dict(split or {}))
        return self._with(accounts=(*self.made.accounts, account))

    def platform_pool(
        self,
        name: str,
        amounts: Mapping[str, int],
        *,
        shares: Mapping[str, Mapping[str, int]],
        split: Mapping[tuple[str, str], int] | None = None,
    ) -> PromisesBuilder:
        pool = PoolPromise(name, 1, dict(amounts), dict(split or {}), dict(shares))
        return self._with(pools=(*self.made.pools, pool))

    def workspace(
        self,
        account: str,
        slug: str,
        *lines: Line,
        preference: tuple[str, ...] = (),
        spill: Spill = Spill.NEXT_FLAVOR_FIRST,
        split: Mapping[tuple[str, str], tuple[int, int]] | None = None,
    ) -> PromisesBuilder:
        promise = WorkspacePromise(
            account=account,
            workspace=slug,
            namespace=f"{account}-{slug}",
            lines=lines,
            preference=preference,
            spill=spill,
            split=dict(split or {}),
        )
        return self._with(workspaces=(*self.made.workspaces, promise))

    def build(self) -> Promises:
        return self.made

    def _with(self, **parts: object) -> PromisesBuilder:
        return PromisesBuilder(replace(self.made, **parts))


def promises() -> PromisesBuilder:
    """An empty fleet to promise things of."""
    return PromisesBuilder()


def second_of_finance(username: str = "fay") -> User:
    """Somebody of finance besides whoever proposes."""
    found = User.objects.filter(username=username).first()
    if found is None:
        found = services.create_user(
            None, username=username, email=f"{username}@example.org", password=PASSWORD
        )
        services.grant_role(None, user=found, role=Role.FINANCE)
    return found


def an_approval(deed: str = "rate_card.activate") -> Approval:
    """Of two people, for a row that is written without its service."""
    author, approver = second_of_finance("fred"), second_of_finance()
    return Approval.objects.create(deed=deed, kind="two", author=author, approver=approver)


def agreed(made: Any) -> Any:
    """What was done at once; a proposal is approved by the second one of finance."""
    if not isinstance(made, Proposal):
        return made
    return billing.decide_proposal(second_of_finance(), proposal=made, is_approved=True)


@dataclass
class SmallFleet:
    """Accounts acme (vision, speech) and globex (search); workers gpu-east and gpu-west.

    h100: 32 + 16, h100-spot: 16 + 0, a100: 0 + 16, l4: 8 + 8. acme's envelope of h100 is
    32 / 48 / 8; olga owns acme-vision only.
    """

    admin: User
    finance: User
    auditor: User
    owner: User
    acme: Account
    globex: Account
    vision: Workspace
    speech: Workspace
    search: Workspace
    flavors: dict[str, Flavor]

    def revise(self, workspace: Workspace, *lines: Line, actor: User | None = None, **terms):
        """Save a revision with the version of the moment."""
        workspace.budget.refresh_from_db()
        return services.revise_budget(
            actor or self.admin,
            workspace=workspace,
            draft=RevisionDraft(lines=lines, **{"reason": "test", **terms}),
            expected_version=workspace.budget.version,
        )


def small_fleet() -> SmallFleet:
    """Make a :class:`SmallFleet` through the services, a day before :data:`START`."""
    with time_machine.travel(START - timedelta(days=1), tick=False):
        return _small_fleet()


def _small_fleet() -> SmallFleet:
    people = {
        name: services.create_user(
            None, username=name, email=f"{name}@example.org", password=PASSWORD
        )
        for name in ("ada", "fin", "aud", "olga")
    }
    for name, role in (("ada", Role.ADMIN), ("fin", Role.FINANCE), ("aud", Role.AUDITOR)):
        services.grant_role(None, user=people[name], role=role)
    flavors = {
        slug: services.create_flavor(
            None, slug=slug, name=slug.upper(), node_labels={"gpu": slug}, position=position
        )
        for position, slug in enumerate(("h100", "h100-spot", "a100", "l4"))
    }
    for cluster, amounts in (
        ("gpu-east", {"h100": 32, "h100-spot": 16, "l4": 8}),
        ("gpu-west", {"h100": 16, "a100": 16, "l4": 8}),
    ):
        for slug, gpus in amounts.items():
            services.set_capacity(None, cluster=cluster, flavor=flavors[slug], gpus=gpus)
    acme = services.create_account(None, slug="acme", name="Acme")
    globex = services.create_account(None, slug="globex", name="Globex")
    spaces = {
        slug: services.create_workspace(
            None, account=account, slug=slug, name=slug.title(), home_flavor=flavors["h100"]
        )
        for slug, account in (("vision", acme), ("speech", acme), ("search", globex))
    }
    services.set_envelope(
        None, account=acme, flavor=flavors["h100"], committed=32, ceiling=48, pool=8
    )
    services.set_envelope(
        None, account=acme, flavor=flavors["h100-spot"], committed=0, ceiling=16, pool=16
    )
    services.grant_role(None, user=people["olga"], role=Role.OWNER, workspace=spaces["vision"])
    return SmallFleet(
        admin=people["ada"],
        finance=people["fin"],
        auditor=people["aud"],
        owner=people["olga"],
        acme=acme,
        globex=globex,
        flavors=flavors,
        **spaces,
    )
