"""Signing in with the company's accounts: who is let in, and which roles their groups give.

A person is known by issuer and subject alone: names and addresses can be changed at the provider
by whoever has them, so none of them opens an account that is here already. Roles follow the groups
at each sign-in, by the same writes with which people give and take them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction

from budgets.errors import Fault, NotAllowed, Rejected
from budgets.models import Account, GroupRule, Identity, Membership, Role, User, Workspace
from budgets.selectors.alerts import finance_addresses
from budgets.selectors.clock import utc_now
from budgets.selectors.company import lost_without
from budgets.services.access import create_user, end_access, grant_role, revoke_role
from budgets.services.alerts.webhooks import tell_by_mail
from budgets.services.audit import audit, state_of
from budgets.services.finance import (
    PAIR_OF_EYES,
    locked_installation,
    require_fair_grant,
    tell_finance,
)
from budgets.services.guards import by_admin, save_checked

REFUSED: Final = "session.refuse"
BREAK_GLASS: Final = "session.break_glass"
_MOST_GROUPS: Final = 1_000
_MACHINE_SEEN_FOR: Final = timedelta(minutes=5)
_NAMES: Final = ("email", "first_name", "last_name")
_NOTHING_OPENS: Final = (
    "You are known here, but none of your groups gives a role. Ask a platform admin for a role, or "
    "for a rule for one of your groups."
)


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a provider says of somebody who has just signed in there.

    Attributes:
        provider: By its name in the settings.
        issuer: As it names itself.
        subject: Who it is there, for ever.
        username: For whoever comes the first time.
        email: One that the provider has seen them read; empty for none.
        first_name: Up to 150 characters, as the last name.
        last_name: Empty where the provider tells none.
        groups: That they are in now.
    """

    provider: str
    issuer: str
    subject: str
    username: str
    email: str
    first_name: str
    last_name: str
    groups: frozenset[str]


def enter(vouched: Vouched) -> User:
    """Let somebody in whom a provider vouches for, with the roles of their groups.

    Roles that an earlier sign-in gave, and whose groups are gone, go, with all sessions and
    tokens. Whoever comes the first time gets an account when a group opens something.

    Raises:
        Rejected: They are not let in. What is taken away is taken away all the same.
    """
    with transaction.atomic():
        locked_installation()  # one after the other: two tabs make one person
        identity = _identity_of(vouched)
        user, refusal = (identity.user, "") if identity else _first_seen(vouched)
        if user is not None and not user.is_active:
            refusal = "Your account here is switched off. Ask a platform admin to switch it on."
        elif user is not None:
            _follow(user, vouched)
            if not Membership.objects.filter(user=user).exists():
                refusal = _NOTHING_OPENS
        if refusal:
            subject = f"user:{user.username}" if user else f"{vouched.provider}:{vouched.subject}"
            after = {"provider": vouched.provider, "username": vouched.username[:150]}
            audit(None, REFUSED, subject, reason=refusal, after=after, actor_name="somebody")
    if refusal or user is None:
        raise Rejected.because("", "not_let_in", refusal)
    user.refresh_from_db()
    return user


def enter_machine(vouched: Vouched) -> User:
    """The account of a machine, whose roles follow the rules for the group of its own name.

    What is asked and written at a sign-in is asked and written every few minutes, not each time.

    Raises:
        Rejected: No rule gives it a role, or its account is switched off.
    """
    identity = _identity_of(vouched)
    if identity is None and not _rules(vouched).exists():
        words = (
            f"No rule gives a role to the group {vouched.subject}. Ask a platform admin for one."
        )
        raise Rejected.because("", "not_let_in", words)
    if identity is not None and not identity.user.is_active:
        words = "The account of this machine is switched off here. Ask a platform admin."
        raise Rejected.because("", "not_let_in", words)
    if identity is not None and identity.seen_at > utc_now() - _MACHINE_SEEN_FOR:
        return identity.user
    return enter(vouched)


@transaction.atomic
def connect_identity(actor: User, *, vouched: Vouched) -> Identity:
    """Tie an account of the company to one's own here; roles follow at the next sign-in.

    Raises:
        Rejected: It is somebody's already.
    """
    locked_installation()
    found = _identity_of(vouched)
    if found is not None and found.user_id != actor.pk:
        words = "That company account is connected to somebody else here. Ask a platform admin."
        raise Rejected.because("", "taken", words)
    return found or _remember(actor, vouched, by=actor)


@by_admin
def disconnect_identity(actor: User | None, *, identity: Identity) -> None:
    """Let nobody in any more by an account of the company; what its groups gave goes.

    Raises:
        Rejected: The last admin is one by a group.
    """
    user = identity.user
    for membership in Membership.objects.filter(user=user, provider=identity.provider):
        revoke_role(actor, membership=membership)
    before = state_of(identity, "provider", "subject")
    identity.delete()
    if not Identity.objects.filter(user=user).exists():
        User.objects.filter(pk=user.pk).update(vouched_until=None)
    user.refresh_from_db()
    audit(actor, "identity.disconnect", user, before=before, after=end_access(user))


