"""Kinds of jobs that embedded clusters do not serve by themselves, and documents of them."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.devcluster import core_schemas as core
from clusters.devcluster import identity, registry
from clusters.devcluster.registry import ServedKind
from clusters.devcluster.schema import struct, text
from clusters.documents.resources import Resource
from clusters.jobs.table import KINDS
from tests.reconcile.admission_harness import GPU, NS, Document

TRAINING = Resource.guessed("Training", "v1", "example.test")
PYTORCH = Resource.guessed("PyTorchJob", "v1", "kubeflow.org")
INTEGRATIONS = {kind.integration: kind.resource for kind in KINDS.values() if not kind.is_required}
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def serve(monkeypatch: pytest.MonkeyPatch, *kinds_served: Resource) -> None:
    """Embedded clusters serve these kinds until the test ends, with schemas that take anything."""
    kinds = tuple(_kind(item) for item in kinds_served)
    for kind in kinds:
        monkeypatch.setitem(registry.BY_ADDRESS, (kind.group, kind.version, kind.plural), kind)
        monkeypatch.setitem(registry.BY_KEY, kind.key, kind)
    monkeypatch.setattr(identity, "KINDS", registry.KINDS + kinds)


def _kind(resource: Resource) -> ServedKind:
    fields = {"apiVersion": text(), "kind": text(), "metadata": core.METADATA}
    schema = struct({**fields, "spec": core.OPEN, "status": core.OPEN}, is_open=True)
    return ServedKind(
        resource.group, resource.version, resource.plural, resource.kind, True, schema,
        has_status=True, counts_generation=True,
    )  # fmt: skip


def custom_job(resource: Resource, name: str, *, namespace: str = NS, **spec: Any) -> Document:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "default"},
        },
        "spec": {"managedBy": MULTIKUEUE, "steps": [{"name": "one"}], **spec},
    }


def workload_for(job: Document, *, gpus: int, pods: int = 1) -> Document:
    """The Workload that the owner of a kind makes for its job."""
    metadata = job["metadata"]
    requests = {"cpu": "1", "memory": "1Gi", GPU: str(gpus)}
    container = {
        "name": "main",
        "image": "step:1",
        "resources": {"requests": requests, "limits": {GPU: str(gpus)}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    owner = {
        "apiVersion": job["apiVersion"], "kind": job["kind"], "name": metadata["name"],
        "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"of-{metadata['name']}",
            "namespace": metadata["namespace"],
            "ownerReferences": [owner],
        },
        "spec": {
            "active": True,
            "queueName": "default",
            "podSets": [{"name": "main", "count": pods, "template": template}],
        },
    }
