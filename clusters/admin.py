"""Read-only looks at what happened on the clusters; nothing secret, nothing to edit."""

from __future__ import annotations

from budgets.admin import show
from clusters import models

show(
    models.Cluster,
    "slug role mode state writes_enabled blocked_reason",
    exclude=("kubeconfig_sealed", "multikueue_kubeconfig_sealed"),
)
show(
    models.ObjectState,
    "cluster kind namespace name state changed_at",
    list_filter=("cluster", "kind", "state"),
    search_fields=("name", "namespace", "subject"),
)
show(
    models.Drift,
    "cluster kind name field manager noticed_at resolution",
    list_filter=("cluster", "kind"),
)
show(models.ShiftRun, "cluster role holder heartbeat_at ended_at outcome")
show(models.BeatLease, "holder renewed_at")
show(
    models.AppliedGeneration,
    "cluster subject observed_generation applied_at",
    search_fields=("subject",),
)
show(
    models.WorkloadEvent,
    "cluster type namespace name observed_at",
    search_fields=("uid", "name", "namespace"),
)
show(
    models.WorkloadState,
    "cluster namespace name phase gpu_total updated_at",
    list_filter=("cluster", "phase"),
    search_fields=("uid", "name", "namespace"),
)
