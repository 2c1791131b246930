"""People with their roles, groups that give some, and pools with their amounts and shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html

from budgets import services as promises
from budgets.models import Pool, PoolShare, UsageLabel, User
from budgets.selectors.approvals import installation as read_installation
from budgets.selectors.company import gained_by, group_rules, lost_without
from budgets.selectors.usage.labels import kept_labels
from portal.web import setup_forms
from portal.web.forms import PortalForm, ReasonForm
from portal.web.setup_pages import (
    Row,
    Section,
    crumbs,
    dated_gpus,
    item_page,
    item_row,
    list_page,
    sections_page,
    setup_page,
)
from portal.web.tags import gpus, when

_NONE = (
    "The settings name no OpenID Connect provider (PORTAL_SIGNIN), so nobody can sign in with a "
    "company account."
)


@setup_page
def people(request: HttpRequest, user: User) -> HttpResponseBase:
    """Everybody with a login, and a new one."""
    everybody = User.objects.prefetch_related("memberships__account", "memberships__workspace")
    return list_page(
        request,
        what="person",
        title="People and roles",
        heading="People",
        headline="A role says what somebody can see and change. Without a role there is nothing "
        "to see.",
        columns=("User name", "Name", "E-mail", "Roles", "Last login"),
        rows=[
            Row(
                row.username,
                row.get_full_name(),
                row.email,
                _roles(row),
                when(row.last_login) if row.last_login else "never",
                url=reverse("setup_person", args=[row.pk]),
                is_closed=not row.is_active,
            )
            for row in everybody
        ],
        form=setup_forms.PersonForm,
        do=lambda typed: promises.create_user(user, **typed),
        said="{username} can sign in. Next, give them a role.",
    )


def _roles(person: User) -> str:
    roles = [
        f"{m.get_role_display()} of {setup_forms.scope_of(m)}" for m in person.memberships.all()
    ]
    return ", ".join(roles) or "none"


@setup_page
def person(request: HttpRequest, user: User, user_id: int) -> HttpResponseBase:
    """One person: roles and password."""
    found = get_object_or_404(User, pk=user_id)
    memberships = found.memberships.select_related("account", "workspace").order_by("pk")
    sections = [
        Section(
            key="roles",
            title="Roles",
            columns=("Role", "Of", "Given by"),
            rows=[
                Row(
                    m.get_role_display(),
                    setup_forms.scope_of(m),
                    f"a group of {m.provider}" if m.provider else "a person",
                    remove=str(m.pk),
                )
                for m in memberships
            ],
            empty="No role yet, so there is nothing to see after signing in.",
            removable=found.memberships.all(),
            remove=lambda row: promises.revoke_role(user, membership=row),
            remove_label="Take away",
            form=setup_forms.RoleForm,
            do=lambda typed: promises.grant_role(user, user=found, **typed),
            button="Give role",
        ),
        Section(
            key="password",
            title="Password",
            form=setup_forms.NewPasswordForm,
            do=lambda typed: promises.set_password(user, user=found, **typed),
            button="Set password",
            said="The password is set. All earlier sessions and API tokens have ended.",
        ),
        *_second_factor_of(user, found),
        _tokens_of(user, found),
        *_identities_of(user, found),
        _standing_of(user, found),
    ]
    return sections_page(
        request,
        title=found.get_full_name() or found.username,
        headline=f"{found.username}, {found.email}",
        sections=sections,
        crumbs=crumbs(("People and roles", "setup_people")),
    )


def _second_factor_of(user: User, found: User) -> list[Section]:
    """Of somebody else who has one; one's own is removed on its page."""
    if found == user or not promises.has_second_factor(found):
        return []
    section = Section(
        key="second_factor",
        title="Second factor",
        text="After the password, a code of an app is asked for. Remove it only if you are sure "
        "that this person asks you to: they are told, and all of finance is if they belong to it.",
        form=ReasonForm,
        do=lambda typed: promises.remove_second_factor(user, user=found, **typed),
        button="Remove the second factor",
        said="A password alone opens this account again. All earlier sessions and API tokens have "
        "ended.",
        is_danger=True,
    )
    return [section]


def _tokens_of(user: User, found: User) -> Section:
    rows = [
        Row(
            t.name,
            t.prefix,
            t.get_scope_display(),
            when(t.last_used_at),
            when(t.expires_at),
            remove=str(t.pk),
        )
        for t in found.api_tokens.filter(revoked_at=None, expires_at__gt=promises.utc_now())
    ]
    return Section(
        key="tokens",
        title="API tokens",
        columns=("Name", "Begins with", "May", "Last used", "Ends"),
        rows=rows,
        empty="There is no token in force.",
        removable=found.api_tokens.all(),
        remove=lambda row: promises.revoke_api_token(user, token=row),
        remove_label="End",
    )


