"""Small documents for the tests of this folder."""

from __future__ import annotations

from typing import Any

from clusters.errors import ApplyConflict
from clusters.kube import resources as r

Document = dict[str, Any]
STAMP = "2026-01-01T00:00:00Z"


def config_map(namespace: str, name: str, **data: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def quota(name: str, nominal: object, **limits: object) -> Document:
    return {"name": name, "nominalQuota": nominal, **limits}


def cluster_queue(name: str, **spec: Any) -> Document:
    groups = [
        {
            "coveredResources": ["nvidia.com/gpu"],
            "flavors": [{"name": "h100", "resources": [quota("nvidia.com/gpu", "4")]}],
        }
    ]
    return {
        "apiVersion": r.CLUSTER_QUEUE.api_version,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"resourceGroups": groups, **spec},
    }


def workload(namespace: str, name: str, *, count: int = 1) -> Document:
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"nvidia.com/gpu": "1"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": r.WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "queueName": "default",
            "podSets": [{"name": "main", "count": count, "template": {"spec": pod}}],
        },
    }


def job(namespace: str, name: str, **spec: Any) -> Document:
    container = {"name": "main", "image": "none"}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"suspend": True, "template": {"spec": pod}, **spec},
    }


def condition(kind: str, status: str = "True", message: str = "") -> Document:
    return {
        "type": kind,
        "status": status,
        "reason": "Test",
        "message": message,
        "lastTransitionTime": STAMP,
    }


def conflicts_of(error: ApplyConflict) -> list[tuple[str, str]]:
    """Manager and field of each conflict, in the server's order."""
    return [(fault.message.split('"')[1], fault.field) for fault in error.fields]
