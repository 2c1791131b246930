"""Which roles the groups of the company give, and who would lose one with a rule."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse

from budgets import selectors
from budgets import services as promises
from budgets.models import User
from budgets.selectors.company import gained_by, group_rules, lost_without
from portal.web import setup_forms
from portal.web.forms import PortalForm
from portal.web.setup_pages import Row, Section, crumbs, sections_page, setup_page
from portal.web.tags import when

_NONE = (
    "The settings name no OpenID Connect provider (PORTAL_SIGNIN), so nobody can sign in with a "
    "company account."
)


@setup_page
def groups(request: HttpRequest, user: User) -> HttpResponseBase:
    """All rules, and a new one."""
    has_provider = bool(settings.PORTAL_PROVIDERS)
    rules = Section(
        key="list",
        title="Rules",
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
    )
    new = Section(
        key="new",
        title="New rule",
        form=setup_forms.GroupRuleForm,
        arguments={
            "accounts": selectors.visible_accounts(user),
            "workspaces": selectors.visible_workspaces(user),
        },
        do=lambda typed: promises.add_group_rule(user, **typed),
        button="Add rule",
        said="Everybody in {group} has the role from their next sign-in on.",
    )
    return sections_page(
        request,
        title="Groups of the company",
        headline="Everybody in a group there has the role here, from one sign-in to the next.",
        sections=[rules, new] if has_provider else [rules],
        crumbs=crumbs(),
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
