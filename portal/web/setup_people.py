"""People with their roles, and pools with their amounts and shares."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import Membership, Pool, PoolShare, User
from portal.web import setup_forms
from portal.web.pages import page
from portal.web.setup_pages import (
    Row,
    Section,
    WayOut,
    crumbs,
    item_page,
    list_page,
    sections_page,
    setup_admin,
)
from portal.web.tags import gpus, when


@page("GET", "POST")
def people(request: HttpRequest) -> HttpResponseBase:
    """Everybody with a login, and a new one."""
    user = setup_admin(request)
    everybody = User.objects.prefetch_related("memberships__account", "memberships__workspace")
    rows = [
        Row(
            (row.username, row.get_full_name(), row.email, _roles(row), _last_login(row)),
            reverse("setup_person", args=[row.pk]),
            "",
            not row.is_active,
        )
        for row in everybody
    ]
    table = Section(
        key="list",
        title="People",
        columns=("User name", "Name", "E-mail", "Roles", "Last login"),
        rows=rows,
    )
    new = Section(
        key="new",
        title="New person",
        form=setup_forms.PersonForm,
        do=lambda typed: promises.create_user(user, **typed),
        button="Add person",
        said="{username} can sign in; give them a role next.",
    )
    headline = "A role says what somebody sees and changes; without one there is nothing to see."
    return sections_page(
        request, title="People and roles", headline=headline, sections=[table, new], crumbs=crumbs()
    )


def _roles(person: User) -> str:
    roles = [
        f"{m.get_role_display()} of {setup_forms.scope_of(m)}" for m in person.memberships.all()
    ]
    return ", ".join(roles) or "none"


def _last_login(person: User) -> Any:
    return when(person.last_login) if person.last_login else "never"


@page("GET", "POST")
def person(request: HttpRequest, user_id: int) -> HttpResponseBase:
    """One person: roles and password."""
    user = setup_admin(request)
    found = get_object_or_404(User, pk=user_id)
    memberships = found.memberships.select_related("account", "workspace").order_by("pk")

    def revoke(key: str) -> None:
        membership = get_object_or_404(Membership, pk=key, user=found)
        promises.revoke_role(user, membership=membership)

    sections = [
        Section(
            key="roles",
            title="Roles",
            columns=("Role", "Of"),
            rows=[
                Row((m.get_role_display(), setup_forms.scope_of(m)), remove=str(m.pk))
                for m in memberships
            ],
            empty="No role: after the login there is nothing to see.",
            remove=revoke,
            remove_label="Take away",
            form=setup_forms.RoleForm,
            arguments={
                "accounts": selectors.visible_accounts(user),
                "workspaces": selectors.visible_workspaces(user),
            },
            do=lambda typed: promises.grant_role(user, user=found, **typed),
            button="Give role",
        ),
        Section(
            key="password",
            title="Password",
            form=setup_forms.NewPasswordForm,
            do=lambda typed: promises.set_password(user, user=found, **typed),
            button="Set password",
            said="The password is set.",
        ),
    ]
    return sections_page(
        request,
        title=found.get_full_name() or found.username,
        headline=f"{found.username}, {found.email}",
        sections=sections,
        crumbs=crumbs(("People and roles", "setup_people")),
    )


@page("GET", "POST")
def pools(request: HttpRequest) -> HttpResponseBase:
    """Pools: list, and a new one."""
    user = setup_admin(request)
    found = Pool.objects.select_related("account").order_by("slug")
    rows = [
        Row(
            (row.slug, row.name, row.account.name if row.account else "the platform"),
            reverse("setup_pool", args=[row.slug]),
            "",
            bool(row.archived_at),
        )
        for row in found
    ]
    new = Section(
        key="new",
        title="New pool",
        form=setup_forms.PoolForm,
        arguments={"accounts": selectors.visible_accounts(user)},
        do=lambda typed: promises.create_pool(user, **typed),
        button="Add pool",
        said="Pool {slug} is there; give it GPUs next.",
    )
    return list_page(
        request,
        title="Pools",
        headline="An account's own extra quota, or a platform pool that several accounts draw on.",
        columns=("Slug", "Name", "Belongs to"),
        rows=rows,
        empty="No pool yet. Pools are extra quota beside the committed GPUs; budgets work without.",
        new=new,
    )


@page("GET", "POST")
def pool(request: HttpRequest, slug: str) -> HttpResponseBase:
    """One pool: amounts, shares, the way out."""
    user = setup_admin(request)
    found = get_object_or_404(Pool.objects.select_related("account"), slug=slug)
    amounts = found.amounts.select_related("flavor").order_by("flavor", "-valid_from", "-pk")
    sections = [
        Section(
            key="amount",
            title="GPUs",
            text="The newest row in force counts.",
            columns=("Flavor", "GPUs", "From", "Until"),
            numbers=("GPUs",),
            rows=[
                Row(
                    (
                        r.flavor.name,
                        gpus(r.gpus),
                        when(r.valid_from),
                        when(r.valid_until) if r.valid_until else "for good",
                    )
                )
                for r in amounts
            ],
            empty="The pool is empty.",
            form=setup_forms.PoolAmountForm,
            arguments={"flavors": selectors.visible_flavors(user)},
            do=lambda typed: promises.set_pool_amount(user, pool=found, **typed),
            button="Set GPUs",
        )
    ]
    if found.is_platform:
        sections.append(_shares(user, found))
    owner = f"Pool of {found.account.name}" if found.account else "Platform pool"
    return item_page(
        request,
        title=found.name,
        headline=owner,
        sections=sections,
        crumbs=crumbs(("Pools", "setup_pools")),
        way_out=WayOut(
            what="pool",
            text="Cannot be undone. Running jobs on it go on until they end.",
            do=lambda reason: promises.archive_pool(user, pool=found, reason=reason),
            to=reverse("setup_pools"),
            is_closed=found.archived_at is not None,
        ),
    )


def _shares(user: Any, found: Pool) -> Section:
    def remove(key: str) -> None:
        share = get_object_or_404(PoolShare, pk=key, pool=found)
        promises.remove_pool_share(user, share=share)

    return Section(
        key="share",
        title="Accounts that draw on it",
        text="An account draws on one platform pool at most; tenants never lend to each other.",
        columns=("Account", "At most"),
        rows=[
            Row((row.account.name, _limits(row)), remove=str(row.pk))
            for row in found.shares.select_related("account")
        ],
        empty="No account draws on it yet.",
        remove=remove,
        form=setup_forms.PoolShareForm,
        arguments={"accounts": selectors.visible_accounts(user)},
        do=lambda typed: promises.set_pool_share(user, pool=found, **typed),
        button="Let it draw",
    )


def _limits(share: PoolShare) -> str:
    limits = [f"{flavor} {gpus(count)}" for flavor, count in share.limits.items()]
    return ", ".join(limits) or "all of it"
