"""Who is finance is no single person's secret; and one person who runs everything alone.

Whatever makes somebody a second pair of eyes is told to all of finance, and that person approves
nothing for a day: there is time to see who came.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Final

from budgets.errors import Fault, NotAllowed, Rejected, reject_any
from budgets.models import Approval, AuditEntry, Installation, Membership, Proposal, Role, User
from budgets.selectors.alerts import finance_addresses
from budgets.selectors.approvals import TOLD, installation
from budgets.selectors.clock import utc_now
from budgets.selectors.company import is_machine
from budgets.services.alerts.webhooks import tell_by_mail
from budgets.services.audit import audit, state_of
from budgets.services.billing.approvals import MoneyDeed, Seen, propose
from budgets.services.billing.guards import lock_billing, price_of
from budgets.services.guards import by_admin, by_finance, require_reason
from budgets.units import time_text

HELD_FOR: Final = timedelta(hours=24)
PAIR_OF_EYES: Final = (Role.ADMIN, Role.FINANCE)


def tell_finance(
    actor: User | None, *, user: User, what: str, holds: bool = False, by_group: str = ""
) -> None:
    """Tell all of finance, and whom it is about, by mail, log and page.

    Args:
        actor: Who did it; what the portal's own commands do is told to nobody.
        user: To whom.
        what: In words that follow the name of the actor.
        holds: They approve nothing for a day.
        by_group: What did it in place of a person: a group of the company, in words.
    """
    if actor is None and not by_group:
        return
    text = f"{actor.get_username() if actor else by_group} {what}."
    if holds:
        until = utc_now() + HELD_FOR
        user.approves_from = max(until, user.approves_from or until)
        user.save(update_fields=["approves_from"])
        text += f" {user} cannot approve anything until {time_text(user.approves_from)}."
    entry = audit(actor, TOLD, user, after={"text": text})
    tell_by_mail({*finance_addresses(), user.email}, entry)


def require_fair_grant(actor: User | None, *, user: User, role: str) -> None:
    """Ask whether a role makes nobody a second pair of eyes of their own deeds.

    Raises:
        NotAllowed: Somebody gives finance to themselves.
        Rejected: It is a machine; or one person runs everything alone, and it is somebody else.
    """
    if role not in PAIR_OF_EYES:
        return
    if is_machine(user):
        words = f"{user} is a machine: it can be neither admin nor finance."
        raise Rejected.because("role", "machine", words)
    is_one_person = installation().is_one_person
    is_own = actor is not None and actor.pk == user.pk
    if role == Role.FINANCE and is_own and not is_one_person:
        raise NotAllowed(
            "Nobody can give themselves the finance role. Ask another admin; if one person runs "
            "everything alone, say so first on the set-up's page Installation."
        )
    if is_one_person and not (is_own or _is_alone(user)):
        words = (
            "This is a one-person installation. Switch that off first, for good, on the set-up's "
            f"page Installation; then give {user} the role."
        )
        raise Rejected.because("role", "one_person", words)


def locked_installation() -> Installation:
    """The one row, made when it is missing, held until the end."""
    Installation.objects.get_or_create(pk=1)
    return Installation.objects.select_for_update(of=("self",)).get(pk=1)


@by_admin
def start_one_person(actor: User | None, *, reason: str) -> Installation:
    """Let one person approve what they proposed; told on every statement.

    Raises:
        Rejected: No reason; it was ended once; or somebody else was admin or finance ever.
    """
    if actor is None:
        raise NotAllowed("Only the person who works alone can say so, not the portal itself.")
    require_reason(reason)
    row = locked_installation()
    faults = []
    if row.is_one_person:
        faults.append(Fault("", "on", "One person runs everything alone already."))
    elif row.one_person_until is not None:
        faults.append(Fault("", "final", "It was switched off, and that is final."))
    if not _is_alone(actor):
        words = "Somebody else is or was an admin or in finance here. Ask them to approve."
        faults.append(Fault("", "others", words))
    reject_any(faults)
    row.one_person_since = utc_now()
    return _switched(row, actor, "start_one_person", reason)


@by_admin
def end_one_person(actor: User | None, *, reason: str) -> Installation:
    """Ask for two people again, for good.

    Raises:
        Rejected: No reason, or two people are asked for already.
    """
    require_reason(reason)
    row = locked_installation()
    if not row.is_one_person:
        raise Rejected.because("", "off", "Two people are asked for already.")
    row.one_person_until = utc_now()
    return _switched(row, actor, "end_one_person", reason)


def _switched(row: Installation, actor: User | None, verb: str, reason: str) -> Installation:
    row.save()
    after = state_of(row, "one_person_since", "one_person_until")
    audit(actor, f"installation.{verb}", "installation", reason=reason, after=after)
    return row


def _is_alone(user: User) -> bool:
    """Whether nobody else is, or by the log ever was, admin or finance."""
    others = Membership.objects.filter(role__in=PAIR_OF_EYES).exclude(user=user)
    given = AuditEntry.objects.filter(
        action="role.grant", after__role__in=[role.value for role in PAIR_OF_EYES]
    ).exclude(subject=f"user:{user.get_username()}")
    return not others.exists() and not given.exists()


@by_finance
def propose_price_tolerance(actor: User | None, *, percent: Decimal | str, reason: str) -> Proposal:
    """Propose by how much one person alone may be off with a rate or spot price.

    Args:
        actor: One of finance.
        percent: 0 to 100, two places; at 0 every price that differs needs two people.
        reason: Kept in the log.
    """
    require_reason(reason)
    faults: list[Fault] = []
    read = price_of("percent", percent, faults, most=Decimal(100))
    if read != round(read, 2):
        faults.append(Fault("percent", "too_fine", f"{read} has more than two places; round it."))
    reject_any(faults)
    return propose(actor, TOLERANCE, subject="price_tolerance", reason=reason, percent=read)


def _seen(percent: Decimal, *, at: object) -> Seen:
    lock_billing()
    now = installation().price_tolerance
    return {"Tolerance now": f"{now.normalize():f} %", "After it": f"{percent.normalize():f} %"}


def _set(actor: User, approval: Approval, *, percent: Decimal, reason: str) -> str:
    row = locked_installation()
    before = state_of(row, "price_tolerance")
    row.price_tolerance, row.approval = percent, approval
    row.save()
    after = state_of(row, "price_tolerance")
    action = "installation.price_tolerance"
    audit(actor, action, "installation", reason=reason, before=before, after=after)
    return f"One person alone records prices up to {percent.normalize():f} % off."


TOLERANCE = MoneyDeed(
    name="installation.price_tolerance",
    title="Change the price tolerance",
    takes={"percent": Decimal},
    look=_seen,
    do=_set,
)