@by_admin
def add_group_rule(
    actor: User | None,
    *,
    provider: str,
    group: str,
    role: str,
    account: Account | None = None,
    workspace: Workspace | None = None,
) -> GroupRule:
    """Give a role to whoever is in a group, from their next sign-in on.

    Raises:
        Rejected: No such provider, the rule is there already, or the place does not fit the role.
    """
    faults = []
    if provider not in settings.PORTAL_PROVIDERS:
        words = f"{provider!r} is not one of the providers that PORTAL_SIGNIN names."
        faults.append(Fault("provider", "unknown_provider", words))
    if group.startswith(Identity.MACHINE) and role in PAIR_OF_EYES:
        words = f"{group} is a machine: it can be neither admin nor finance."
        faults.append(Fault("role", "machine", words))
    rule = GroupRule(
        provider=provider,
        group=group,
        role=role,
        account=account,
        workspace=workspace,
        added_by=actor,
    )
    save_checked(rule, also=faults)
    audit(
        actor,
        "group_rule.add",
        f"group:{rule}",
        account=account,
        workspace=workspace,
        after={"role": str(role)},
    )
    if role == Role.FINANCE and actor is not None:
        tell_finance(actor, user=actor, what=f"gives the finance role to the group {rule}")
    return rule


@by_admin
def remove_group_rule(actor: User | None, *, rule: GroupRule) -> None:
    """End a rule; who had the role by it alone loses it now, with sessions and tokens.

    Raises:
        Rejected: The last admin is one by it.
    """
    losing = lost_without(rule)
    for membership in losing:
        revoke_role(actor, membership=membership)
    audit(
        actor,
        "group_rule.remove",
        f"group:{rule}",
        account=rule.account,
        workspace=rule.workspace,
        before={"role": rule.role},
        after={"taken_from": [row.user.username for row in losing]},
    )
    rule.delete()


def tell_break_glass(user: User, *, network: str) -> None:
    """Tell finance and the holder that the account which is for emergencies alone was used."""
    text = f"{user.get_username()}, the account for emergencies, signed in from {network}."
    told = {"text": text, "about": "the account for emergencies", "at": "/audit/"}
    entry = audit(user, BREAK_GLASS, user, after=told | {"network": network})
    tell_by_mail({*finance_addresses(), user.email}, entry)


def _identity_of(vouched: Vouched) -> Identity | None:
    return (
        Identity.objects.select_related("user")
        .filter(issuer=vouched.issuer, subject=vouched.subject)
        .first()
    )


def _first_seen(vouched: Vouched) -> tuple[User | None, str]:
    """A new person; or none, and why."""
    if not _rules(vouched).exists():
        return None, _NOTHING_OPENS
    if User.objects.filter(username__iexact=vouched.username).exists():
        # Whose that is, and that it is, is nobody's to know who has only chosen the same name.
        words = "Your account could not be made. Ask a platform admin; the audit log says why."
        return None, words
    user = create_user(
        None,
        username=vouched.username,
        email=vouched.email,
        first_name=vouched.first_name,
        last_name=vouched.last_name,
    )
    _remember(user, vouched, by=None)
    return user, ""


def _remember(user: User, vouched: Vouched, *, by: User | None) -> Identity:
    identity = Identity(
        user=user,
        provider=vouched.provider,
        issuer=vouched.issuer,
        subject=vouched.subject,
        seen_at=utc_now(),
    )
    save_checked(identity)
    after = state_of(identity, "provider", "subject")
    audit(by, "identity.connect", user, after=after)
    return identity


def _follow(user: User, vouched: Vouched) -> None:
    """Roles, name and address as the provider tells them now."""
    rules = sorted(_rules(vouched), key=lambda rule: rule.added_by_id != user.pk)
    # Of several that give the same, one that somebody else made counts.
    wanted = {_place(rule): rule for rule in rules}
    given = list(Membership.objects.filter(user=user, provider=vouched.provider).order_by("pk"))
    for membership in given:
        if _place(membership) not in wanted:
            _take(membership, vouched.provider)
    has = {_place(membership) for membership in given}
    for place, rule in wanted.items():
        if place not in has:
            _give(user, rule)
    user.refresh_from_db()
    before = state_of(user, *_NAMES)
    for name in _NAMES:
        setattr(user, name, getattr(vouched, name) or before[name])
    user.vouched_until = utc_now() + timedelta(days=settings.PORTAL_SIGNIN_DAYS)
    user.save(update_fields=[*_NAMES, "vouched_until"])
    if (after := state_of(user, *_NAMES)) != before:
        audit(None, "user.follow", user, before=before, after=after)
    Identity.objects.filter(issuer=vouched.issuer, subject=vouched.subject).update(
        provider=vouched.provider, groups=_kept(vouched.groups), seen_at=utc_now()
    )


def _give(user: User, rule: GroupRule) -> None:
    """Nobody becomes a second pair of eyes by a rule of their own."""
    try:
        require_fair_grant(user if rule.added_by_id == user.pk else None, user=user, role=rule.role)
        grant_role(
            None,
            user=user,
            role=rule.role,
            account=rule.account,
            workspace=rule.workspace,
            by_group=f"The group {rule}",
            provider=rule.provider,
        )
    except (NotAllowed, Rejected) as error:
        after = {"role": rule.role, "group": str(rule)}
        audit(None, "role.withhold", user, reason=str(error), after=after)


def _take(membership: Membership, provider: str) -> None:
    """The last admin stays one, and the log says so."""
    try:
        revoke_role(None, membership=membership, by_group=f"Sign-in with {provider}")
    except Rejected as error:
        after = {"role": membership.role, "provider": provider}
        audit(None, "role.keep", membership.user, reason=str(error), after=after)


def _rules(vouched: Vouched) -> Any:
    return GroupRule.objects.filter(
        provider=vouched.provider, group__in=_kept(vouched.groups)
    ).select_related("account", "workspace__account")


def _kept(groups: Iterable[str]) -> list[str]:
    return sorted(groups)[:_MOST_GROUPS]


def _place(row: GroupRule | Membership) -> tuple[str, int | None, int | None]:
    return str(row.role), row.account_id, row.workspace_id
