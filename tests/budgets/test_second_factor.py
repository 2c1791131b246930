"""Codes by time and recovery codes: taken once, sealed or hashed, removed with everybody told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pyotp
import pytest
import time_machine
from cryptography.fernet import Fernet
from django.core import mail
from django.core.management import CommandError, call_command

from budgets import services
from budgets.errors import NotAllowed, Rejected
from budgets.models import ApiToken, AuditEntry, RecoveryCode, Role, SecondFactor, User
from budgets.selectors import approvals as read
from budgets.services import second_factor
from budgets.services.alerts import deliver_alerts
from tests.builders import SmallFleet
from tests.second_factors import App, set_up

pytestmark = pytest.mark.django_db
NOON = "2026-11-22T12:00:10Z"


@pytest.fixture(autouse=True)
def noon() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOON, tick=False) as clock:
        yield clock


def test_codes_are_those_of_the_standard(fleet: SmallFleet, monkeypatch, noon):
    """RFC 6238, appendix B, SHA-1, the last six of its eight digits."""
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    monkeypatch.setattr(pyotp, "random_base32", lambda: secret)
    assert services.begin_second_factor(fleet.owner).secret == secret
    noon.move_to("2005-03-18T01:58:29Z", tick=False)
    services.confirm_second_factor(fleet.owner, code="081804")
    noon.move_to("2009-02-13T23:31:30Z", tick=False)
    assert services.use_code(fleet.owner, code="005 924")
    assert not services.use_code(fleet.owner, code="005924")


@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_code_near_now_is_taken_once(fleet: SmallFleet, noon, steps: int):
    app = set_up(fleet.owner)
    noon.shift(timedelta(minutes=5))
    assert services.use_code(fleet.owner, code=app.code(steps=steps))
    assert not services.use_code(fleet.owner, code=app.code(steps=steps))
    assert not services.use_code(fleet.owner, code=app.code(steps=-1)), "nor an earlier one"


@pytest.mark.parametrize("steps", [-2, 2])
def test_a_code_of_another_time_is_not_taken(fleet: SmallFleet, noon, steps: int):
    app = set_up(fleet.owner)
    noon.shift(timedelta(minutes=5))
    assert not services.use_code(fleet.owner, code=app.code(steps=steps))


def test_the_code_that_confirmed_it_opens_nothing(fleet: SmallFleet):
    app = App(services.begin_second_factor(fleet.owner).secret)
    services.confirm_second_factor(fleet.owner, code=app.code())
    assert not services.use_code(fleet.owner, code=app.code())


@pytest.mark.parametrize("code", ["", "12345", "1234567", "abcdef", "١٢٣٤٥٦", "\x00" * 6, "-" * 40])
def test_what_is_no_code_is_not_taken(fleet: SmallFleet, code: str):
    set_up(fleet.owner)
    assert not services.use_code(fleet.owner, code=code)


def test_nothing_is_asked_for_until_a_code_confirms_it(fleet: SmallFleet):
    first = services.begin_second_factor(fleet.owner)
    second = services.begin_second_factor(fleet.owner)
    assert not services.has_second_factor(fleet.owner)
    assert not services.use_code(fleet.owner, code=App(second.secret).code())
    with pytest.raises(Rejected, match="not the code of now"):
        services.confirm_second_factor(fleet.owner, code=App(first.secret).code())
    services.confirm_second_factor(fleet.owner, code=App(second.secret).code())
    assert services.has_second_factor(fleet.owner)
    with pytest.raises(Rejected, match="have a second factor already"):
        services.begin_second_factor(fleet.owner)
    with pytest.raises(Rejected, match="Begin again"):
        services.confirm_second_factor(fleet.owner, code=App(second.secret).code(steps=1))


def test_setting_it_up_ends_sessions_and_no_token(fleet: SmallFleet):
    until = services.utc_now() + timedelta(days=1)
    _, token = services.create_api_token(
        fleet.owner, user=fleet.owner, name="ci", scope="read", expires_at=until
    )
    before = fleet.owner.get_session_auth_hash()
    set_up(fleet.owner)
    assert User.objects.get(pk=fleet.owner.pk).get_session_auth_hash() != before
    assert services.authenticate_api_token(token) is not None


def test_recovery_codes_open_once_each(fleet: SmallFleet):
    app = set_up(fleet.owner)
    set_up(fleet.admin)
    assert len(set(app.recovery)) == 10
    assert services.use_code(fleet.owner, code=f" {app.recovery[3].upper()} ")
    assert not services.use_code(fleet.owner, code=app.recovery[3])
    assert not services.use_code(fleet.admin, code=app.recovery[4]), "nor anybody else's account"
    assert services.second_factor_of(fleet.owner).codes_left == 9
    entry = AuditEntry.objects.get(action="second_factor.recover")
    assert (entry.subject, entry.after) == ("user:olga", {"codes_left": 9})
    fresh = services.renew_recovery_codes(fleet.owner)
    assert not services.use_code(fleet.owner, code=app.recovery[0])
    assert services.use_code(fleet.owner, code=fresh[0])


def test_the_database_has_neither_the_secret_nor_a_recovery_code(fleet: SmallFleet):
    app = set_up(fleet.owner)
    factor = SecondFactor.objects.get()
    kept = [
        bytes(factor.secret_sealed).decode(),
        *RecoveryCode.objects.values_list("digest", flat=True),
    ]
    kept += [str(row) for row in AuditEntry.objects.values()]
    told = " ".join(kept)
    assert app.secret not in told
    for code in app.recovery:
        assert code not in told and code.replace("-", "") not in told


def test_after_a_hundred_wrong_codes_a_recovery_code_alone_opens(fleet: SmallFleet, noon):
    app = set_up(fleet.owner)
    SecondFactor.objects.update(misses=second_factor.MOST_MISSES - 1)
    assert not services.use_code(fleet.owner, code="000000")
    assert AuditEntry.objects.get(action="second_factor.lock").subject == "user:olga"
    noon.shift(timedelta(days=1))
    assert not services.use_code(fleet.owner, code=app.code())
    assert services.use_code(fleet.owner, code=app.recovery[0])
    assert services.use_code(fleet.owner, code=app.code())


def test_a_right_code_forgets_the_wrong_ones(fleet: SmallFleet):
    app = set_up(fleet.owner)
    assert not services.use_code(fleet.owner, code="000000")
    assert SecondFactor.objects.get().misses == 1
    assert services.use_code(fleet.owner, code=app.code())
    assert SecondFactor.objects.get().misses == 0


def test_one_who_gives_it_up_has_none(fleet: SmallFleet):
    set_up(fleet.owner)
    services.drop_second_factor(fleet.owner)
    assert not SecondFactor.objects.exists() and not RecoveryCode.objects.exists()
    actions = AuditEntry.objects.filter(action__startswith="second_factor.").order_by("pk")
    assert list(actions.values_list("action", "actor_name")) == [
        ("second_factor.set_up", "olga"),
        ("second_factor.drop", "olga"),
    ]
    with pytest.raises(Rejected, match="has no second factor"):
        services.drop_second_factor(fleet.owner)


# --- removed by an admin


def test_an_admin_removes_it_and_the_person_is_told(fleet: SmallFleet):
    until = services.utc_now() + timedelta(days=1)
    set_up(fleet.owner)
    services.create_api_token(
        fleet.owner, user=fleet.owner, name="ci", scope="read", expires_at=until
    )
    before = fleet.owner.get_session_auth_hash()
    services.remove_second_factor(fleet.admin, user=fleet.owner, reason="lost the phone")
    assert not services.has_second_factor(fleet.owner)
    assert User.objects.get(pk=fleet.owner.pk).get_session_auth_hash() != before
    assert not ApiToken.objects.filter(user=fleet.owner, revoked_at=None).exists()
    entry = AuditEntry.objects.get(action="second_factor.remove")
    assert (entry.actor, entry.reason) == (fleet.admin, "lost the phone")
    assert entry.after["tokens_ended"] == 1
    deliver_alerts()
    (letter,) = mail.outbox
    assert letter.to == ["olga@example.org"]
    assert "ada removed the second factor of olga." in letter.body
    assert User.objects.get(pk=fleet.owner.pk).approves_from is None


def test_of_finance_all_of_finance_is_told_and_the_person_approves_nothing_for_a_day(
    fleet: SmallFleet,
):
    set_up(fleet.finance)
    services.grant_role(None, user=fleet.owner, role=Role.FINANCE)
    services.remove_second_factor(fleet.admin, user=fleet.finance, reason="lost")
    held = User.objects.get(pk=fleet.finance.pk).approves_from
    assert held == services.utc_now() + timedelta(hours=24)
    words = "ada removed the second factor of fin. fin cannot approve anything until"
    assert read.told_to_finance(fleet.auditor)[0].after["text"].startswith(words)
    deliver_alerts()
    told = {address for letter in mail.outbox if words in letter.body for address in letter.to}
    assert told == {"fin@example.org", "olga@example.org"}


def test_nobody_but_an_admin_removes_that_of_somebody_else(fleet: SmallFleet):
    set_up(fleet.owner)
    set_up(fleet.admin)
    for actor in (fleet.owner, fleet.finance, fleet.auditor):
        with pytest.raises(NotAllowed):
            services.remove_second_factor(actor, user=fleet.admin, reason="x")
    with pytest.raises(NotAllowed, match="asks for password and code"):
        services.remove_second_factor(fleet.admin, user=fleet.admin, reason="x")
    with pytest.raises(Rejected, match="Say why"):
        services.remove_second_factor(fleet.admin, user=fleet.owner, reason=" ")
    assert SecondFactor.objects.count() == 2


def test_the_server_s_command_removes_it_where_no_other_admin_is(fleet: SmallFleet, capsys):
    set_up(fleet.finance)
    with pytest.raises(CommandError, match="Nobody is called 'nope' here"):
        call_command("remove_second_factor", "nope", reason="x")
    call_command("remove_second_factor", "fin", reason="lost")
    assert "A password alone opens the account of fin again." in capsys.readouterr().out
    assert User.objects.get(pk=fleet.finance.pk).approves_from is not None
    words = "An administrator of the server removed the second factor of fin."
    assert read.told_to_finance(fleet.auditor)[0].after["text"].startswith(words)
    with pytest.raises(CommandError, match="fin has no second factor"):
        call_command("remove_second_factor", "fin", reason="lost")


# --- keys


def test_key_rotation_reseals_it_and_the_old_key_can_go(fleet: SmallFleet, settings, capsys):
    app = set_up(fleet.owner)
    new = Fernet.generate_key().decode()
    settings.PORTAL_CREDENTIAL_KEYS = [new, *settings.PORTAL_CREDENTIAL_KEYS]
    call_command("reseal_credentials")
    assert "the second factors of 1 people" in capsys.readouterr().out
    settings.PORTAL_CREDENTIAL_KEYS = [new]
    assert services.use_code(fleet.owner, code=app.code())


def test_while_no_key_opens_it_a_recovery_code_does(fleet: SmallFleet, settings, capsys):
    app = set_up(fleet.owner)
    settings.PORTAL_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    assert not services.use_code(fleet.owner, code=app.code())
    with pytest.raises(CommandError, match=r"Nothing was changed.* second factors of olga\."):
        call_command("reseal_credentials")
    assert services.broken_second_factors() == ["olga"]
    assert services.use_code(fleet.owner, code=app.recovery[0])
    services.remove_second_factor(fleet.admin, user=fleet.owner, reason="keys are lost")
    assert services.broken_second_factors() == []
