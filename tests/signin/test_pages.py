"""Pages and API of groups and of sign-in, which ask no provider."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from budgets import services
from budgets.models import AuditEntry, GroupRule, Identity, Membership, Role, User
from portal.providers import Provider
from tests.web.conftest import HTMX, Visitors, visitors  # noqa: F401  a fixture

GROUPS = "/setup/groups/"
CORP = Provider(
    name="corp",
    label="Company",
    issuer="https://sso.example.com",
    client_id="portal",
    client_secret="x",
    scopes="openid",
    groups="groups",
    username="preferred_username",
)


@pytest.fixture(autouse=True)
def corp(settings: Any) -> None:
    settings.PORTAL_PROVIDERS = {"corp": CORP}


def somebody(name: str, *groups: str) -> User:
    """A person who signed in once and was in these groups."""
    user = services.create_user(None, username=name, email=f"{name}@example.org")
    Identity.objects.create(
        user=user, provider="corp", issuer=CORP.issuer, subject=name, groups=list(groups),
        seen_at=timezone.now(),
    )  # fmt: skip
    for rule in GroupRule.objects.filter(group__in=groups):
        services.grant_role(
            None, user=user, role=rule.role, account=rule.account, provider=rule.provider
        )
    return user


def test_an_admin_adds_a_rule_and_reads_who_gets_the_role(visitors: Visitors) -> None:  # noqa: F811
    somebody("anna", "leads")
    typed = {"section": "new", "provider": "corp", "group": "leads", "role": "owner"}
    refused = visitors["admin"].post(GROUPS, typed)
    assert refused.status_code == 422 and "Choose one account" in refused.content.decode()
    assert visitors["admin"].post(GROUPS, typed | {"account": "acme"}).status_code == 302
    rule = GroupRule.objects.get()
    assert (rule.group, rule.account.slug, rule.added_by.username) == ("leads", "acme", "ada")
    assert "leads" in visitors.text("admin", GROUPS)
    assert "anna" in visitors.text("admin", f"{GROUPS}{rule.pk}/")


def test_who_would_lose_a_role_is_told_before_and_loses_it_then(
    visitors: Visitors,  # noqa: F811
) -> None:
    fleet = visitors.fleet
    for group in ("audit", "chiefs"):
        services.add_group_rule(fleet.admin, provider="corp", group=group, role=Role.AUDITOR)
    anna, otto = somebody("anna", "audit"), somebody("otto", "audit", "chiefs")
    rule = GroupRule.objects.get(group="audit")
    text = visitors.text("admin", f"{GROUPS}{rule.pk}/")
    assert "1 person would lose Auditor of the platform at once" in text
    assert "anna@example.org" in text and "otto@example.org" not in text
    effect = visitors["admin"].get(f"/api/v1/group-rules/{rule.pk}/effect").json()
    assert effect == {"gains": [], "loses": ["anna"]}
    assert visitors["admin"].post(f"{GROUPS}{rule.pk}/", {"section": "end"}).status_code == 302
    assert not Membership.objects.filter(user=anna).exists()
    assert Membership.objects.filter(user=otto).exists()


def test_a_rule_of_a_provider_that_nobody_named_is_refused(
    visitors: Visitors,  # noqa: F811
) -> None:
    given = {"provider": "other", "group": "g", "role": "auditor"}
    answer = visitors["admin"].post("/api/v1/group-rules", given, content_type="application/json")
    assert answer.status_code == 422
    assert answer.json()["faults"][0]["code"] == "unknown_provider"


def test_a_rule_that_makes_finance_is_told_to_finance(visitors: Visitors) -> None:  # noqa: F811
    fleet = visitors.fleet
    services.add_group_rule(fleet.admin, provider="corp", group="money", role=Role.FINANCE)
    told = AuditEntry.objects.filter(action="finance.told").latest("pk")
    assert told.after["text"] == "ada gives the finance role to the group money of corp."


def test_a_session_that_ended_is_opened_again_in_another_window(
    visitors: Visitors,  # noqa: F811
) -> None:
    asked = visitors["anonymous"].get("/login/", **HTMX)
    text = asked.content.decode()
    assert asked.status_code == 401
    assert 'href="/signin/corp/"' in text and "I have signed in there" in text
    done = visitors["owner"].get("/login/", {"was": "olga"}, **HTMX)
    assert "data-token=" in done.content.decode()
    other = visitors["owner"].get("/login/", {"was": "ada"}, **HTMX)
    assert other.headers["HX-Redirect"] == "/"


def test_profile_offers_to_connect_and_says_what_is_connected(
    visitors: Visitors,  # noqa: F811
) -> None:
    assert "Connect Company" in visitors.text("owner", "/profile/")
    Identity.objects.create(
        user=visitors.fleet.owner, provider="corp", issuer=CORP.issuer, subject="olga",
        seen_at=timezone.now(),
    )  # fmt: skip
    text = visitors.text("owner", "/profile/")
    assert "Connect Company" not in text and "You sign in with" in text


def test_an_admin_disconnects_somebody_on_their_page(visitors: Visitors) -> None:  # noqa: F811
    services.add_group_rule(visitors.fleet.admin, provider="corp", group="audit", role=Role.AUDITOR)
    anna = somebody("anna", "audit")
    page = f"/setup/people/{anna.pk}/"
    assert "a group of corp" in visitors.text("admin", page)
    removed = {"section": "identities", "remove": str(Identity.objects.get().pk)}
    assert visitors["admin"].post(page, removed).status_code == 302
    assert not Membership.objects.filter(user=anna).exists()
    assert not Identity.objects.exists()
