"""People, their roles and their API tokens."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q

from budgets.errors import Fault, NotAllowed, Rejected, reject_any
from budgets.models import Account, ApiToken, Membership, Role, User, Workspace
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.finance import require_fair_grant, tell_finance
from budgets.services.guards import (
    by_admin,
    faults_of,
    require_admin,
    require_reason,
    roles_for,
    save_checked,
)

TOKEN_PREFIX = "gbp_"  # noqa: S105  a public marker in front of every token, not a secret


@by_admin
def create_user(
    actor: User | None,
    *,
    username: str,
    email: str,
    password: str | None = None,
    first_name: str = "",
    last_name: str = "",
) -> User:
    """Add a person; without a password they cannot log in until one is set."""
    user = User(username=username, email=email, first_name=first_name, last_name=last_name)
    faults = _password_faults(user, password) if password is not None else []
    user.set_password(password)
    save_checked(user, also=faults)
    audit(actor, "user.create", user, after={"email": email})
    return user


@transaction.atomic
def set_password(actor: User | None, *, user: User, password: str) -> None:
    """Set a password: one's own, or anybody's as an admin. Sessions and tokens end."""
    if actor is not None and actor.pk != user.pk:
        require_admin(actor)
    reject_any(_password_faults(user, password))
    user.set_password(password)
    user.save(update_fields=["password"])
    ended = end_access(user)
    audit(actor, "user.set_password", user, after=ended)
    if actor != user and _is_finance(user):
        tell_finance(actor, user=user, what=f"set the password of {user}", holds=True)


@by_admin
def deactivate_user(actor: User | None, *, user: User, reason: str) -> User:
    """Let somebody in no more; sessions and tokens end, roles and the log stay.

    Raises:
        Rejected: No reason, or the last admin.
    """
    require_reason(reason)
    _require_another_admin(user)
    ended = _set_active(user, is_active=False) | end_access(user)
    audit(actor, "user.deactivate", user, reason=reason, after=ended)
    if _is_finance(user):
        tell_finance(actor, user=user, what=f"deactivated {user}, who has the finance role")
    return user


@by_admin
def reactivate_user(actor: User | None, *, user: User, reason: str) -> User:
    """Let somebody in again, with the roles of before and none of the sessions and tokens.

    Finance is told of one of its own, who approves nothing for a day.

    Raises:
        Rejected: No reason.
    """
    require_reason(reason)
    audit(actor, "user.reactivate", user, reason=reason, after=_set_active(user, is_active=True))
    if _is_finance(user):
        what = f"reactivated {user}, who has the finance role"
        tell_finance(actor, user=user, what=what, holds=True)
    return user


@transaction.atomic
def create_first_admin(*, username: str, email: str, password: str) -> User:
    """Make the first platform admin of an empty installation.

    Raises:
        NotAllowed: An active admin is there already.
    """
    admins = User.objects.filter(is_active=True).filter(
        Q(is_superuser=True) | Q(memberships__role=Role.ADMIN)
    )
    if admins.exists():
        raise NotAllowed("This installation has an admin already; ask them to give you the role.")
    user = create_user(None, username=username, email=email, password=password)
    user.is_staff = user.is_superuser = True
    user.save(update_fields=["is_staff", "is_superuser"])
    grant_role(None, user=user, role=Role.ADMIN)
    return user


@by_admin
def grant_role(
    actor: User | None,
    *,
    user: User,
    role: str,
    account: Account | None = None,
    workspace: Workspace | None = None,
    by_group: str = "",
    provider: str = "",
) -> Membership:
    """Give a role; giving it twice changes nothing, but what a person gives stays.

    Finance is told to all of finance, and approves nothing for a day.

    Args:
        actor: Who gives it.
        user: To whom.
        role: Which.
        account: Where it holds, for owners and viewers.
        workspace: Or there.
        by_group: Of the company, in words, where a group and no person gives it.
        provider: Whose group that is.

    Raises:
        NotAllowed: Finance to oneself, but in a one-person installation.
        Rejected: The place does not fit the role, or one person runs everything alone.
    """
    place = {"user": user, "role": role, "account": account, "workspace": workspace}
    found = Membership.objects.filter(**place).first()
    if found is not None and (provider or not found.provider):
        return found
    require_fair_grant(actor, user=user, role=role)
    membership = found or Membership(**place)
    membership.provider = provider
    save_checked(membership)
    after = {"role": str(role)} | ({"group": by_group} if by_group else {})
    audit(actor, "role.grant", user, account=account, workspace=workspace, after=after)
    if role == Role.FINANCE and actor != user:
        what = f"gave the finance role to {user}"
        tell_finance(actor, user=user, what=what, holds=True, by_group=by_group)
    return membership


@by_admin
def revoke_role(actor: User | None, *, membership: Membership, by_group: str = "") -> None:
    """Take a role away; sessions and tokens of whoever had it end. The last admin stays.

    Args:
        actor: Who takes it.
        membership: The role.
        by_group: In words, where it goes because a group is gone.

    Raises:
        Rejected: It is the last admin's role.
    """
    user = membership.user
    if membership.role == Role.ADMIN:
        _require_another_admin(user)
        # What the first admin was given with the role goes with it.
        user.is_staff = user.is_superuser = False
        user.save(update_fields=["is_staff", "is_superuser"])
    audit(
        actor,
        "role.revoke",
        user,
        account=membership.account,
        workspace=membership.workspace,
        before={"role": membership.role},
        after=end_access(user),
    )
    if membership.role == Role.FINANCE:
        what = f"took the finance role away from {user}"
        tell_finance(actor, user=user, what=what, by_group=by_group)
    membership.delete()


@transaction.atomic
def create_api_token(
    actor: User | None, *, user: User, name: str, scope: str, expires_at: datetime
) -> tuple[ApiToken, str]:
    """Make an API token of one's own; its plain text is returned once and kept nowhere.

    Raises:
        NotAllowed: For somebody else: who reads the token would act as they do.
    """
    if actor is not None and actor.pk != user.pk:
        raise NotAllowed(
            "Everybody makes their own tokens. An admin cannot make a token for somebody else."
        )
    plaintext = TOKEN_PREFIX + secrets.token_urlsafe(32)
    faults = []
    if expires_at <= utc_now():
        words = "The token would already have ended; choose a longer time."
        faults.append(Fault("expires_at", "expired", words))
    token = ApiToken(
        user=user,
        name=name,
        prefix=plaintext[:12],
        digest=_digest(plaintext),
        scope=scope,
        expires_at=expires_at,
    )
    save_checked(token, also=faults)
    audit(actor, "token.create", user, after={"name": name, "scope": scope, "prefix": token.prefix})
    return token, plaintext


@transaction.atomic
def revoke_api_token(actor: User | None, *, token: ApiToken) -> None:
    """End a token: one's own, or anybody's as an admin."""
    if not roles_for(actor).is_admin and (actor is None or actor.pk != token.user_id):
        raise NotAllowed("This token belongs to somebody else.")
    if token.revoked_at is None:
        token.revoked_at = utc_now()
        token.save(update_fields=["revoked_at"])
        audit(
            actor, "token.revoke", token.user, before={"name": token.name, "prefix": token.prefix}
        )


def authenticate_api_token(plaintext: str) -> ApiToken | None:
    """Find the token of a request; None when unknown, expired, revoked, or its user is off.

    Whoever has an account of the company signs in with it now and then, or nobody would notice
    that they have left.

    The time of last use is written at most once a minute.
    """
    token = ApiToken.objects.select_related("user").filter(digest=_digest(plaintext)).first()
    now = utc_now()
    if token is None or token.revoked_at is not None or token.expires_at <= now:
        return None
    vouched_until = token.user.vouched_until
    if not token.user.is_active or (vouched_until is not None and vouched_until <= now):
        return None
    if token.last_used_at is None or (now - token.last_used_at).total_seconds() >= 60:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def end_access(user: User) -> dict[str, int]:
    """End every session and token of somebody; says how many tokens that were, for the log."""
    user.access_epoch += 1
    user.save(update_fields=["access_epoch"])
    tokens = ApiToken.objects.filter(user=user, revoked_at=None, expires_at__gt=utc_now())
    return {"tokens_ended": tokens.update(revoked_at=utc_now())}


def _set_active(user: User, *, is_active: bool) -> dict[str, bool]:
    user.is_active = is_active
    user.save(update_fields=["is_active"])
    return {"is_active": is_active}


def _is_finance(user: User) -> bool:
    return Membership.objects.filter(user=user, role=Role.FINANCE).exists()


def _require_another_admin(user: User) -> None:
    """Raises Rejected: without this one nobody who can sign in would be an admin."""
    admins = Membership.objects.select_for_update().filter(role=Role.ADMIN, user__is_active=True)
    if {row.user_id for row in admins} == {user.pk}:
        raise Rejected.because(
            "",
            "last_admin",
            "This would leave the portal without a platform admin. Give somebody else the role "
            "first.",
        )


def _digest(plaintext: str) -> str:
    return hashlib.sha256(plaintext.encode()).hexdigest()


def _password_faults(user: User, password: str) -> list[Fault]:
    try:
        validate_password(password, user)
    except ValidationError as error:
        return [Fault("password", fault.code, fault.message) for fault in faults_of(error)]
    return []
