"""Budgets and their immutable revisions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import models
from django.db.models import F, Q

from budgets import plan
from budgets.errors import Fault
from budgets.models.access import person
from budgets.models.approvals import Approval, approved
from budgets.models.base import Dated, FrozenFields, ends_later, optional
from budgets.models.fleet import Flavor, Workspace

UNDO_FOR: Final = timedelta(minutes=5)
"""So long its author may undo a revision."""


class Budget(models.Model):
    """The promise to one workspace.

    ``generation`` rises whenever what is in force changes; ``version`` rises with every write
    (a new revision, a decision, a hold) and is the ETag of page and API.
    """

    StopPolicy = plan.StopPolicy

    workspace = models.OneToOneField(Workspace, on_delete=models.PROTECT, related_name="budget")
    generation = models.PositiveBigIntegerField(default=1)
    version = models.PositiveBigIntegerField(default=1)
    in_force = models.ForeignKey(
        "budgets.BudgetRevision", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    in_force_since = models.DateTimeField(null=True, blank=True)
    # Flavors dropped from what is in force, which stay as 0/0/0 until nothing holds them.
    held_flavors = models.JSONField(default=list, blank=True)
    stop_policy = models.CharField(
        max_length=16, choices=StopPolicy.choices, default=StopPolicy.NONE
    )
    stop_reason = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    @property
    def namespace(self) -> str:
        """Of its workspace, under which people know it."""
        return self.workspace.namespace


class BudgetRevision(FrozenFields, Dated):
    """One immutable state of a budget; only its decision is written later, once.

    The decision of a request moves ``valid_from`` to its own time when that has passed, because
    nothing is promised for the past; the audit log keeps both.
    """

    class State(models.TextChoices):
        LIVE = "live", "Accepted"
        REQUESTED = "requested", "Waiting for a decision"
        IN_PART = "in_part", "Accepted in part"
        DECLINED = "declined", "Declined"
        WITHDRAWN = "withdrawn", "Withdrawn"

    Spill = plan.Spill

    # Filled by selectors: "in force", "scheduled", "past" or the state; why it is a request.
    phase: str
    reasons: tuple[Fault, ...]

    frozen_fields = (
        "budget",
        "number",
        "author",
        "reason",
        "valid_from",
        "valid_until",
        "preference",
        "spill",
        "restored_from",
        "answers",
        "is_dated_back",
    )

    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    # Nobody: the portal itself, such as the empty revision of an archived workspace.
    author = person()
    reason = models.CharField(max_length=500, blank=True)
    preference = models.JSONField(default=list, blank=True)
    spill = models.CharField(max_length=24, choices=Spill.choices, default=Spill.NEXT_FLAVOR_FIRST)
    restored_from = models.PositiveIntegerField(null=True, blank=True)
    # Number of the request of which an admin accepted this part.
    answers = models.PositiveIntegerField(null=True, blank=True)
    # By a person; what the portal itself fills in, nobody has used yet.
    is_dated_back = models.BooleanField(default=False)
    approval = optional(Approval)
    state = models.CharField(max_length=12, choices=State.choices)
    decided_by = person()
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["budget", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["budget", "number"], name="revision_number_once"),
            ends_later("revision_window"),
            models.CheckConstraint(
                name="revision_dated_back_is_approved", condition=approved(is_dated_back=True)
            ),
        ]
        indexes = [
            models.Index(fields=["state", "valid_from"], name="revision_by_state"),
            models.Index(fields=["budget", "state", "valid_from"], name="revision_by_budget"),
        ]

    @property
    def undo_until(self) -> datetime | None:
        """Until when its author may undo it, if nothing newer was saved.

        None for what nobody undoes alone: what is not live, what the portal saved, and what
        another person decided on or approved.
        """
        is_decided = self.decided_by_id not in (None, self.author_id) or self.answers is not None
        if self.state != self.State.LIVE or self.author_id is None:
            return None
        return None if is_decided or self.approval_id else self.created_at + UNDO_FOR


class BudgetLine(models.Model):
    """Committed C, ceiling B and lendable L of one flavor, whole GPUs; written once."""

    revision = models.ForeignKey(BudgetRevision, on_delete=models.PROTECT, related_name="lines")
    flavor = models.ForeignKey(Flavor, on_delete=models.PROTECT, related_name="+")
    position = models.PositiveSmallIntegerField(default=0)
    committed = models.PositiveIntegerField()
    ceiling = models.PositiveIntegerField()
    lendable = models.PositiveIntegerField()

    class Meta:
        ordering = ["revision", "position"]
        constraints = [
            models.UniqueConstraint(fields=["revision", "flavor"], name="line_flavor_once"),
            models.CheckConstraint(
                name="line_ceiling_at_least_committed", condition=Q(ceiling__gte=F("committed"))
            ),
            models.CheckConstraint(
                name="line_lendable_at_most_committed", condition=Q(lendable__lte=F("committed"))
            ),
        ]

    def as_plan(self) -> plan.Line:
        """The line in the words of the plan."""
        return plan.Line(self.flavor.slug, self.committed, self.ceiling, self.lendable)


class Allocation(models.Model):
    """The part of a line that stands on one worker cluster (C_w and L_w)."""

    line = models.ForeignKey(BudgetLine, on_delete=models.PROTECT, related_name="allocations")
    cluster = models.CharField(max_length=40)
    committed = models.PositiveIntegerField()
    lendable = models.PositiveIntegerField()

    class Meta:
        ordering = ["line", "cluster"]
        constraints = [
            models.UniqueConstraint(fields=["line", "cluster"], name="allocation_once"),
            models.CheckConstraint(
                name="allocation_lendable", condition=Q(lendable__lte=F("committed"))
            ),
        ]
