"""Rows of clusters and jobs, with credentials that a test can look for."""

from __future__ import annotations

from datetime import timedelta

import yaml

from budgets import services
from clusters.models import (
    Cluster,
    ClusterHealth,
    Drift,
    ObjectState,
    ShiftRun,
    WorkloadState,
)
from clusters.vault import seal

SECRET = "portal-secret-token-value"
OTHER_SECRET = "multikueue-secret-token-value"


def kubeconfig(server: str = "https://127.0.0.1:1", **user: object) -> str:
    """A kubeconfig of one context, as somebody would paste it."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user or {"token": SECRET}}],
            "contexts": [{"name": "ctx", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "ctx",
        }
    )


def add_cluster(slug: str, role: str = "worker", **fields: object) -> Cluster:
    now = services.utc_now()
    cluster = Cluster.objects.create(
        slug=slug,
        name=slug.title(),
        role=role,
        mode="portal",
        server="https://127.0.0.1:1",
        context="ctx",
        user_kind="token",
        kubeconfig_sealed=seal(kubeconfig()),
        multikueue_kubeconfig_sealed=seal(OTHER_SECRET),
        **fields,
    )
    ClusterHealth.objects.create(cluster=cluster, reachable=True, last_contact_at=now)
    ShiftRun.objects.create(
        cluster=cluster, role="quota", holder="h", started_at=now, heartbeat_at=now
    )
    ObjectState.objects.create(
        cluster=cluster,
        kind="ClusterQueue",
        name="acme-vision",
        subject="budget:acme-vision",
        state="synced",
        changed_at=now,
    )
    Drift.objects.create(
        cluster=cluster,
        kind="ClusterQueue",
        name="acme-vision",
        field="spec.stopPolicy",
        wanted="None",
        found="Hold",
        manager="kubectl-edit",
        noticed_at=now,
    )
    return cluster


def add_workload(cluster: Cluster, namespace: str, name: str, **fields: object) -> WorkloadState:
    now = services.utc_now()
    count = WorkloadState.objects.count()
    return WorkloadState.objects.create(
        **{
            "cluster": cluster,
            "uid": f"uid-{name}",
            "namespace": namespace,
            "name": name,
            "phase": "pending",
            "gpus": {"": 8},
            "gpu_total": 8,
            "created_at": now - timedelta(minutes=count),
            "resource_version": "1",
            **fields,
        }
    )
