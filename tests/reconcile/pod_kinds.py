"""Pods as users submit them for a queue, and the hand that plays the kubelet."""

from __future__ import annotations

from typing import Any

from clusters.documents import labels
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from tests.reconcile.admission_harness import GPU, NS, Document, Place

STATUS = WriteOptions(subresource="status")
GATE = {"name": labels.ADMISSION_GATE}


def pod(
    name: str, *, gpus: int = 1, group: str = "", total: int = 0, gated: bool = True, **spec: Any
) -> Document:
    """A pod that waits behind the admission gate; of a group where one is named."""
    requests = {"cpu": "1", "memory": "1Gi", GPU: str(gpus)}
    container = {
        "name": "main",
        "image": "train:1",
        "resources": {"requests": requests, "limits": {GPU: str(gpus)}},
    }
    metadata: Document = {"name": name, "namespace": NS, "labels": {labels.QUEUE: "default"}}
    if group:
        metadata["labels"][labels.POD_GROUP] = group
        metadata["annotations"] = {labels.POD_GROUP_TOTAL: str(total)}
    body = {"restartPolicy": "Never", "containers": [container], **spec}
    if gated:
        body["schedulingGates"] = [GATE]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def group(name: str, *, pods: int = 2, gpus: int = 1) -> list[Document]:
    """A driver that asks for one GPU, and workers."""
    driver = pod(f"{name}-driver", gpus=1, group=name, total=pods)
    workers = [
        pod(f"{name}-{index}", gpus=gpus + 1, group=name, total=pods) for index in range(pods - 1)
    ]
    return [driver, *workers]


def get(place: Place, name: str, namespace: str = NS) -> Document:
    return place.get(r.POD, name, namespace) or {}


def gates(place: Place, name: str, namespace: str = NS) -> list[str]:
    found = get(place, name, namespace).get("spec", {})
    return [gate["name"] for gate in found.get("schedulingGates") or ()]


def runs(place: Place, name: str, namespace: str = NS) -> bool:
    """Whether it exists there and was let through its gate."""
    return bool(get(place, name, namespace)) and not gates(place, name, namespace)


def say(place: Place, name: str, phase: str, *, namespace: str = NS) -> None:
    """Play the kubelet."""
    is_up = phase == "Running"
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True" if is_up else "False"},
    ]
    body = {"status": {"phase": phase, "conditions": conditions}}
    place.client.patch(r.POD, name, body, namespace=namespace, options=STATUS)
