"""Files that somebody asked for: what was asked, how far it is, where it lies, until when."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from budgets.exports import FORMATS
from budgets.models.access import User
from budgets.models.audit import Operation
from budgets.models.base import optional

DATASETS = (
    ("usage", "Usage by hour"),
    ("charges", "Charges by hour"),
    ("jobs", "Charges by job"),
    ("focus-1.2", "FOCUS 1.2 cost and usage"),
    ("focus-1.4", "FOCUS 1.4 cost and usage"),
)
FORMAT_CHOICES = [(shape.name, shape.title) for shape in FORMATS.values()]


class ExportPlan(models.Model):
    """An export that is made again and again; its maker is told of each file.

    Written by :mod:`budgets.services.exports.plans`.
    """

    class Every(models.TextChoices):
        CLOSE = "close", "after every close of a month"
        DAY = "day", "every day, for the month so far"

    name = models.CharField(max_length=80)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="export_plans")
    every = models.CharField(max_length=5, choices=Every.choices)
    dataset = models.CharField(max_length=20, choices=DATASETS)
    format = models.CharField(max_length=10, choices=FORMAT_CHOICES)
    columns = models.JSONField(default=list, blank=True)
    zone = models.CharField(max_length=64, default="UTC")
    account = models.CharField(max_length=30, blank=True)
    workspace = models.CharField(max_length=63, blank=True)
    # Why the newest run came to nothing; empty when it did not.
    problem = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name


class Export(models.Model):
    """One file; its operation says how far it is. See :mod:`budgets.services.exports.runs`."""

    operation = models.OneToOneField(Operation, on_delete=models.PROTECT, related_name="export")
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="exports")
    dataset = models.CharField(max_length=20, choices=DATASETS)
    format = models.CharField(max_length=10, choices=FORMAT_CHOICES)
    columns = models.JSONField(default=list, blank=True)
    period = models.CharField(max_length=7)
    zone = models.CharField(max_length=64, default="UTC")
    # Slug and namespace; empty for all that the person sees.
    account = models.CharField(max_length=30, blank=True)
    workspace = models.CharField(max_length=63, blank=True)
    # Workspaces (keys) whose rows are in it; null: the whole platform's.
    scope = models.JSONField(null=True, blank=True)
    # Which plan made it, and for what: "close:2026-03" or "day:2026-03-14".
    plan = optional(ExportPlan, related_name="exports")
    run_key = models.CharField(max_length=20, blank=True)
    attempt = models.PositiveSmallIntegerField(default=0)
    # When the worker on it was last alive.
    alive_at = models.DateTimeField(null=True, blank=True)
    about = models.JSONField(default=dict, blank=True)
    rows = models.PositiveBigIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["plan", "run_key"],
                condition=Q(plan__isnull=False),
                name="export_once_in_a_run",
            )
        ]
        indexes = [models.Index(fields=["requested_by", "-created_at"], name="export_by_person")]

    def __str__(self) -> str:
        return self.file_name

    @property
    def file_name(self) -> str:
        """The name under which it is saved, such as ``focus-1.2-2026-03-acme.csv``."""
        parts = [self.dataset, self.period, self.workspace or self.account]
        return f"{'-'.join(part for part in parts if part)}.{FORMATS[self.format].suffix}"

    @property
    def content_type(self) -> str:
        """Media type of the file."""
        return FORMATS[self.format].content_type

    @property
    def is_ready(self) -> bool:
        """Whether the file can be fetched."""
        return self.finished_at is not None and self.removed_at is None
