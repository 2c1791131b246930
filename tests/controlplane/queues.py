"""Plain queues and MultiKueue wiring on real clusters, for tests that do not test the portal's own.

Names are the caller's: fleets are shared by a whole session.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from .control_plane import ControlPlane
from .fleet import Fleet
from .kueue_setup import NAMESPACE
from .kwok_nodes import EXIT_CODE, GPU, RUN_FOR

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
UNLIMITED = "9223372036854775807"

# The least that lets a manager's Kueue run Jobs, and nothing but Jobs, on a worker.
WORKER_RULES: tuple[Mapping[str, Any], ...] = (
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["workloads"],
        "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"],
    },
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["workloads/status"],
        "verbs": ["get", "patch", "update"],
    },
    {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "verbs": ["create", "get", "list", "watch", "delete"],
    },
    {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["get"]},
)


def make_queue(cluster: ControlPlane, name: str, *, gpus: int, admission_check: str = "") -> None:
    """Make a namespace, a flavor and a ClusterQueue called ``name``, a LocalQueue ``default``.

    Args:
        cluster: where.
        name: of the namespace, the flavor and the ClusterQueue.
        gpus: nominal quota in whole GPUs; cpu and memory are unlimited.
        admission_check: name of an AdmissionCheck that the queue waits for, if any.
    """
    cluster.ensure_namespace(name)
    quotas = [
        {"name": resource, "nominalQuota": amount}
        for resource, amount in ((GPU, str(gpus)), ("cpu", UNLIMITED), ("memory", UNLIMITED))
    ]
    group = {
        "coveredResources": [quota["name"] for quota in quotas],
        "flavors": [{"name": name, "resources": quotas}],
    }
    spec: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": [group]}
    if admission_check:
        checks = [{"name": admission_check}]
        spec["admissionChecksStrategy"] = {"admissionChecks": checks}
    _apply(cluster, f"{KUEUE}/resourceflavors/{name}", "ResourceFlavor", {"spec": {}})
    _apply(cluster, f"{KUEUE}/clusterqueues/{name}", "ClusterQueue", {"spec": spec})
    local = f"{KUEUE}/namespaces/{name}/localqueues/default"
    _apply(cluster, local, "LocalQueue", {"spec": {"clusterQueue": name}})


def connect_workers(fleet: Fleet, name: str) -> None:
    """Connect all workers to the manager through least-rights tokens; AdmissionCheck ``name``.

    Each worker gets a service account, a Secret on the manager and a MultiKueueCluster, called
    ``NAME-WORKER``; the check and its MultiKueueConfig are called ``name``.
    """
    members = []
    for worker in fleet.workers:
        member = f"{name}-{worker.name}"
        text = worker.kubeconfig_for(member, namespace=NAMESPACE)
        worker.grant(member, namespace=NAMESPACE, rules=WORKER_RULES)
        encoded = base64.b64encode(text.encode()).decode()
        secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{member}"
        fleet.manager.rest.apply(
            secret,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": member, "namespace": NAMESPACE},
                "data": {"kubeconfig": encoded},
            },
        )
        source = {"kubeConfig": {"location": member, "locationType": "Secret"}}
        path = f"{KUEUE}/multikueueclusters/{member}"
        _apply(fleet.manager, path, "MultiKueueCluster", {"spec": {"clusterSource": source}})
        members.append(member)
    path = f"{KUEUE}/multikueueconfigs/{name}"
    _apply(fleet.manager, path, "MultiKueueConfig", {"spec": {"clusters": members}})
    reference = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name}
    check = {"controllerName": MULTIKUEUE, "parameters": reference}
    path = f"{KUEUE}/admissionchecks/{name}"
    _apply(fleet.manager, path, "AdmissionCheck", {"spec": check})


def job(name: str, *, gpus: int, run_for: str = "1s", exit_code: int = 0) -> dict[str, Any]:
    """Return a suspended Job for the LocalQueue ``default``: one pod with cpu, memory and GPUs."""
    requests = {"cpu": "4", "memory": "16Gi", **({GPU: str(gpus)} if gpus else {})}
    container = {
        "name": "main",
        "image": "registry.invalid/train:1",
        "resources": {"requests": requests, "limits": requests},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "default"}},
        "spec": {
            "suspend": True,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {RUN_FOR: run_for, EXIT_CODE: str(exit_code)}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def condition_of(document: Mapping[str, Any], kind: str) -> str:
    """Return the status of a condition, ``True``, ``False``, or nothing where it is not there."""
    conditions = document.get("status", {}).get("conditions", [])
    return next((found["status"] for found in conditions if found["type"] == kind), "")


def _apply(cluster: ControlPlane, path: str, kind: str, body: Mapping[str, Any]) -> None:
    metadata = {"name": path.rpartition("/")[2]}
    document = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, **body}
    cluster.rest.apply(path, document)
