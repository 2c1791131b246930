"""Who changed what, and long work that shows its progress."""

from __future__ import annotations

import uuid

from django.db import models

from budgets.models.access import person
from budgets.models.base import InsertOnly, optional
from budgets.models.fleet import Account, Workspace


class AuditEntry(InsertOnly):
    """One change by one actor; never holds a secret."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = person()
    actor_name = models.CharField(max_length=150)
    action = models.CharField(max_length=60)
    subject = models.CharField(max_length=200)
    account = optional(Account)
    workspace = optional(Workspace)
    cluster = models.CharField(max_length=40, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    before = models.JSONField(default=dict, blank=True)
    after = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["workspace", "-at"], name="audit_by_workspace")]


class Operation(models.Model):
    """Long work that somebody started and watches."""

    class State(models.TextChoices):
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=40)
    subject = models.CharField(max_length=200, blank=True)
    started_by = person()
    state = models.CharField(max_length=8, choices=State.choices, default=State.RUNNING)
    step = models.CharField(max_length=200, blank=True)
    done = models.PositiveIntegerField(default=0)
    total = models.PositiveIntegerField(default=0)
    message = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    @property
    def kind_words(self) -> str:
        """The kind as people read it: ``first_sync`` is *first sync*."""
        return self.kind.replace("_", " ")
