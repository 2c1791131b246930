"""Somebody who serves ClusterQueues, as far as a preflight can tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.test import override_settings

from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from tests.waiting import PATIENCE_S


@contextmanager
def serving(kubeconfig: str, *, manager: str = "kueue") -> Iterator[None]:
    """Writes Active=True on every ClusterQueue until the block ends.

    A proof that somebody serves waits for him; that nobody does, is seen as quickly as elsewhere.
    """
    is_kueue = not manager.startswith("gpu-budget")
    stop = threading.Event()
    options = WriteOptions(field_manager=manager, subresource="status")
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Ready",
        "message": "Can admit new workloads",
        "lastTransitionTime": "2026-03-01T00:00:00Z",
    }

    def serve() -> None:
        with KubeClient.from_kubeconfig(kubeconfig) as client:
            while not stop.wait(0.02):
                for queue in client.list(r.CLUSTER_QUEUE).items:
                    if (queue.get("status") or {}).get("conditions"):
                        continue
                    name = queue["metadata"]["name"]
                    try:
                        body = {"status": {"conditions": [condition]}}
                        client.patch(r.CLUSTER_QUEUE, name, body, options=options)
                    except ClusterError:
                        continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with override_settings(**({"KUEUE_PROOF_SECONDS": PATIENCE_S} if is_kueue else {})):
            yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
