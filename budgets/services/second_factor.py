"""A second factor beside a password: codes by time (RFC 6238), and recovery codes.

A code is taken once: the row is locked, and the step of the last one is kept. The secret is sealed
as kubeconfigs are, and nobody is shown it again; of recovery codes only digests are kept.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyotp
import structlog
from cryptography.fernet import InvalidToken
from django.db import transaction
from django.db.models import Count, Q
from django.utils.crypto import constant_time_compare

from budgets.errors import NotAllowed, Rejected
from budgets.models import Membership, RecoveryCode, Role, SecondFactor, User
from budgets.sealing import usable_keys
from budgets.selectors.clock import utc_now
from budgets.services.access import end_access
from budgets.services.alerts.webhooks import tell_by_mail
from budgets.services.audit import audit
from budgets.services.finance import tell_finance
from budgets.services.guards import by_admin, require_reason

log = structlog.stdlib.get_logger(__name__)

ISSUER: Final = "GPU budgets"
RECOVERY_CODES: Final = 10
MOST_MISSES: Final = 100
"""Wrong codes in a row, after which only a recovery code opens: a password alone is not enough to
try all the million."""
STEP_S: Final = 30
_NEAR: Final = (0, -1, 1)
"""Steps whose code is taken: clocks differ, and people type slowly."""
_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"


@dataclass(frozen=True, slots=True)
class Begun:
    """What an app has to be given, this one time.

    Attributes:
        secret: In base32, to be typed.
        address: ``otpauth://…``, to be read from a picture.
    """

    secret: str
    address: str


def second_factor_of(user: User) -> SecondFactor | None:
    """What is asked for after this person's password; None: nothing. One query.

    ``codes_left`` says how many recovery codes are unused.
    """
    unused = Count("recovery", filter=Q(recovery__used_at=None))
    found = SecondFactor.objects.annotate(codes_left=unused)
    return found.filter(user=user, confirmed_at__isnull=False).first()


def has_second_factor(user: User) -> bool:
    """Whether a code is asked for after this person's password. One query."""
    return SecondFactor.objects.filter(user=user, confirmed_at__isnull=False).exists()


@transaction.atomic
def begin_second_factor(actor: User) -> Begun:
    """Make a secret; nothing is asked for until a code of it comes. A begun one is forgotten.

    Whoever calls this has asked for the password.

    Raises:
        Rejected: There is a second factor already.
    """
    secret = pyotp.random_base32()
    sealed = usable_keys().encrypt(secret.encode())
    SecondFactor.objects.get_or_create(user=actor, defaults={"secret_sealed": sealed})
    factor = _locked(actor)
    if factor is None or factor.confirmed_at is not None:
        words = "You have a second factor already. Remove it before you set up another one."
        raise Rejected.because("", "there", words)
    factor.secret_sealed = sealed
    factor.save(update_fields=["secret_sealed"])
    address = pyotp.TOTP(secret).provisioning_uri(name=actor.get_username(), issuer_name=ISSUER)
    return Begun(secret, address)


@transaction.atomic
def confirm_second_factor(actor: User, *, code: str) -> list[str]:
    """Ask for codes from now on; sessions that a password alone opened end, tokens go on.

    Returns:
        Recovery codes, which nobody is shown again.

    Raises:
        Rejected: The code is wrong, or nothing was begun.
    """
    factor = _locked(actor)
    if factor is None or factor.confirmed_at is not None:
        raise Rejected.because("", "not_begun", "Begin again; this set-up is not open any more.")
    step = _step_of(factor, code)
    if step is None:
        words = (
            "This is not the code of now. Check that the clock of your phone is right, and type "
            "the next code."
        )
        raise Rejected.because("code", "wrong_code", words)
    factor.confirmed_at, factor.last_step = utc_now(), step
    factor.save()
    actor.access_epoch += 1
    actor.save(update_fields=["access_epoch"])
    audit(actor, "second_factor.set_up", actor)
    return _new_codes(factor)


@transaction.atomic
def use_code(user: User, *, code: str) -> bool:
    """Take a code of the app or a recovery code; each is taken once, however many come at once."""
    factor = _locked(user)
    if factor is None or factor.confirmed_at is None:
        return False
    take = _take_step if _is_of_app(code) else _take_recovery_code
    is_right = take(factor, code)
    factor.misses = 0 if is_right else factor.misses + 1
    factor.save(update_fields=["last_step", "misses"])
    if factor.misses == MOST_MISSES:
        audit(None, "second_factor.lock", user, after={"wrong_codes": MOST_MISSES})
    return is_right


