"""Simulated nodes and the pods on them: what a kubelet would do, played by kwok.

Nodes are created Ready with the capacity that they are given; a real kube-scheduler binds pods to
them and kwok plays the pods by ``kwok/stages.yaml``. Annotations on a Job's pod template steer it,
durations in Go's form (``"3s"``, ``"1m30s"``):

* ``pod-complete.stage.kwok.x-k8s.io/delay``: how long the pod runs; one second without it.
* ``pod-complete.stage.kwok.x-k8s.io/exit-code``: ``"1"`` makes the pod fail; ``"0"`` without it.
* ``pod-ready.stage.kwok.x-k8s.io/delay``: how long the pod is Pending on its node; none without it.

Only pods of Jobs end by themselves. Nobody watches node health here (no node lifecycle controller,
no heartbeats): a node is NotReady when a test patches its status so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .build import HERE

STAGES = HERE / "kwok" / "stages.yaml"
RUN_FOR = "pod-complete.stage.kwok.x-k8s.io/delay"
EXIT_CODE = "pod-complete.stage.kwok.x-k8s.io/exit-code"
START_AFTER = "pod-ready.stage.kwok.x-k8s.io/delay"
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What each node of a set offers: whole GPUs, cores, memory, labels and taints."""

    gpus: int = 8
    gpu_resource: str = GPU
    cpu: str = "96"
    memory: str = "1Ti"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()

    def manifest(self, name: str) -> dict[str, Any]:
        """Return a Node that is Ready as soon as it is created."""
        capacity = {
            "cpu": self.cpu,
            "memory": self.memory,
            "ephemeral-storage": "1Ti",
            "pods": "110",
            **({self.gpu_resource: str(self.gpus)} if self.gpus else {}),
        }
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "type": "kwok", **self.labels},
            },
            "spec": {"taints": [dict(taint) for taint in self.taints]},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
        }


def command(kwok: Path, kubeconfig: Path) -> list[str]:
    """Return the command line that plays all nodes of one cluster and serves nothing itself."""
    return [
        str(kwok),
        "--config",
        str(STAGES),
        "--kubeconfig",
        str(kubeconfig),
        "--manage-all-nodes",
        "--node-lease-duration-seconds=0",
        "--node-port=0",
    ]
