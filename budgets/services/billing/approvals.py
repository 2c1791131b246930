"""Four eyes: what moves money is proposed by one of finance and approved by another.

One guard, :func:`approve`, gives the approval without which the database takes no such row. A
deed that is not a row of its own waits as a :class:`Proposal`: exactly what will be done, and what
the proposer saw, which is looked up again before it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Model

from budgets.errors import Fault, NotAllowed, Rejected, reject_any
from budgets.models import Approval, Proposal, User
from budgets.selectors.approvals import approves_from, installation, open_proposal
from budgets.selectors.clock import utc_now
from budgets.selectors.company import is_machine
from budgets.services.audit import audit, plain
from budgets.services.billing.guards import lock_billing
from budgets.services.guards import by_finance, require_reason
from budgets.units import time_text

DECISION: Final = ("state", "decided_by", "decided_at", "decision_reason", "outcome", "approval")
OPEN_FOR: Final = timedelta(days=7)
Seen = Mapping[str, str]
"""Words → figure or words, as people read them; the same is told by page, API and log."""


@dataclass(frozen=True, slots=True)
class MoneyDeed:
    """A deed that one proposes and another approves.

    Attributes:
        name: As in the log, such as ``rate_card.activate``.
        title: For people, such as *Activate a rate card*.
        takes: Parameter → how it is read from what was stored.
        look: ``look(at=…, **parameters)``: what is seen of it, of the time of the proposal. Raises
            Rejected with everything that stands in the way.
        do: ``do(approver, approval, reason=…, **parameters)``: does it, and says so in a sentence.
    """

    name: str
    title: str
    takes: Mapping[str, Callable[[Any], Any]]
    look: Callable[..., Seen]
    do: Callable[..., str]

    def __post_init__(self) -> None:
        DEEDS[self.name] = self


DEEDS: Final[dict[str, MoneyDeed]] = {}
"""By name; every deed that waits as a proposal. Each puts itself there."""


def row_of(table: type[Model]) -> Callable[[Any], Any]:
    """How a row that is never deleted is read; :func:`lock_billing` keeps others off it."""
    return lambda key: table._default_manager.get(pk=key)


def approve(actor: User | None, *, author_id: int | None, deed: str) -> Approval:
    """The approval of a deed: by another person than its author.

    Args:
        actor: One of finance; the role is the caller's to ask for.
        author_id: Who proposed it.
        deed: As in the log.

    Raises:
        NotAllowed: It is the author, outside of a one-person installation; the portal itself; or
            somebody who approves nothing yet.
    """
    if actor is None or author_id is None:
        raise NotAllowed("Two people have to agree on what moves money. The portal cannot be one.")
    held = approves_from(User.objects.get(pk=actor.pk))
    if held is not None:
        words = f"You cannot approve anything until {time_text(held)}, because {HELD}."
        raise NotAllowed(words)
    is_own = author_id == actor.pk
    if is_own and not installation().is_one_person:
        raise NotAllowed("Somebody other than the proposer has to approve it.")
    kind = Approval.Kind.ONE if is_own else Approval.Kind.TWO
    return Approval.objects.create(deed=deed, kind=kind, author_id=author_id, approver=actor)


HELD: Final = (
    "somebody gave you the finance role, set your password, removed your second factor or "
    "reactivated you less than a day ago"
)


def propose(
    actor: User | None, deed: MoneyDeed, *, subject: str, reason: str = "", **given: Any
) -> Proposal:
    """Have a deed wait for a second person.

    Args:
        actor: One of finance; the role is the caller's to ask for.
        deed: What is to be done.
        subject: What it is about; one deed of a subject waits at a time.
        reason: Kept in the log, and handed to the deed.
        **given: Its parameters; rows, times and amounts, lists of them, or JSON.

    Raises:
        Rejected: Something stands in its way already, or the same waits.
    """
    if actor is None or is_machine(actor):
        raise NotAllowed("Only a person can propose what moves money, no machine and no portal.")
    lock_billing()
    now = utc_now()
    parameters = {name: _plain(value) for name, value in given.items()}
    seen = deed.look(at=now, **_read(deed, parameters))
    if (waiting := open_proposal(deed.name, subject)) is not None:
        words = f"Proposal {waiting.pk} of {waiting.proposed_by} waits; decide that one first."
        raise Rejected.because("", "waits", words)
    row = Proposal.objects.create(
        deed=deed.name,
        subject=subject[:200],
        parameters=parameters,
        seen=dict(seen),
        reason=reason.strip()[:500],
        proposed_by=actor,
        proposed_at=now,
        expires_at=now + OPEN_FOR,
    )
    _log(actor, "propose", row, reason)
    return row


@by_finance
def decide_proposal(
    actor: User | None, *, proposal: Proposal, is_approved: bool, reason: str = ""
) -> Proposal:
    """Approve a proposal, which carries it out, or decline it; its author withdraws it.

    Raises:
        NotAllowed: For the author's own approval.
        Rejected: It is decided or has expired; what the proposer saw is not so any more; or a
            decline has no reason.
    """
    if not is_approved:
        require_reason(reason)
    lock_billing()
    row = Proposal.objects.select_for_update(of=("self",)).get(pk=proposal.pk)
    now = utc_now()
    phase = row.phase_at(now)
    if phase != Proposal.State.WAITING:
        words = f"It is already {phase.label.lower()}. Propose it again."
        raise Rejected.because("", "decided", words)
    is_own = actor is not None and row.proposed_by_id == actor.pk
    verb = "approve" if is_approved else "withdraw" if is_own else "decline"
    if is_approved:
        row.approval = approve(actor, author_id=row.proposed_by_id, deed=row.deed)
        row.outcome = _carry_out(row, actor)[:300]
        row.state = Proposal.State.APPROVED
    else:
        row.state = Proposal.State.WITHDRAWN if is_own else Proposal.State.DECLINED
    row.decided_by, row.decided_at, row.decision_reason = actor, now, reason.strip()[:500]
    row.save(update_fields=DECISION)
    _log(actor, verb, row, reason)
    return row


def _carry_out(row: Proposal, actor: User | None) -> str:
    deed = DEEDS[row.deed]
    given = _read(deed, row.parameters)
    seen = deed.look(at=row.proposed_at, **given)
    reject_any(_moved(row, seen))
    return deed.do(actor, row.approval, reason=row.reason, **given)


def _read(deed: MoneyDeed, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: read(parameters[name]) for name, read in deed.takes.items()}


def _moved(row: Proposal, seen: Seen) -> list[Fault]:
    """What is not as the proposer saw it."""
    again = "Decline it, and have it proposed again."
    return [
        Fault(
            "",
            "moved",
            f"{name} was “{row.seen.get(name, 'nothing')}” when it was proposed, and is "
            f"“{seen.get(name, 'nothing')}” now. {again}",
        )
        for name in {**row.seen, **seen}
        if row.seen.get(name) != seen.get(name)
    ]


def _plain(value: Any) -> Any:
    """A parameter as JSON keeps it."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.pk if isinstance(value, Model) else plain(value)


def _log(actor: User | None, verb: str, row: Proposal, reason: str) -> None:
    after = {"deed": row.deed, "subject": row.subject, **row.seen}
    if row.outcome:
        after["outcome"] = row.outcome
    audit(actor, f"proposal.{verb}", row, reason=reason, after=after)
