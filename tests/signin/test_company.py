"""Signing in with the company's accounts, against a real certified provider on loopback."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as conf
from django.core import mail
from django.test import Client
from django.utils import timezone

from budgets import services
from budgets.models import AuditEntry, Delivery, GroupRule, Identity, Membership, Role, User
from budgets.selectors.metrics import book_families
from budgets.services.alerts.deliver import deliver_alerts
from tests.builders import PASSWORD, SmallFleet
from tests.signin.company import Company, running

pytestmark = pytest.mark.company

BEGIN, BACK = "/signin/corp/", "/signin/corp/back/"
HELD = "This sign-in failed"


@pytest.fixture
def rules(fleet: SmallFleet, company: Company) -> dict[str, GroupRule]:
    """Groups of the company: owners of acme, auditors and finance."""

    def rule(group: str, role: str, **place: Any) -> GroupRule:
        return services.add_group_rule(
            fleet.admin, provider="corp", group=group, role=role, **place
        )

    return {
        "vision": rule("acme-leads", Role.OWNER, account=fleet.acme),
        "audit": rule("audit", Role.AUDITOR),
        "finance": rule("controlling", Role.FINANCE),
        "admin": rule("platform", Role.ADMIN),
    }


def come_back(company: Company, name: str, browser: Client, **more: Any) -> str:
    """The address to which somebody returns who signs in at the provider."""
    sent = browser.get(BEGIN, more)
    assert sent.status_code == 302, sent.content.decode()
    address = company.vouches(sent["Location"], name=name)
    assert address.startswith(f"http://testserver{BACK}")
    return address


def sign_in(company: Company, name: str, browser: Client | None = None, **more: Any) -> Any:
    """The portal's answer to somebody who has signed in at the provider."""
    browser = browser or Client()
    answer = browser.get(come_back(company, name, browser, **more))
    answer.browser = browser
    return answer


def is_in(browser: Client) -> bool:
    return browser.get("/profile/").status_code == 200


def roles(name: str) -> set[tuple[str, str]]:
    found = Membership.objects.filter(user__username=name).select_related("account")
    return {(row.role, row.account.slug if row.account else "") for row in found}


def test_three_roles_come_by_three_groups(rules: dict[str, GroupRule], company: Company) -> None:
    company.knows(anna=["acme-leads", "lunch"], otto=["audit"], fritz=["controlling"])
    for name in ("anna", "otto", "fritz"):
        answer = sign_in(company, name)
        assert (answer.status_code, answer["Location"]) == (302, "/")
        assert is_in(answer.browser)
    assert roles("anna") == {("owner", "acme")}
    assert roles("otto") == {("auditor", "")}
    assert roles("fritz") == {("finance", "")}
    anna = User.objects.get(username="anna")
    assert (anna.email, anna.get_full_name()) == ("anna@company.example", "Anna Of Company")
    assert not anna.has_usable_password()
    entry = AuditEntry.objects.get(action="session.sign_in", actor=anna)
    assert entry.after["provider"] == "corp"


def test_who_comes_again_is_the_same_person(rules: dict[str, GroupRule], company: Company) -> None:
    company.knows(anna=["acme-leads"])
    sign_in(company, "anna")
    company.becomes(people={"anna": {"preferred_username": "annabel", "groups": ["acme-leads"]}})
    assert is_in(sign_in(company, "anna").browser)
    assert Identity.objects.get().user.username == "anna"


