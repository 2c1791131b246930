"""The clusters that a rehearsal walks on, and the Job that is submitted there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clusters.devcluster.controllers import RUN_SECONDS
from clusters.devcluster.fleet import EmbeddedFleet, default_plan
from clusters.documents import labels
from portal.rehearsal.report import Options


def kubeconfigs(options: Options, stack: ExitStack) -> dict[str, str]:
    """Cluster slug → kubeconfig; starts embedded clusters where none were given."""
    if options.is_single and not options.is_embedded:
        return {"cluster": Path(str(options.cluster)).read_text()}
    if not options.is_embedded:
        named = {"manager": str(options.manager)}
        named |= {f"worker-{i}": path for i, path in enumerate(options.worker or [], start=1)}
        return {slug: Path(path).read_text() for slug, path in named.items()}
    folder = stack.enter_context(TemporaryDirectory(prefix="portal-rehearsal-clusters-"))
    plan = default_plan(Path(folder), workers=0 if options.is_single else 2)
    fleet = stack.enter_context(EmbeddedFleet(plan))
    return {slug: server.kubeconfig for slug, server in fleet.servers.items()}


def gpu_job(
    name: str,
    namespace: str,
    *,
    gpus: int,
    seconds: int,
    image: str,
    resource: str = "nvidia.com/gpu",
    cpu: int = 1,
    memory: str = "1Gi",
    command: Sequence[str] = (),
    is_dispatched: bool = True,
) -> dict[str, Any]:
    """A Job of one pod as a person would submit it: CPU, memory and GPUs, and its queue.

    Args:
        name: Of the Job.
        namespace: Of its workspace.
        gpus: That it asks for.
        seconds: How long it runs where clusters are embedded, or their nodes simulated.
        image: Of its container.
        resource: Under which it asks for GPUs.
        cpu: Cores.
        memory: A quantity.
        command: Of its container; empty: the image's own.
        is_dispatched: It is submitted on a manager, to run on a worker.
    """
    annotations = {
        RUN_SECONDS: str(seconds),
        "pod-complete.stage.kwok.x-k8s.io/delay": f"{seconds}s",
    }
    limits = {resource: str(gpus)}
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "resources": {"requests": {"cpu": str(cpu), "memory": memory, **limits}, "limits": limits},
    }
    if command:
        container["command"] = list(command)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {labels.QUEUE: "default"},
            "annotations": annotations,
        },
        "spec": {
            "suspend": True,
            **({"managedBy": labels.MULTIKUEUE} if is_dispatched else {}),
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
