"""Jobs that were seen on an embedded worker, and people who may act on them or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.models import Cluster, WorkloadState
from tests.builders import SmallFleet
from tests.reconcile.east import east
from tests.reconcile.fleet_rows import register
from tests.web.conftest import visitors

__all__ = ["east", "visitors"]  # fixtures

NAMESPACE = "acme-vision"
SubmitJob = Callable[..., WorkloadState]


@pytest.fixture
def kube(east: DevServer) -> Iterator[KubeClient]:
    """An administrator's client on gpu-east."""
    with KubeClient.from_kubeconfig(east.kubeconfig) as client:
        client.create(
            r.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        yield client


@pytest.fixture
def worker(fleet: SmallFleet, east: DevServer) -> Cluster:
    """The registered worker gpu-east of the small fleet."""
    return register("gpu-east", east.kubeconfig)


def seen(cluster: Cluster, job: str, **changes: Any) -> WorkloadState:
    """A row of a job, as the usage shift would have written it."""
    return WorkloadState.objects.create(
        **{
            "cluster": cluster,
            "uid": f"uid-{job}",
            "namespace": NAMESPACE,
            "name": f"job-{job}",
            "job_kind": "Job",
            "job_name": job,
            "phase": "running",
            "gpus": {"h100": 8},
            "gpu_total": 8,
            "created_at": datetime(2026, 3, 1, tzinfo=UTC),
            "resource_version": "1",
            **changes,
        }
    )


@pytest.fixture
def submit(worker: Cluster, kube: KubeClient) -> SubmitJob:
    """Make a Job with its Workload on the cluster, and the row of it."""

    def _submit(name: str, **changes: Any) -> WorkloadState:
        job = kube.create(r.JOB, job_document(name))
        workload = kube.create(r.WORKLOAD, workload_document(name, job))
        return seen(worker, name, uid=workload["metadata"]["uid"], **changes)

    return _submit


def job_document(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def workload_document(name: str, job: dict[str, Any]) -> dict[str, Any]:
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"nvidia.com/gpu": "8"}},
    }
    pod_set = {
        "name": "main",
        "count": 1,
        "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
    }
    return {
        "apiVersion": r.WORKLOAD.api_version,
        "kind": "Workload",
        "metadata": {"name": f"job-{name}", "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"queueName": "default", "podSets": [pod_set]},
    }