def _identities_of(user: User, found: User) -> list[Section]:
    """Accounts of the company; nothing where there is none."""
    identities = found.identities.all()
    rows = [
        Row(row.provider, row.subject, ", ".join(row.groups), when(row.seen_at), remove=str(row.pk))
        for row in identities
    ]
    section = Section(
        key="identities",
        title="Accounts of the company",
        text="Disconnecting an account takes away the roles that its groups gave, and ends all "
        "sessions.",
        columns=("Provider", "Known there as", "Groups", "Last signed in"),
        rows=rows,
        removable=identities,
        remove=lambda row: promises.disconnect_identity(user, identity=row),
        remove_label="Disconnect",
        removed="It can no longer be used to sign in.",
    )
    return [section] if rows else []


def _standing_of(user: User, found: User) -> Section:
    if found.is_active:
        return Section(
            key="deactivate",
            title="Deactivate",
            form=ReasonForm,
            do=lambda typed: promises.deactivate_user(user, user=found, **typed),
            button="Deactivate",
            said="The person can no longer sign in. Their sessions and API tokens have ended.",
        )
    return Section(
        key="reactivate",
        title="Reactivate",
        form=ReasonForm,
        do=lambda typed: promises.reactivate_user(user, user=found, **typed),
        button="Reactivate",
        said="The person can sign in again, with the roles above.",
    )


@setup_page
def groups(request: HttpRequest, user: User) -> HttpResponseBase:
    """All rules, and a new one."""
    has_provider = bool(settings.PORTAL_PROVIDERS)
    return list_page(
        request,
        what="rule",
        title="Groups of the company",
        heading="Rules",
        headline="Everybody in a group there has the role here, from one sign-in to the next.",
        columns=("Group", "Of", "Role", "Holds for", "Since"),
        rows=[
            Row(
                row.group,
                row.provider,
                row.get_role_display(),
                setup_forms.scope_of(row),
                when(row.created_at),
                url=reverse("setup_group", args=[row.pk]),
            )
            for row in group_rules()
        ],
        empty="There is no rule yet, so no group gives a role." if has_provider else _NONE,
        form=setup_forms.GroupRuleForm if has_provider else None,
        do=lambda typed: promises.add_group_rule(user, **typed),
        said="Everybody in {group} has the role from their next sign-in on.",
    )


@setup_page
def group(request: HttpRequest, user: User, rule_id: int) -> HttpResponseBase:
    """One rule: who would get the role, who would lose it, and its end."""
    found = get_object_or_404(group_rules(), pk=rule_id)
    losing = lost_without(found)
    gaining = gained_by(found)
    count = len({row.user_id for row in losing})
    people = "1 person would" if count == 1 else f"{count} people would"
    role = f"{found.get_role_display()} of {setup_forms.scope_of(found)}"
    sections = [
        Section(
            key="losing",
            title="People who have the role only by this rule",
            columns=("User name", "Name", "E-mail"),
            rows=[
                Row(row.user.username, row.user.get_full_name(), row.user.email) for row in losing
            ],
            empty="Nobody would lose a role without this rule.",
        ),
        Section(
            key="gaining",
            title="People who get it at their next sign-in",
            text="Those who have signed in before, by the groups of their last sign-in.",
            columns=("User name",),
            rows=[Row(name) for name in gaining],
            empty="Nobody who has signed in before.",
        ),
        Section(
            key="end",
            title="End this rule",
            text=f"{people} lose {role} at once, with all sessions and API tokens.",
            form=PortalForm,
            do=lambda _: promises.remove_group_rule(user, rule=found),
            button="End the rule",
            said="The rule has ended.",
            to=reverse("setup_groups"),
            is_danger=True,
        ),
    ]
    return sections_page(
        request,
        title=found.group,
        headline=f"Group of {found.provider}: {role}.",
        sections=sections,
        crumbs=crumbs(("Groups of the company", "setup_groups")),
    )


