"""Two people behind every deed that moves money: what one proposes, and that another approved it.

A row that moves money names its :class:`Approval`, without which the database does not take it;
and an approval is of two people, or of the one who runs a one-person installation.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.db import models
from django.db.models import F, Q

from budgets.models.access import User, person
from budgets.models.base import FrozenFields, InsertOnly, optional

DEFAULT_TOLERANCE = Decimal(10)


class Approval(InsertOnly):
    """One deed has an author and an approver.

    ``one`` only while the installation is a one-person installation: a trigger asks.
    """

    class Kind(models.TextChoices):
        TWO = "two", "Two people"
        ONE = "one", "One person who runs everything alone"

    deed = models.CharField(max_length=40)
    kind = models.CharField(max_length=6, choices=Kind.choices)
    author = person()
    approver = person()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                name="approval_of_two_people",
                condition=Q(author__isnull=False, approver__isnull=False)
                & (
                    (Q(kind="two") & ~Q(author=F("approver"))) | Q(kind="one", author=F("approver"))
                ),
            )
        ]


def approved(**done: object) -> Q:
    """The condition of a table of which rows that are ``done`` need an approval."""
    return ~Q(**done) | Q(approval__isnull=False)


class Proposal(FrozenFields):
    """A deed that moves money, exactly as it will be done, until somebody else has decided.

    Attributes:
        parameters: What the deed is given, as JSON.
        seen: Words and figures, as the proposer saw them; the same are looked up at the approval.
        outcome: A sentence about what was done.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting for approval"
        APPROVED = "approved", "Approved"
        DECLINED = "declined", "Declined"
        WITHDRAWN = "withdrawn", "Withdrawn"
        # Of one that waited too long; never stored.
        EXPIRED = "expired", "Expired"

    frozen_fields = (
        "deed", "subject", "parameters", "seen", "reason", "proposed_by", "proposed_at",
        "expires_at",
    )  # fmt: skip

    deed = models.CharField(max_length=40)
    subject = models.CharField(max_length=200)
    parameters = models.JSONField()
    seen = models.JSONField()
    reason = models.CharField(max_length=500, blank=True)
    state = models.CharField(max_length=9, choices=State.choices, default=State.WAITING)
    proposed_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    proposed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_by = person()
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.CharField(max_length=500, blank=True)
    outcome = models.CharField(max_length=300, blank=True)
    approval = optional(Approval)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(
                name="proposal_approved_by_two", condition=approved(state="approved")
            ),
            models.CheckConstraint(
                name="proposal_expiry_not_stored", condition=~Q(state="expired")
            ),
        ]
        indexes = [
            models.Index(
                fields=["expires_at"], name="proposal_waiting", condition=Q(state="waiting")
            )
        ]

    def phase_at(self, now: datetime) -> Proposal.State:
        """The state as people know it: one that waited too long has expired."""
        is_over = self.state == self.State.WAITING and self.expires_at <= now
        return self.State.EXPIRED if is_over else self.State(self.state)


class Installation(models.Model):
    """What holds for the installation as a whole; one row.

    ``one_person_until`` is written once: a trigger keeps it, so that one person who ends running
    everything alone never begins again.
    """

    # Percent by which one person alone records a rate or spot price off what two agreed on.
    price_tolerance = models.DecimalField(max_digits=5, decimal_places=2, default=DEFAULT_TOLERANCE)
    approval = optional(Approval)
    one_person_since = models.DateTimeField(null=True, blank=True)
    one_person_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(name="installation_is_one", condition=Q(pk=1)),
            models.CheckConstraint(
                name="installation_tolerance_approved",
                condition=Q(price_tolerance=DEFAULT_TOLERANCE) | Q(approval__isnull=False),
            ),
            models.CheckConstraint(
                name="installation_tolerance_range",
                condition=Q(price_tolerance__gte=0, price_tolerance__lte=100),
            ),
            models.CheckConstraint(
                name="installation_one_person_begins",
                condition=Q(one_person_until__isnull=True)
                | Q(one_person_since__isnull=False, one_person_until__gte=F("one_person_since")),
            ),
        ]

    @property
    def is_one_person(self) -> bool:
        """Whether one person runs everything alone now."""
        return self.one_person_since is not None and self.one_person_until is None

    def was_one_person(self, start: datetime, end: datetime) -> bool:
        """Whether one person ran everything alone at some time in ``[start, end]``."""
        since, until = self.one_person_since, self.one_person_until
        return since is not None and since <= end and (until is None or until > start)
