"""The clusters that a rehearsal walks on, and the Job that it submits there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from clusters.devcluster.controllers import RUN_SECONDS
from clusters.devcluster.fleet import Fleet, default_plan
from clusters.documents import labels
from portal.rehearsal.report import Options

JOB = "rehearsal"


def kubeconfigs(options: Options, stack: ExitStack) -> dict[str, str]:
    """Cluster slug → kubeconfig; starts embedded clusters where none were given."""
    if not options.is_embedded:
        named = {"manager": str(options.manager)}
        named |= {f"worker-{i}": path for i, path in enumerate(options.worker or [], start=1)}
        return {slug: Path(path).read_text() for slug, path in named.items()}
    folder = stack.enter_context(_temporary_folder())
    fleet = stack.enter_context(Fleet(default_plan(Path(folder), workers=2)))
    return {slug: server.kubeconfig for slug, server in fleet.servers.items()}


@contextmanager
def _temporary_folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="portal-rehearsal-clusters-") as folder:
        yield folder


def rehearsal_job(namespace: str, options: Options) -> dict[str, Any]:
    """A Job as a person would submit it: CPU, memory and GPUs."""
    requests = {"cpu": "1", "memory": "1Gi", options.resource: str(options.gpus)}
    annotations = {
        RUN_SECONDS: str(options.run_seconds),
        "pod-complete.stage.kwok.x-k8s.io/delay": f"{options.run_seconds}s",
    }
    container: dict[str, Any] = {
        "name": "main",
        "image": options.image,
        "resources": {"requests": requests, "limits": {options.resource: str(options.gpus)}},
    }
    if options.run:
        container["command"] = options.run
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": JOB,
            "namespace": namespace,
            "labels": {labels.QUEUE: "default"},
            "annotations": annotations,
        },
        "spec": {
            "suspend": True,
            "managedBy": labels.MULTIKUEUE,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
