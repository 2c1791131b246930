"""People, roles, tokens, the first admin."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from budgets import selectors, services
from budgets.errors import NotAllowed, Rejected
from budgets.models import ApiToken, AuditEntry, Membership, Role, User
from budgets.models.base import ImmutableError
from tests.builders import PASSWORD, SmallFleet, line
from tests.databases import as_owner

pytestmark = pytest.mark.django_db


def test_first_admin_is_made_once(monkeypatch, capsys):
    for name, text in (("USERNAME", "ada"), ("EMAIL", "a@b.org"), ("PASSWORD", PASSWORD)):
        monkeypatch.setenv(f"PORTAL_ADMIN_{name}", text)
    call_command("create_admin")
    user = User.objects.get()
    assert selectors.roles_of(user).is_admin and user.check_password(PASSWORD)
    assert "ada is the platform admin" in capsys.readouterr().out
    with pytest.raises(CommandError, match="has an admin already"):
        call_command("create_admin", username="bob")
    assert User.objects.count() == 1


def test_first_admin_with_a_weak_password_is_refused(monkeypatch):
    monkeypatch.setenv("PORTAL_ADMIN_PASSWORD", "short")
    with pytest.raises(CommandError, match="password: "):
        call_command("create_admin", username="ada", email="a@b.org")
    assert not User.objects.exists()


def test_first_admin_without_terminal_names_the_settings(monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(CommandError, match="PORTAL_ADMIN_PASSWORD"):
        call_command("create_admin", username="ada", email="a@b.org")


def test_role_given_twice_is_one_row(fleet: SmallFleet):
    first = services.grant_role(fleet.admin, user=fleet.owner, role=Role.VIEWER, account=fleet.acme)
    second = services.grant_role(
        fleet.admin, user=fleet.owner, role=Role.VIEWER, account=fleet.acme
    )
    assert first == second
    with pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.create(user=fleet.owner, role=Role.VIEWER, account=fleet.acme)


def test_role_scope_must_fit_the_role(fleet: SmallFleet):
    with pytest.raises(Rejected):
        services.grant_role(fleet.admin, user=fleet.owner, role=Role.ADMIN, account=fleet.acme)
    with pytest.raises(Rejected):
        services.grant_role(fleet.admin, user=fleet.owner, role=Role.OWNER)


def test_last_admin_cannot_be_revoked(fleet: SmallFleet):
    membership = Membership.objects.get(user=fleet.admin)
    with pytest.raises(Rejected, match="This would leave the portal without"):
        services.revoke_role(fleet.admin, membership=membership)
    services.grant_role(fleet.admin, user=fleet.finance, role=Role.ADMIN)
    services.revoke_role(fleet.admin, membership=membership)
    assert not selectors.roles_of(fleet.admin).is_admin


def test_deactivated_admin_has_no_roles(fleet: SmallFleet):
    fleet.admin.is_active = False
    assert selectors.roles_of(fleet.admin) == selectors.RoleSet(user_id=None)


def test_token_is_shown_once_and_kept_as_digest(fleet: SmallFleet):
    until = selectors.utc_now() + timedelta(days=1)
    token, plaintext = services.create_api_token(
        fleet.owner, user=fleet.owner, name="ci", scope="read", expires_at=until
    )
    assert plaintext not in str(ApiToken.objects.values().get())
    assert plaintext not in str(list(AuditEntry.objects.values()))
    assert services.authenticate_api_token(plaintext) == token
    assert services.authenticate_api_token(plaintext + "x") is None
    ApiToken.objects.update(expires_at=selectors.utc_now())
    assert services.authenticate_api_token(plaintext) is None
    ApiToken.objects.update(expires_at=until)
    User.objects.filter(pk=fleet.owner.pk).update(is_active=False)
    assert services.authenticate_api_token(plaintext) is None
    User.objects.filter(pk=fleet.owner.pk).update(is_active=True)
    with pytest.raises(NotAllowed):
        services.revoke_api_token(fleet.finance, token=token)
    services.revoke_api_token(fleet.owner, token=token)
    assert services.authenticate_api_token(plaintext) is None


def test_nobody_makes_a_token_for_somebody_else(fleet: SmallFleet):
    terms = {"name": "x", "scope": "read", "expires_at": selectors.utc_now() + timedelta(days=1)}
    for actor, user in ((fleet.owner, fleet.admin), (fleet.admin, fleet.owner)):
        with pytest.raises(NotAllowed):
            services.create_api_token(actor, user=user, **terms)


ADMIN_ONLY = {
    "create_user": lambda f: {"username": "x", "email": "x@y.org"},
    "grant_role": lambda f: {"user": f.owner, "role": Role.ADMIN},
    "create_account": lambda f: {"slug": "x", "name": "X"},
    "edit_account": lambda f: {"account": f.acme, "name": "X"},
    "archive_account": lambda f: {"account": f.acme, "reason": "x"},
    "create_flavor": lambda f: {"slug": "x", "name": "X"},
    "edit_flavor": lambda f: {"flavor": f.flavors["l4"], "name": "X"},
    "archive_flavor": lambda f: {"flavor": f.flavors["l4"], "reason": "x"},
    "create_workspace": lambda f: {
        "account": f.acme,
        "slug": "x",
        "name": "X",
        "home_flavor": f.flavors["l4"],
    },
    "edit_workspace": lambda f: {"workspace": f.vision, "name": "X"},
    "create_topology": lambda f: {"slug": "x", "name": "X", "levels": ["rack"]},
    "give_topology": lambda f: {
        "flavor": f.flavors["l4"],
        "topology": services.create_topology(None, slug="y", name="Y", levels=["rack"]),
    },
    "archive_topology": lambda f: {
        "topology": services.create_topology(None, slug="y", name="Y", levels=["rack"]),
        "reason": "x",
    },
    "weigh_account": lambda f: {"account": f.acme, "weight": Decimal(2)},
    "weigh_workspace": lambda f: {"workspace": f.vision, "weight": Decimal(2)},
    "archive_workspace": lambda f: {"workspace": f.vision, "reason": "x"},
    "set_capacity": lambda f: {"cluster": "gpu-east", "flavor": f.flavors["l4"], "gpus": 99},
    "retire_capacity": lambda f: {"cluster": "gpu-east", "reason": "x"},
    "create_pool": lambda f: {"slug": "x", "name": "X"},
    "set_envelope": lambda f: {
        "account": f.acme,
        "flavor": f.flavors["l4"],
        "committed": 99,
        "ceiling": 99,
        "pool": 99,
    },
}


@pytest.mark.parametrize("service", ADMIN_ONLY)
@pytest.mark.parametrize("who", ["owner", "finance", "auditor"])
def test_setting_up_is_for_admins(fleet: SmallFleet, service: str, who: str):
    given = ADMIN_ONLY[service](fleet)
    before = AuditEntry.objects.count()
    with pytest.raises(NotAllowed):
        getattr(services, service)(getattr(fleet, who), **given)
    assert AuditEntry.objects.count() == before


@pytest.mark.parametrize("service", ADMIN_ONLY)
def test_setting_up_works_for_an_admin_and_is_in_the_log(fleet: SmallFleet, service: str):
    given = ADMIN_ONLY[service](fleet)
    before = AuditEntry.objects.count()
    try:
        getattr(services, service)(fleet.admin, **given)
    except Rejected as error:
        assert {fault.code for fault in error.faults} <= {"open_workspace"}
    else:
        newest = AuditEntry.objects.first()
        assert AuditEntry.objects.count() > before
        assert newest.actor == fleet.admin


def test_audit_entries_are_never_changed(fleet: SmallFleet):
    entry = AuditEntry.objects.first()
    for change in (
        entry.save,
        entry.delete,
        lambda: AuditEntry.objects.update(reason="x"),
        lambda: AuditEntry.objects.all().delete(),
    ):
        with pytest.raises(ImmutableError):
            change()


@pytest.mark.postgres
def test_database_itself_refuses_to_change_the_audit_log(fleet: SmallFleet):
    with (
        as_owner(),
        pytest.raises(IntegrityError, match="never changed"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("UPDATE budgets_auditentry SET reason = 'x'")


@pytest.mark.postgres
def test_database_itself_refuses_to_change_a_budget(fleet: SmallFleet):
    fleet.revise(fleet.vision, line("h100", 1))
    for statement in (
        "UPDATE budgets_budgetline SET ceiling = 99",
        "DELETE FROM budgets_budgetline",
    ):
        with (
            as_owner(),
            pytest.raises(IntegrityError, match="never changed"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)


def test_admin_site_shows_tables_and_changes_none(client, fleet: SmallFleet, settings):
    services.grant_role(None, user=fleet.admin, role=Role.ADMIN)
    User.objects.filter(pk=fleet.admin.pk).update(is_staff=True, is_superuser=True)
    from django.contrib import admin

    request = type("Request", (), {"user": fleet.admin, "GET": {}})()
    assert len(admin.site._registry) > 30
    for model, site in admin.site._registry.items():
        may = (site.has_add_permission, site.has_change_permission, site.has_delete_permission)
        assert [deed(request) for deed in may] == [False] * 3, model
        assert not site.get_actions(request), model


def _opens(user: User) -> tuple[str, str]:
    """A token of somebody, and what their sessions have to know."""
    until = selectors.utc_now() + timedelta(days=1)
    _, text = services.create_api_token(user, user=user, name="ci", scope="read", expires_at=until)
    return text, user.get_session_auth_hash()


WITHDRAWALS = {
    "user.set_password": lambda f: services.set_password(
        f.admin, user=f.owner, password="other good words 8"
    ),
    "role.revoke": lambda f: services.revoke_role(f.admin, membership=f.owner.memberships.get()),
    "user.deactivate": lambda f: services.deactivate_user(f.admin, user=f.owner, reason="left"),
}


@pytest.mark.parametrize("action", WITHDRAWALS)
def test_access_that_is_withdrawn_ends_sessions_and_tokens(fleet: SmallFleet, action: str):
    token, session = _opens(fleet.owner)
    others, _ = _opens(fleet.finance)
    WITHDRAWALS[action](fleet)
    assert services.authenticate_api_token(token) is None
    assert User.objects.get(pk=fleet.owner.pk).get_session_auth_hash() != session
    assert services.authenticate_api_token(others) is not None
    entry = AuditEntry.objects.filter(action=action).latest("pk")
    assert (entry.subject, entry.after["tokens_ended"]) == ("user:olga", 1)


def test_last_admin_cannot_be_deactivated(fleet: SmallFleet):
    with pytest.raises(Rejected, match="This would leave the portal without"):
        services.deactivate_user(fleet.admin, user=fleet.admin, reason="tired")
    with pytest.raises(Rejected, match="Say why"):
        services.deactivate_user(fleet.admin, user=fleet.owner, reason=" ")
    services.grant_role(fleet.admin, user=fleet.finance, role=Role.ADMIN)
    services.deactivate_user(fleet.finance, user=fleet.admin, reason="tired")
    with pytest.raises(Rejected, match="This would leave the portal without"):
        services.revoke_role(
            fleet.finance, membership=fleet.finance.memberships.get(role=Role.ADMIN)
        )


def test_first_admin_without_the_role_is_no_admin_any_more(fleet: SmallFleet):
    first = User.objects.get(pk=fleet.admin.pk)
    first.is_superuser = first.is_staff = True
    first.save()
    services.grant_role(fleet.admin, user=fleet.finance, role=Role.ADMIN)
    services.revoke_role(fleet.finance, membership=first.memberships.get(role=Role.ADMIN))
    left = User.objects.get(pk=first.pk)
    assert not selectors.roles_of(left).is_admin
    assert not left.is_superuser and not left.is_staff
