"""What every write does first and last: ask for the right, check the row, lock in order."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models

from budgets.errors import Fault, NotAllowed, Rejected
from budgets.models import Account, Flavor, User
from budgets.selectors import RoleSet, roles_of

NO_LIMITS = RoleSet(user_id=None, is_admin=True)


def roles_for(actor: User | None) -> RoleSet:
    """Roles of an actor; the portal itself acts as an admin."""
    return NO_LIMITS if actor is None else roles_of(actor)


def require_admin(actor: User | None) -> None:
    """Let only a platform admin pass.

    Raises:
        NotAllowed: For everybody else.
    """
    if not roles_for(actor).is_admin:
        raise NotAllowed("Only a platform admin can do this.")


def require_reason(reason: str) -> None:
    """Ask for a reason.

    Raises:
        Rejected: It is empty.
    """
    if not reason.strip():
        raise Rejected([Fault("reason", "reason_required", "Say why; it is kept in the log.")])


def faults_of(error: ValidationError) -> list[Fault]:
    """Turn Django's validation error into faults beside their fields."""
    if not hasattr(error, "error_dict"):
        return [Fault("", item.code or "invalid", _sentence(item)) for item in error.error_list]
    return [
        Fault("" if name == NON_FIELD_ERRORS else name, item.code or "invalid", _sentence(item))
        for name, items in error.error_dict.items()
        for item in items
    ]


def _sentence(error: ValidationError) -> str:
    return " ".join(error.messages)


def save_checked(row: models.Model, *, also: Iterable[Fault] = ()) -> None:
    """Check a row in full and save it.

    Args:
        row: New or changed.
        also: Faults that the caller found; told together with the row's own.

    Raises:
        Rejected: Everything that is wrong, at once.
    """
    faults = list(also)
    try:
        row.full_clean()
    except ValidationError as error:
        faults += faults_of(error)
    if faults:
        raise Rejected(faults)
    try:
        row.save()
    except ValidationError as error:
        raise Rejected(faults_of(error)) from error


def lock_accounts(*accounts: Account) -> None:
    """Hold account rows until the transaction ends, in the order of keys.

    Envelopes are sums over an account: two owners who save at once must not both fit.
    """
    keys = sorted({account.pk for account in accounts})
    list(Account.objects.select_for_update().filter(pk__in=keys).order_by("pk").values("pk"))


def lock_flavors(slugs: Iterable[str]) -> None:
    """Hold flavor rows until the transaction ends, in the order of keys.

    The fleet check is a sum over all accounts: two promises of the same flavor wait for each
    other. Taken after accounts and before pools and budgets, everywhere.
    """
    wanted = list(slugs)
    list(Flavor.objects.select_for_update().filter(slug__in=wanted).order_by("pk").values("pk"))
