"""Machines with tokens of the company's provider, by client credentials, against a real one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from budgets import services
from budgets.errors import NotAllowed, Rejected
from budgets.models import AuditEntry, GroupRule, Identity, Membership, Role, User
from budgets.services.billing.approvals import propose
from budgets.services.finance import TOLERANCE
from portal import machine_tokens, oidc
from tests.builders import SmallFleet, line
from tests.signin.company import MACHINE, Company, running

pytestmark = pytest.mark.company

GROUP = f"client:{MACHINE}"
ME, WORKSPACES = "/api/v1/me", "/api/v1/workspaces"
NO_TOKEN = "This token opens nothing here"


@pytest.fixture(autouse=True)
def _no_keys_are_known() -> None:
    machine_tokens._kept.clear()


@pytest.fixture
def rule(fleet: SmallFleet, company: Company) -> GroupRule:
    """The machine owns acme."""
    return services.add_group_rule(
        fleet.admin, provider="corp", group=GROUP, role=Role.OWNER, account=fleet.acme
    )


def ask(token: str, address: str = ME, *, method: str = "get", **more: Any) -> Any:
    return getattr(Client(), method)(address, headers={"Authorization": f"Bearer {token}"}, **more)


def why(answer: Any) -> str:
    assert answer.status_code == 401, answer.content
    return str(answer.json()["message"])


def test_a_machine_reads_what_its_rule_lets_it_read(rule: GroupRule, company: Company):
    answer = ask(company.token())
    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert (told["username"], told["scope"]) == (f"machine.{MACHINE}", "read")
    assert [row["role"] for row in told["roles"]] == ["owner"]
    assert ask(company.token(), WORKSPACES).json()["results"]
    user = User.objects.get(username=f"machine.{MACHINE}")
    assert not user.has_usable_password()
    assert Identity.objects.get(user=user).subject == GROUP


def test_what_may_only_read_writes_nothing(rule: GroupRule, company: Company, fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 8, 12))
    address = f"/api/v1/workspaces/{fleet.vision.namespace}/budget/stop"
    given = {"data": {}, "content_type": "application/json"}
    assert ask(company.token(), address, method="put", **given).status_code == 403
    # It is let in, and then asked for the version that it read.
    written = ask(company.token("portal:write"), address, method="put", **given)
    assert written.status_code == 428, written.content


def test_roles_follow_the_rules(rule: GroupRule, company: Company, fleet: SmallFleet):
    token = company.token()
    assert ask(token).json()["roles"]
    services.remove_group_rule(fleet.admin, rule=rule)
    assert ask(token).json()["roles"] == []


def test_a_machine_without_a_rule_is_told_whom_to_ask_and_leaves_no_trace(
    fleet: SmallFleet, company: Company
):
    entries = AuditEntry.objects.count()
    for _ in range(2):
        assert f"No rule gives a role to the group {GROUP}" in why(ask(company.token()))
    assert not User.objects.filter(username__startswith="machine.").exists()
    assert AuditEntry.objects.count() == entries


def test_a_machine_that_is_switched_off_stays_out(
    rule: GroupRule, company: Company, fleet: SmallFleet
):
    token = company.token()
    assert ask(token).status_code == 200
    services.deactivate_user(
        fleet.admin, user=User.objects.get(username=f"machine.{MACHINE}"), reason="gone"
    )
    entries = AuditEntry.objects.count()
    assert "switched off" in why(ask(token))
    assert AuditEntry.objects.count() == entries


def test_a_machine_is_written_down_every_few_minutes_and_not_each_time(
    rule: GroupRule, company: Company
):
    token = company.token()
    ask(token)
    seen_at = Identity.objects.get(subject=GROUP).seen_at
    ask(token)
    assert Identity.objects.get(subject=GROUP).seen_at == seen_at


UNSOUND: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"claims": {"iss": "https://elsewhere.example"}}, "its issuer is not one"),
    "another API": ({"claims": {"aud": "https://another.api"}}, ""),
    "no API": ({"claims": {"aud": None}}, ""),
    "expired": ({"claims": {"exp": 1_700_000_000}}, ""),
    "for ever": ({"claims": {"exp": None}}, "issing"),
    "for years": ({"claims": {"exp": 4_000_000_000}}, "valid for more than a day"),
    "not yet": ({"claims": {"nbf": 4_000_000_000}}, ""),
    "other scopes": ({"claims": {"scope": "openid"}}, "neither the scope"),
    "no scope": ({"claims": {"scope": None}}, "neither the scope"),
    "a number as scope": ({"claims": {"scope": 7}}, ""),
    "nobody": ({"claims": {"sub": None}}, ""),
    "no client": ({"claims": {"client_id": None}}, "does not name one client"),
    "two names": ({"claims": {"azp": "another"}}, "does not name one client"),
    "a list of names": ({"claims": {"client_id": ["a", "b"]}}, "does not name one client"),
    "a long name": ({"claims": {"client_id": "x" * 500}}, "does not name one client"),
    "stranger's key": ({"key": "stranger"}, ""),
    "shared secret": ({"key": "secret"}, ""),
    "unsigned": ({"key": "none"}, ""),
}


@pytest.mark.parametrize("fault", UNSOUND)
def test_a_token_that_is_not_sound_opens_nothing(rule: GroupRule, company: Company, fault: str):
    assert ask(company.token()).status_code == 200
    made, words = UNSOUND[fault]
    company.becomes(fault=made)
    said = why(ask(company.token()))
    assert said.startswith(NO_TOKEN)
    assert words in said


@pytest.mark.parametrize("text", ["x", "a.b.c", "a.b", "e30.e30.e30", "." * 9, "x" * 9_000 + ".."])
@pytest.mark.django_db
def test_what_is_no_token_opens_nothing(company: Company, text: str):
    said = why(ask(text))
    assert said.startswith(NO_TOKEN)
    assert ("is not a signed token" in said) == (text not in ("a.b.c", "e30.e30.e30"))


def test_a_key_that_was_taken_back_opens_nothing_after_five_minutes(
    rule: GroupRule, company: Company, monkeypatch: pytest.MonkeyPatch
):
    old = company.token()
    assert ask(old).status_code == 200
    company.becomes(rotate=True)
    assert ask(old).status_code == 200
    later = time.monotonic() + 301
    monkeypatch.setattr(machine_tokens, "monotonic", lambda: later)
    assert NO_TOKEN in why(ask(old))
    assert ask(company.token()).status_code == 200


def test_a_new_key_is_known_soon(
    rule: GroupRule, company: Company, monkeypatch: pytest.MonkeyPatch
):
    assert ask(company.token()).status_code == 200
    company.becomes(rotate=True)
    later = time.monotonic() + 16
    monkeypatch.setattr(machine_tokens, "monotonic", lambda: later)
    assert ask(company.token()).status_code == 200


def test_unknown_keys_have_the_provider_asked_seldom(
    rule: GroupRule, company: Company, monkeypatch: pytest.MonkeyPatch
):
    asked = []
    read = oidc.signing_keys
    monkeypatch.setattr(oidc, "signing_keys", lambda found: asked.append(1) or read(found))
    ask(company.token())
    company.becomes(rotate=True)
    for _ in range(5):
        why(ask(company.token()))
    assert len(asked) == 1


def test_the_token_of_a_person_is_none_of_a_machine(
    rule: GroupRule, company: Company, fleet: SmallFleet
):
    Identity.objects.create(
        user=fleet.admin, provider="corp", issuer=company.issuer, subject="ada",
        seen_at=fleet.admin.date_joined,
    )  # fmt: skip
    company.becomes(fault={"claims": {"sub": "ada"}})
    assert "token of a person" in why(ask(company.token()))


def test_a_group_of_people_makes_nobody_a_machine(company: Company):
    told = {"sub": "eve", "groups": [GROUP, "staff"]}
    assert oidc._vouched(company.as_setting(), told).groups == {"staff"}


def test_a_machine_decides_no_money_and_is_no_admin(
    rule: GroupRule, company: Company, fleet: SmallFleet
):
    ask(company.token())
    user = User.objects.get(username=f"machine.{MACHINE}")
    for role in (Role.ADMIN, Role.FINANCE):
        with pytest.raises(Rejected, match="is a machine"):
            services.grant_role(fleet.admin, user=user, role=role)
        with pytest.raises(Rejected, match="is a machine"):
            services.add_group_rule(fleet.admin, provider="corp", group=GROUP, role=role)
    with pytest.raises(NotAllowed, match="no machine"):
        propose(user, TOLERANCE, subject="x", percent=1)
    assert [row.role for row in Membership.objects.filter(user=user)] == ["owner"]


def test_a_provider_that_takes_no_machines_opens_nothing(
    rule: GroupRule, company: Company, settings
):
    token = company.token()
    settings.PORTAL_PROVIDERS = {"corp": company.as_setting(api_audience="")}
    assert "its issuer is not one whose tokens are taken here" in why(ask(token))


def test_a_provider_that_is_away_is_said_so(fleet: SmallFleet, settings):
    with running() as other:
        other.serves("http://testserver")
        settings.PORTAL_PROVIDERS = {"corp": other.as_setting()}
        services.add_group_rule(
            fleet.admin, provider="corp", group=GROUP, role=Role.OWNER, account=fleet.acme
        )
        token = other.token()
    answer = ask(token)
    assert answer.status_code == 503, answer.content
    assert answer.json()["message"].startswith("The company's provider does not answer")


def test_who_is_known_goes_on_while_the_provider_is_away(
    rule: GroupRule, company: Company, monkeypatch: pytest.MonkeyPatch
):
    """A stranger's token with a key that nobody knows takes no keys from the others."""
    known = company.token()
    assert ask(known).status_code == 200
    company.becomes(rotate=True)
    strange, later = company.token(), time.monotonic() + 16

    def away(_: object) -> None:
        raise oidc.Unreachable

    monkeypatch.setattr(machine_tokens, "monotonic", lambda: later)
    monkeypatch.setattr(oidc, "signing_keys", away)
    assert ask(strange).status_code == 503
    assert ask(known).status_code == 200
