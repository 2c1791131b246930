"""Read-only looks at what happened on the clusters; nothing secret, nothing to edit."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from clusters.models import (
    AppliedGeneration,
    Cluster,
    Drift,
    ObjectState,
    ShiftRun,
    WorkloadEvent,
    WorkloadState,
)


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]  # one base for several models
    """Changes go through services, which check and audit them."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False


@admin.register(Cluster)
class ClusterAdmin(ReadOnly):
    """Without the sealed credentials."""

    list_display = ("slug", "role", "mode", "state", "writes_enabled", "blocked_reason")
    exclude = ("kubeconfig_sealed", "multikueue_kubeconfig_sealed")


@admin.register(ObjectState)
class ObjectStateAdmin(ReadOnly):
    """What is wanted, and what is there."""

    list_display = ("cluster", "kind", "namespace", "name", "state", "changed_at")
    list_filter = ("cluster", "kind", "state")
    search_fields = ("name", "namespace", "subject")


@admin.register(Drift)
class DriftAdmin(ReadOnly):
    """Hand edits."""

    list_display = ("cluster", "kind", "name", "field", "manager", "noticed_at", "resolution")
    list_filter = ("cluster", "kind")


@admin.register(ShiftRun)
class ShiftRunAdmin(ReadOnly):
    """Who works where."""

    list_display = ("cluster", "role", "holder", "heartbeat_at", "ended_at", "outcome")


@admin.register(AppliedGeneration)
class AppliedGenerationAdmin(ReadOnly):
    """Which generation a cluster carries."""

    list_display = ("cluster", "subject", "observed_generation", "applied_at")
    search_fields = ("subject",)


@admin.register(WorkloadEvent)
class WorkloadEventAdmin(ReadOnly):
    """The append-only truth."""

    list_display = ("cluster", "type", "namespace", "name", "observed_at")
    search_fields = ("uid", "name", "namespace")


@admin.register(WorkloadState)
class WorkloadStateAdmin(ReadOnly):
    """The newest state of each workload."""

    list_display = ("cluster", "namespace", "name", "phase", "gpu_total", "updated_at")
    list_filter = ("cluster", "phase")
    search_fields = ("uid", "name", "namespace")