@transaction.atomic
def renew_recovery_codes(actor: User) -> list[str]:
    """Ten new recovery codes in place of all earlier ones.

    Whoever calls this has asked for the password and a code.

    Raises:
        Rejected: There is no second factor.
    """
    factor = _confirmed(actor)
    factor.recovery.all().delete()
    audit(actor, "second_factor.new_codes", actor)
    return _new_codes(factor)


@transaction.atomic
def drop_second_factor(actor: User) -> None:
    """Give up one's own second factor.

    Whoever calls this has asked for the password and a code.

    Raises:
        Rejected: There is none.
    """
    _confirmed(actor).delete()
    audit(actor, "second_factor.drop", actor)


@by_admin
def remove_second_factor(actor: User | None, *, user: User, reason: str) -> User:
    """Remove somebody's second factor, who has lost it; sessions and tokens end.

    The person is told. Of finance all of finance is, and the person approves nothing for a day.

    Raises:
        NotAllowed: It is one's own, which is asked for password and code.
        Rejected: No reason, or there is none.
    """
    require_reason(reason)
    if actor is not None and actor.pk == user.pk:
        words = "Remove your own second factor on its page, which asks for password and code."
        raise NotAllowed(words)
    _confirmed(user).delete()
    after = end_access(user)
    who = actor.get_username() if actor else "An administrator of the server"
    told = {
        "text": f"{who} removed the second factor of {user}.",
        "about": "your second factor",
        "at": "/second-factor/",
    }
    entry = audit(actor, "second_factor.remove", user, reason=reason, after=after | told)
    if Membership.objects.filter(user=user, role=Role.FINANCE).exists():
        what = f"removed the second factor of {user}"
        tell_finance(actor, user=user, what=what, holds=True, by_group="" if actor else who)
    else:
        tell_by_mail([user.email], entry)
    return user


@transaction.atomic
def reseal_second_factors() -> int:
    """Seal every secret that a key opens with the newest key; how many those are."""
    keys, count = usable_keys(), 0
    for factor in SecondFactor.objects.select_for_update().order_by("pk"):
        with suppress(InvalidToken):
            factor.secret_sealed = keys.rotate(bytes(factor.secret_sealed))
            factor.save(update_fields=["secret_sealed"])
            count += 1
    return count


def broken_second_factors() -> list[str]:
    """User names of people whose secret no key opens. One query."""
    rows = SecondFactor.objects.select_related("user").order_by("user__username")
    return [row.user.get_username() for row in rows if _secret(row) is None]


def _locked(user: User) -> SecondFactor | None:
    return SecondFactor.objects.select_for_update().filter(user=user).first()


def _confirmed(user: User) -> SecondFactor:
    factor = _locked(user)
    if factor is None or factor.confirmed_at is None:
        raise Rejected.because("", "none", f"{user} has no second factor.")
    return factor


def _is_of_app(code: str) -> bool:
    plain = "".join(code.split())
    return len(plain) == 6 and plain.isascii() and plain.isdigit()


def _take_step(factor: SecondFactor, code: str) -> bool:
    step = _step_of(factor, code) if factor.misses < MOST_MISSES else None
    if step is None or step <= factor.last_step:
        return False
    factor.last_step = step
    return True


def _take_recovery_code(factor: SecondFactor, code: str) -> bool:
    unused = factor.recovery.filter(used_at=None)
    if not unused.filter(digest=_digest(_plain(code))).update(used_at=utc_now()):
        return False
    audit(factor.user, "second_factor.recover", factor.user, after={"codes_left": unused.count()})
    return True


def _step_of(factor: SecondFactor, code: str) -> int | None:
    """The step near now whose code this is."""
    secret = _secret(factor)
    if secret is None:
        log.error("second_factor_unreadable", username=factor.user.get_username())
        return None
    now = int(utc_now().timestamp()) // STEP_S
    app, plain = pyotp.HOTP(secret), "".join(code.split())
    steps = (now + off for off in _NEAR)
    near = [step for step in steps if constant_time_compare(app.at(step), plain)]
    return near[0] if near else None


def _secret(factor: SecondFactor) -> str | None:
    """In base32; None where no key opens it."""
    try:
        return usable_keys().decrypt(bytes(factor.secret_sealed)).decode()
    except InvalidToken:
        return None


def _new_codes(factor: SecondFactor) -> list[str]:
    codes = [
        "-".join("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(4))
        for _ in range(RECOVERY_CODES)
    ]
    rows = [RecoveryCode(factor=factor, digest=_digest(_plain(code))) for code in codes]
    RecoveryCode.objects.bulk_create(rows)
    return codes


def _plain(code: str) -> str:
    return "".join(letter for letter in code.lower() if letter in _LETTERS)


def _digest(plain: str) -> str:
    return hashlib.sha256(plain.encode()).hexdigest()