@setup_page
def installation(request: HttpRequest, user: User) -> HttpResponseBase:
    """Whether one person runs everything alone, and by which labels use is grouped."""
    row = read_installation()
    text: str
    if row.is_one_person:
        text = format_html(
            "Since {} one person has run everything alone and approves their own proposals. Every "
            "statement says so. Switching it off is final.",
            when(row.one_person_since),
        )
        switch, button = promises.end_one_person, "Ask for two people, for good"
        said = "From now on, two people have to agree on what moves money."
    elif row.one_person_until is not None:
        text = format_html(
            "Until {} one person ran everything alone. Since then two people have to agree on what "
            "moves money, for good.",
            when(row.one_person_until),
        )
        switch = None
    else:
        text = (
            "Two people have to agree on what moves money. Where nobody else is here, one person "
            "can approve their own proposals. Every statement says so, and switching it off is "
            "final."
        )
        switch, button = promises.start_one_person, "Let one person run everything alone"
        said = "One person runs everything alone. Next, give yourself the finance role."
    section = Section(key="one_person", title="One-person installation", text=text)
    if switch is not None:
        section = replace(
            section,
            form=ReasonForm,
            do=lambda typed: switch(user, **typed),
            button=button,
            said=said,
            is_danger=True,
        )
    return sections_page(
        request,
        title="Installation",
        headline="What holds for the installation as a whole.",
        sections=[section, _labels(user)],
        crumbs=crumbs(),
    )


def _labels(user: User) -> Section:
    return Section(
        key="labels",
        title="Labels to group by",
        text="Use and costs can be grouped by these labels of jobs. The portal reads the labels "
        "of pod templates. It also reads a label of the job itself if the cluster's Kueue "
        "Configuration names it under integrations.labelKeysToCopy. Jobs that ended "
        "before do not have it.",
        columns=("Label",),
        rows=[Row(key, remove=str(pk)) for key, pk in kept_labels().items()],
        empty="No label is kept.",
        removable=UsageLabel.objects.filter(is_kept=True),
        remove=lambda row: promises.drop_label(user, label=row),
        remove_label="Drop",
        removed="Use is no longer grouped by it. What jobs have said so far is kept.",
        form=setup_forms.LabelForm,
        do=lambda typed: promises.name_label(user, **typed),
        button="Keep a label",
        said="From now on, {key} is kept of every job.",
    )


@setup_page
def pools(request: HttpRequest, user: User) -> HttpResponseBase:
    """Pools: list, and a new one."""
    found = Pool.objects.select_related("account").order_by("slug")
    return list_page(
        request,
        what="pool",
        title="Pools",
        headline="An account's own extra quota, or a platform pool that several accounts draw on.",
        columns=("Name", "Slug", "Belongs to"),
        rows=[
            item_row(
                "setup_pool",
                row,
                row.slug,
                row.account.name if row.account else "the platform",
            )
            for row in found
        ],
        empty="There is no pool yet. Pools are extra quota beside the committed GPUs; budgets "
        "work without them.",
        form=setup_forms.PoolForm,
        do=lambda typed: promises.create_pool(user, **typed),
        said="Pool {name} is added. Next, give it GPUs.",
    )


@setup_page
def pool(request: HttpRequest, user: User, slug: str) -> HttpResponseBase:
    """One pool: amounts, shares, the way out."""
    found = get_object_or_404(Pool.objects.select_related("account"), slug=slug)
    amounts = found.amounts.select_related("flavor").order_by("flavor", "-valid_from", "-pk")
    sections = [
        Section(
            key="amount",
            title="GPUs",
            text="The newest row in force counts.",
            columns=("Flavor", "GPUs", "From", "Until"),
            numbers=("GPUs",),
            rows=[Row(*dated_gpus(row)) for row in amounts],
            empty="The pool is empty.",
            form=setup_forms.PoolAmountForm,
            do=lambda typed: promises.set_pool_amount(user, pool=found, **typed),
            button="Set GPUs",
        )
    ]
    if found.is_platform:
        sections.append(_shares(user, found))
    owner = f"Pool of {found.account.name}" if found.account else "Platform pool"
    return item_page(
        request,
        found,
        what="pool",
        headline=owner,
        sections=sections,
        above=("Pools", "setup_pools"),
        farewell="Running jobs that use it go on until they end.",
        archive=lambda reason: promises.archive_pool(user, pool=found, reason=reason),
    )


def _shares(user: Any, found: Pool) -> Section:
    return Section(
        key="share",
        title="Accounts that draw on it",
        text="An account draws on at most one platform pool. Accounts never lend to each other.",
        columns=("Account", "At most"),
        rows=[
            Row(row.account.name, _limits(row), remove=str(row.pk))
            for row in found.shares.select_related("account")
        ],
        empty="No account draws on it yet.",
        removable=found.shares.all(),
        remove=lambda row: promises.remove_pool_share(user, share=row),
        form=setup_forms.PoolShareForm,
        do=lambda typed: promises.set_pool_share(user, pool=found, **typed),
        button="Let it draw",
    )


def _limits(share: PoolShare) -> str:
    limits = [f"{flavor} {gpus(count)}" for flavor, count in share.limits.items()]
    return ", ".join(limits) or "all of it"
