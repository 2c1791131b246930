"""What every write does first and last: ask for the right, check the row, lock in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeAlias, TypeVar
from unicodedata import category

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models, transaction

from budgets.errors import Fault, NotAllowed, Rejected, reject_any
from budgets.models import Account, Flavor, User
from budgets.selectors import RoleSet, roles_of

_CONTROL: Final = frozenset({"Cc", "Zl", "Zp"})
NO_LIMITS = RoleSet(user_id=None, is_admin=True, is_finance=True)
P = ParamSpec("P")
R = TypeVar("R")
Write: TypeAlias = Callable[Concatenate[User | None, P], R]


def roles_for(actor: User | None) -> RoleSet:
    """Roles of an actor; the portal itself acts as an admin and as finance."""
    return NO_LIMITS if actor is None else roles_of(actor)


def require_admin(actor: User | None) -> None:
    """Let only a platform admin pass.

    Raises:
        NotAllowed: For everybody else.
    """
    if not roles_for(actor).is_admin:
        raise NotAllowed("Only a platform admin can do this.")


def require_finance(actor: User | None) -> None:
    """Let only finance pass; a platform admin is none by default.

    Raises:
        NotAllowed: For everybody else.
    """
    if not roles_for(actor).is_finance:
        raise NotAllowed(
            "Only the finance role can do this; platform admins do not have it by default."
        )


def require_office(actor: User | None, *, deed: str) -> None:
    """Let only finance and platform admins pass, with what moves no money.

    Raises:
        NotAllowed: For everybody else, in the words of the deed.
    """
    roles = roles_for(actor)
    if not (roles.is_admin or roles.is_finance):
        raise NotAllowed(f"Only finance or a platform admin can {deed}.")


REQUIRED: Final[dict[str, str]] = {}
"""Write → who is asked for; the register of everything that is for one role alone."""


def _only(require: Callable[[User | None], None]) -> Callable[[Write[P, R]], Write[P, R]]:
    def decorate(write: Write[P, R]) -> Write[P, R]:
        @wraps(write)
        @transaction.atomic
        def allowed(actor: User | None, /, *args: P.args, **kwargs: P.kwargs) -> R:
            require(actor)
            return write(actor, *args, **kwargs)

        REQUIRED[f"{write.__module__}.{write.__qualname__}"] = require.__name__
        return allowed

    return decorate


by_admin = _only(require_admin)
"""One atomic write of a platform admin, or of the portal itself; NotAllowed for everybody else."""
by_finance = _only(require_finance)
"""Likewise of finance alone."""


def require_reason(reason: str) -> None:
    """Ask for a reason.

    Raises:
        Rejected: It is empty.
    """
    if not reason.strip():
        raise Rejected.because("reason", "reason_required", "Say why; it is kept in the log.")


def faults_of(error: ValidationError) -> list[Fault]:
    """Turn Django's validation error into faults beside their fields."""
    found = error.error_dict if hasattr(error, "error_dict") else {"": error.error_list}
    return [
        Fault(
            "" if name == NON_FIELD_ERRORS else name,
            item.code or "invalid",
            " ".join(item.messages),
        )
        for name, items in found.items()
        for item in items
    ]


def save_checked(row: models.Model, *, also: Iterable[Fault] = ()) -> None:
    """Check a row in full and save it.

    Args:
        row: New or changed.
        also: Faults that the caller found; told together with the row's own.

    Raises:
        Rejected: Everything that is wrong, at once.
    """
    faults = [*also, *_line_faults(row)]
    try:
        row.full_clean()
    except ValidationError as error:
        faults += faults_of(error)
    reject_any(faults)
    try:
        row.save()
    except ValidationError as error:
        raise Rejected(faults_of(error)) from error


def _line_faults(row: models.Model) -> Iterator[Fault]:
    """Names go into lines of mails, files and logs: one that breaks the line is refused."""
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if not isinstance(field, models.CharField) or not isinstance(value, str):
            continue
        if any(category(character) in _CONTROL for character in value):
            words = f"{value[:60]!r} has a line break or another control character. Leave it out."
            yield Fault(field.name, "control_character", words)


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