def test_the_page_that_was_asked_for_is_shown_then(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads"])
    assert sign_in(company, "anna", next="/usage/?x=1")["Location"] == "/usage/?x=1"
    assert sign_in(company, "anna", next="https://evil.example/")["Location"] == "/"


def test_sign_in_page_leads_to_the_provider(company: Company, db: None) -> None:
    text = Client().get("/login/?next=/usage/").content.decode()
    assert 'href="/signin/corp/?next=%2Fusage%2F"' in text
    assert "Sign in with Company" in text


def test_finance_by_a_group_is_told_and_approves_nothing_for_a_day(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet
) -> None:
    company.knows(fritz=["controlling"])
    before = timezone.now()
    sign_in(company, "fritz")
    held = User.objects.get(username="fritz").approves_from
    assert held is not None and held >= before + timedelta(hours=23, minutes=59)
    told = AuditEntry.objects.filter(action="finance.told").latest("pk")
    assert told.after["text"].startswith(
        "The group controlling of corp gave the finance role to fritz."
    )
    assert Delivery.objects.filter(entry=told, address=fleet.finance.email).exists()


def test_who_made_a_rule_gets_no_finance_by_it(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet
) -> None:
    company.knows(ada=["platform", "controlling"])
    Identity.objects.create(
        user=fleet.admin, provider="corp", issuer=company.issuer, subject="ada",
        seen_at=timezone.now(),
    )  # fmt: skip
    assert is_in(sign_in(company, "ada").browser)
    assert ("finance", "") not in roles(fleet.admin.username)
    assert AuditEntry.objects.filter(action="role.withhold").exists()


def test_a_group_that_is_gone_takes_role_sessions_and_tokens(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads", "audit"])
    early = sign_in(company, "anna").browser
    anna = User.objects.get(username="anna")
    until = timezone.now() + timedelta(days=1)
    _, text = services.create_api_token(anna, user=anna, name="ci", scope="read", expires_at=until)
    company.knows(anna=["audit"])
    late = sign_in(company, "anna").browser
    assert is_in(late) and not is_in(early)
    assert roles("anna") == {("auditor", "")}
    assert services.authenticate_api_token(text) is None


def test_who_is_in_no_group_any_more_is_not_let_in(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads"])
    early = sign_in(company, "anna").browser
    company.knows(anna=[])
    answer = sign_in(company, "anna")
    assert answer.status_code == 403
    assert "none of your groups gives a role" in answer.content.decode()
    assert not is_in(answer.browser) and not is_in(early)
    assert roles("anna") == set()


def test_what_a_person_gave_stays_without_the_group(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet
) -> None:
    company.knows(anna=["acme-leads", "audit"])
    sign_in(company, "anna")
    anna = User.objects.get(username="anna")
    services.grant_role(fleet.admin, user=anna, role=Role.AUDITOR)
    company.knows(anna=[])
    assert is_in(sign_in(company, "anna").browser)
    assert roles("anna") == {("auditor", "")}


def test_a_stranger_of_the_company_gets_no_account(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(mallory=["lunch"])
    assert sign_in(company, "mallory").status_code == 403
    assert not User.objects.filter(username="mallory").exists()


@pytest.mark.parametrize("name", ["olga", "OLGA"])
def test_a_name_that_is_taken_opens_nothing_and_tells_nothing(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet, name: str
) -> None:
    assert fleet.owner.username == "olga"
    company.knows(**{name: ["platform"]})
    answer = sign_in(company, name)
    text = answer.content.decode()
    assert answer.status_code == 403 and "could not be made" in text
    assert "olga" not in text.replace(name, "")
    assert not is_in(answer.browser) and not Identity.objects.exists()


def test_who_is_switched_off_stays_out(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet
) -> None:
    company.knows(anna=["acme-leads"])
    sign_in(company, "anna")
    services.deactivate_user(fleet.admin, user=User.objects.get(username="anna"), reason="a test")
    answer = sign_in(company, "anna")
    assert answer.status_code == 403 and "switched off" in answer.content.decode()


FAULTS = {
    "another audience": {"claims": {"aud": "another-client"}},
    "another audience, by way of us": {"claims": {"aud": "another-client", "azp": "portal"}},
    "two audiences, and not for us": {"claims": {"aud": ["portal", "b"], "azp": "b"}},
    "another issuer": {"claims": {"iss": "https://evil.example"}},
    "another nonce": {"claims": {"nonce": "guessed"}},
    "no nonce": {"claims": {"nonce": None}},
    "ended an hour ago": {"claims": {"exp": 1_700_000_000}},
    "no end": {"claims": {"exp": None}},
    "issued tomorrow": {"claims": {"iat": 4_000_000_000, "exp": 4_000_000_300}},
    "no subject": {"claims": {"sub": None}},
    "somebody else than the provider tells of": {"claims": {"sub": "otto"}},
    "a stranger's key under a known name": {"key": "stranger"},
    "no signature": {"key": "none"},
    "no signature, as it allows": {
        "key": "none", "discovery": {"id_token_signing_alg_values_supported": ["RS256", "none"]}
    },
    "a shared secret": {"key": "secret"},
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_token_that_does_not_hold_opens_nothing(
    rules: dict[str, GroupRule], company: Company, fault: dict[str, Any]
) -> None:
    company.knows(anna=["acme-leads"], otto=["audit"])
    company.becomes(fault=fault)
    answer = sign_in(company, "anna")
    assert answer.status_code == 400 and HELD in answer.content.decode()
    assert not is_in(answer.browser) and not Identity.objects.exists()


def test_clocks_may_differ_by_half_a_minute(rules: dict[str, GroupRule], company: Company) -> None:
    now = int(timezone.now().timestamp())
    company.knows(anna=["acme-leads"])
    company.becomes(fault={"claims": {"exp": now - 30, "iat": now - 90}})
    assert is_in(sign_in(company, "anna").browser)


def test_new_keys_are_known_at_once_and_old_ones_forgotten(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads"])
    assert is_in(sign_in(company, "anna").browser)
    company.becomes(rotate=True, fault={"key": "retired"})
    assert sign_in(company, "anna").status_code == 400, "before a new one was seen"
    company.becomes(fault=None)
    assert is_in(sign_in(company, "anna").browser)
    company.becomes(fault={"key": "retired"})
    assert sign_in(company, "anna").status_code == 400


def test_a_code_opens_once(rules: dict[str, GroupRule], company: Company) -> None:
    company.knows(anna=["acme-leads"])
    browser, other = Client(), Client()
    address = come_back(company, "anna", browser)
    code = address.partition("code=")[2].partition("&")[0]
    # Somebody who reads the address, with a sign-in of their own begun.
    sent = other.get(BEGIN)["Location"]
    state = sent.partition("state=")[2].partition("&")[0]
    assert other.get(address).status_code == 400
    assert other.get(BACK, {"code": code, "state": state}).status_code == 400
    assert not is_in(other)


def test_an_address_of_before_opens_nothing_again(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads"])
    browser = Client()
    address = come_back(company, "anna", browser)
    assert browser.get(address).status_code == 302 and is_in(browser)
    browser.post("/logout/")
    assert browser.get(address).status_code == 400
    assert not is_in(browser)


@pytest.mark.parametrize("query", ["", "?code=x", "?code=x&state=y", "?error=access_denied"])
def test_who_was_not_sent_is_not_let_in(company: Company, db: None, query: str) -> None:
    answer = Client().get(BACK + query)
    assert answer.status_code == 400 and HELD in answer.content.decode()


def test_a_wrong_password_there_is_told_in_plain_words(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads"])
    browser = Client()
    address = company.vouches(browser.get(BEGIN)["Location"], name="anna", password="wrong")
    answer = browser.get(address)
    assert answer.status_code == 400 and HELD in answer.content.decode()


def test_the_session_is_another_one_after_the_sign_in(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads"])
    browser = Client()
    address = come_back(company, "anna", browser)
    name = conf.SESSION_COOKIE_NAME
    before = browser.cookies[name].value
    assert browser.cookies[name]["max-age"] == 600
    browser.get(address)
    assert browser.cookies[name].value != before
    assert browser.session.get_expiry_age() == conf.SESSION_COOKIE_AGE


def test_signing_out_ends_the_session_at_the_provider(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads"])
    browser = sign_in(company, "anna").browser
    answer = browser.post("/logout/")
    assert answer.status_code == 302
    assert answer["Location"].startswith(f"{company.issuer}/session/end?id_token_hint=")
    assert "post_logout_redirect_uri=http%3A%2F%2Ftestserver%2Flogin%2F" in answer["Location"]
    assert not is_in(browser)


def test_while_the_provider_is_away_who_is_in_goes_on(
    rules: dict[str, GroupRule], company: Company, settings: Any
) -> None:
    with running() as leaving:
        settings.PORTAL_PROVIDERS = {"corp": leaving.as_setting()}
        leaving.serves("http://testserver")
        leaving.knows(anna=["acme-leads"])
        inside, begun = sign_in(leaving, "anna").browser, Client()
        address = come_back(leaving, "anna", begun)
    assert is_in(inside)
    for answer in (Client().get(BEGIN), begun.get(address)):
        assert answer.status_code == 503
        assert "Company does not answer" in answer.content.decode()
    assert Client().get("/login/").status_code == 200
    out = inside.post("/logout/", follow=True)
    assert out.status_code == 200 and "may still know you" in out.content.decode()
    assert not is_in(inside)


def test_a_provider_that_is_another_than_the_settings_say_is_refused(
    company: Company, settings: Any, db: None
) -> None:
    settings.PORTAL_PROVIDERS = {"corp": company.as_setting(issuer=f"{company.issuer}/")}
    assert Client().get(BEGIN).status_code == 400


def test_somebody_who_is_here_connects_their_account(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet
) -> None:
    company.knows(olga=["audit"])
    browser = Client()
    browser.force_login(fleet.owner)
    sent = browser.post(BEGIN)
    answer = browser.get(company.vouches(sent["Location"], name="olga"), follow=True)
    assert "You sign in with Company from now on." in answer.content.decode()
    before = roles("olga")
    assert is_in(sign_in(company, "olga").browser)
    assert roles("olga") == before | {("auditor", "")}
    other = Client()
    other.force_login(fleet.finance)
    sent = other.post(BEGIN)
    answer = other.get(company.vouches(sent["Location"], name="olga"))
    assert answer.status_code == 403 and "somebody else here" in answer.content.decode()
    assert "olga" not in answer.content.decode()


def test_a_link_connects_nothing(company: Company, fleet: SmallFleet) -> None:
    browser = Client()
    browser.force_login(fleet.owner)
    assert browser.get(BEGIN)["Location"] == "/"


def test_what_was_disconnected_opens_nothing(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet
) -> None:
    company.knows(anna=["acme-leads"])
    browser = sign_in(company, "anna").browser
    services.disconnect_identity(fleet.admin, identity=Identity.objects.get())
    assert not is_in(browser) and roles("anna") == set()
    assert sign_in(company, "anna").status_code == 403


def test_tokens_end_when_nobody_has_signed_in_at_the_company_for_long(
    rules: dict[str, GroupRule], company: Company
) -> None:
    company.knows(anna=["acme-leads"])
    sign_in(company, "anna")
    anna = User.objects.get(username="anna")
    until = timezone.now() + timedelta(days=300)
    _, text = services.create_api_token(anna, user=anna, name="ci", scope="read", expires_at=until)
    assert services.authenticate_api_token(text) is not None
    User.objects.update(vouched_until=timezone.now() - timedelta(seconds=1))
    assert services.authenticate_api_token(text) is None
    sign_in(company, "anna")
    assert services.authenticate_api_token(text) is not None


def test_a_rule_that_ends_takes_what_it_alone_gave(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet
) -> None:
    services.add_group_rule(fleet.admin, provider="corp", group="chiefs", role=Role.AUDITOR)
    company.knows(anna=["audit"], otto=["audit", "chiefs"], paul=["chiefs"])
    browsers = {name: sign_in(company, name).browser for name in ("anna", "otto", "paul")}
    services.remove_group_rule(fleet.admin, rule=rules["audit"])
    assert {name: is_in(browser) for name, browser in browsers.items()} == {
        "anna": False, "otto": True, "paul": True
    }  # fmt: skip
    assert roles("anna") == set() and roles("otto") == {("auditor", "")}
    assert sign_in(company, "anna").status_code == 403


def test_last_admin_by_a_group_stays_one(
    rules: dict[str, GroupRule], company: Company, fleet: SmallFleet
) -> None:
    company.knows(anna=["platform"])
    sign_in(company, "anna")
    Membership.objects.filter(role=Role.ADMIN).exclude(user__username="anna").delete()
    company.knows(anna=[])
    assert is_in(sign_in(company, "anna").browser)
    assert roles("anna") == {("admin", "")}
    assert AuditEntry.objects.filter(action="role.keep").exists()


@pytest.fixture
def no_passwords(company: Company, settings: Any, fleet: SmallFleet) -> None:
    settings.PORTAL_LOCAL_PASSWORDS = False
    settings.PORTAL_BREAK_GLASS = fleet.admin.username


@pytest.mark.parametrize("door", ["/login/", "/api/v1/login", "/admin/login/"])
def test_without_passwords_one_account_alone_has_one(
    no_passwords: None, fleet: SmallFleet, door: str
) -> None:
    User.objects.update(is_staff=True)  # or one door never opened

    def opens(name: str) -> bool:
        given = {"username": name, "password": PASSWORD}
        more = {"content_type": "application/json"} if door.startswith("/api/") else {}
        browser = Client()
        answer = browser.post(door, given, **more)
        return answer.status_code == 201 or is_in(browser)

    assert not opens(fleet.finance.username)
    assert opens(fleet.admin.username)


def test_the_account_for_emergencies_is_told(no_passwords: None, fleet: SmallFleet) -> None:
    Client().post("/login/", {"username": fleet.admin.username, "password": PASSWORD})
    entry = AuditEntry.objects.get(action="session.break_glass")
    assert "signed in from 127.0.0.1" in entry.after["text"]
    deliver_alerts()
    assert "GPU budgets: the account for emergencies" in [sent.subject for sent in mail.outbox]
    assert Delivery.objects.filter(entry=entry, address=fleet.finance.email).exists()
    numbers = {family.name: family.samples for family in book_families(timezone.now())}
    assert numbers["portal_break_glass_sign_ins"] == (((), 1.0),)


def test_sign_in_page_without_passwords_says_so(no_passwords: None, fleet: SmallFleet) -> None:
    browser = Client()
    assert "The account for emergencies" in browser.get("/login/").content.decode()
    given = {"username": fleet.finance.username, "password": PASSWORD}
    text = browser.post("/login/", given).content.decode()
    assert "Passwords are switched off here" in text
