"""Statements, adjustments, corrections, and the chain over what is closed.

A statement's content is fixed once it is reviewed or its period is closed; corrections and blocks
are insert-only. The services say so in words, triggers of the database hold it.

Source: spec money, sections 1.5, 2.1 and 3.4.
"""

from __future__ import annotations

from fractions import Fraction

from django.db import models
from django.db.models import Q

from budgets.charging import RowKind
from budgets.models.access import User, person
from budgets.models.approvals import Approval, approved
from budgets.models.base import FrozenFields, InsertOnly, optional
from budgets.models.billing import BillingPeriod
from budgets.models.fleet import Account, Workspace
from budgets.models.usage import UsageAmounts


class Statement(models.Model):
    """What one account owes for one period, or a credit note that voids such a statement.

    ``account`` None: the platform's own, which carries the funding of the lending credits.
    """

    class State(models.TextChoices):
        DRAFT = "draft", "Draft"
        REVIEWED = "reviewed", "Reviewed"
        ISSUED = "issued", "Issued"
        VOID = "void", "Void"

    class Kind(models.TextChoices):
        STATEMENT = "statement", "Statement"
        CREDIT_NOTE = "credit_note", "Credit note"

    account = optional(Account, related_name="statements")
    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="statements")
    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.STATEMENT)
    state = models.CharField(max_length=12, choices=State.choices, default=State.DRAFT)
    number = models.CharField(max_length=20, blank=True)
    currency = models.CharField(max_length=3)
    priced_in = models.CharField(max_length=3)
    exchange_rate = models.DecimalField(max_digits=18, decimal_places=8, null=True, blank=True)
    exchange_day = models.DateField(null=True, blank=True)
    payable = models.DecimalField(max_digits=20, decimal_places=4)
    # BillingTerms.billed_to when it was drawn up.
    billed_to = models.JSONField(default=dict, db_default={}, blank=True)
    credits = models.OneToOneField(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="credit_note"
    )
    reason = models.CharField(max_length=500, blank=True)
    drawn_at = models.DateTimeField(auto_now_add=True)
    reviewed_by = person()
    reviewed_at = models.DateTimeField(null=True, blank=True)
    issued_by = person()
    issued_at = models.DateTimeField(null=True, blank=True)
    # Of a credit note, and of the statement that it voids.
    approval = optional(Approval)

    class Meta:
        ordering = ["-period__start", "account__slug", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "period"],
                condition=Q(kind="statement", account__isnull=False),
                name="statement_once_for_account",
            ),
            models.UniqueConstraint(
                fields=["period"],
                condition=Q(kind="statement", account__isnull=True),
                name="statement_once_for_platform",
            ),
            models.UniqueConstraint(
                fields=["number"], condition=~Q(number=""), name="statement_number_once"
            ),
            models.CheckConstraint(
                name="statement_issued_is_numbered",
                condition=Q(state__in=("draft", "reviewed"), number="")
                | (Q(state__in=("issued", "void")) & ~Q(number="")),
            ),
            models.CheckConstraint(
                name="credit_note_credits",
                condition=Q(kind="statement", credits__isnull=True)
                | Q(kind="credit_note", credits__isnull=False),
            ),
            models.CheckConstraint(
                name="statement_void_is_approved", condition=approved(state="void")
            ),
            models.CheckConstraint(
                name="credit_note_is_approved", condition=approved(kind="credit_note")
            ),
        ]

    def __str__(self) -> str:
        who = self.account.slug if self.account else "platform"
        return self.number or f"draft {who} {self.period.name}"


class StatementLine(models.Model):
    """One line: exact, and rounded once; ``parts`` are the prices that it is made of."""

    statement = models.ForeignKey(Statement, on_delete=models.CASCADE, related_name="lines")
    position = models.PositiveIntegerField()
    workspace = optional(Workspace)
    flavor = models.CharField(max_length=40, blank=True)
    kind = models.CharField(max_length=16, choices=[(k.value, k.value) for k in RowKind])
    class_of = models.CharField(max_length=16, blank=True)
    gpu_seconds = models.BigIntegerField(default=0)
    # A fraction as text, "n/d": no database type keeps it exactly.
    exact_text = models.CharField(max_length=200)
    amount = models.DecimalField(max_digits=20, decimal_places=4)
    text = models.CharField(max_length=500, blank=True)
    adjustment = models.ForeignKey(
        "budgets.Adjustment", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    parts = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ["statement", "position"]
        constraints = [
            models.UniqueConstraint(fields=["statement", "position"], name="statement_line_once")
        ]

    @property
    def exact(self) -> Fraction:
        """The exact amount."""
        return Fraction(self.exact_text)


class StatementLook(models.Model):
    """What a reader saw of a statement last, line by line, so that changes can be shown."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    statement = models.ForeignKey(Statement, on_delete=models.CASCADE, related_name="looks")
    seen_at = models.DateTimeField()
    content = models.JSONField(default=list)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "statement"], name="statement_look_once")
        ]


class Adjustment(FrozenFields):
    """An amount that somebody proposes and somebody else approves; in the statement's currency."""

    class State(models.TextChoices):
        PROPOSED = "proposed", "Waiting for approval"
        APPROVED = "approved", "Approved"
        DECLINED = "declined", "Declined"

    frozen_fields = ("account", "workspace", "period", "amount", "currency", "reason", "corrects")

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="adjustments")
    workspace = optional(Workspace)
    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="adjustments")
    amount = models.DecimalField(max_digits=20, decimal_places=4)
    currency = models.CharField(max_length=3)
    reason = models.CharField(max_length=500)
    corrects = optional(StatementLine)
    state = models.CharField(max_length=12, choices=State.choices, default=State.PROPOSED)
    proposed_by = person()
    decided_by = person()
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.CharField(max_length=500, blank=True)
    approval = optional(Approval)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.CheckConstraint(name="adjustment_not_zero", condition=~Q(amount=0)),
            models.CheckConstraint(
                name="adjustment_four_eyes", condition=approved(state="approved")
            ),
        ]


class Correction(UsageAmounts, InsertOnly):
    """What a closed hour fact should have been, as a difference; billed in an open period.

    ``table`` says which facts: ``usage``, ``account`` or ``workload``; amounts of the other
    tables stay 0.
    """

    class Table(models.TextChoices):
        USAGE = "usage"
        ACCOUNT = "account"
        WORKLOAD = "workload"

    table = models.CharField(max_length=8, choices=Table.choices)
    booked_in = models.ForeignKey(
        BillingPeriod, on_delete=models.PROTECT, related_name="corrections"
    )
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    workspace = optional(Workspace)
    flavor = models.CharField(max_length=63)
    cluster = models.CharField(max_length=40, blank=True)
    uid = models.CharField(max_length=64, blank=True)
    hour = models.DateTimeField()
    start = models.DateTimeField()
    from_pool = models.BigIntegerField(default=0)
    from_platform = models.BigIntegerField(default=0)
    uncovered = models.BigIntegerField(default=0)
    recorded_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["hour", "pk"]
        indexes = [
            models.Index(fields=["table", "hour"], name="correction_by_hour"),
            models.Index(fields=["booked_in", "table"], name="correction_by_period"),
        ]


class NumberSeries(models.Model):
    """The last number given in a series; the row's lock keeps numbers without holes."""

    prefix = models.CharField(max_length=12, unique=True)
    last = models.PositiveIntegerField(default=0)


class LedgerBlock(InsertOnly):
    """A run of ledger rows of a closed period, digested, chained to the block before it.

    ``marks`` holds four bytes of each row's digest, so that a changed row can be named.
    """

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="blocks")
    number = models.PositiveIntegerField()
    table = models.CharField(max_length=12)
    key = models.CharField(max_length=80)
    rows = models.PositiveIntegerField()
    marks = models.BinaryField()
    previous = models.CharField(max_length=64, blank=True)
    digest = models.CharField(max_length=64)

    class Meta:
        ordering = ["period__close_number", "number"]
        constraints = [
            models.UniqueConstraint(fields=["period", "number"], name="ledger_block_once")
        ]


class Seal(InsertOnly):
    """Rows beside the hour facts, digested, chained to the seal before it.

    ``contents``: table → its columns, and the keys of the rows as ranges; ``marks`` holds four
    bytes of each row's digest, so that a changed row can be named.
    """

    number = models.PositiveIntegerField(unique=True)
    period = models.OneToOneField(
        BillingPeriod, on_delete=models.PROTECT, null=True, blank=True, related_name="seal"
    )
    made_at = models.DateTimeField(auto_now_add=True)
    contents = models.JSONField(default=dict)
    marks = models.BinaryField()
    previous = models.CharField(max_length=64, blank=True)
    digest = models.CharField(max_length=64)
    # By a key outside of the database; empty where none is set.
    signature = models.CharField(max_length=96, blank=True, default="")

    class Meta:
        ordering = ["number"]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        spans = (span for table in self.contents.values() for span in table["rows"])
        return sum(last - first + 1 for first, last in spans)
