"""RayCluster and RayJob: a head, groups of workers, and perhaps the pod that submits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from clusters.documents.resources import Resource
from clusters.jobs.described import Described, PodSetsAt
from clusters.jobs.paths import ANY

_GROUPS: Final = (
    PodSetsAt(("headGroupSpec",), counts=(), name="head"),
    PodSetsAt(
        ("workerGroupSpecs", ANY),
        counts=((("replicas",),), (("numOfHosts",),)),
        name_field="groupName",
    ),
)
CLUSTER: Final = Described(
    Resource("ray.io", "v1", "rayclusters", "RayCluster", True),
    integration="ray.io/raycluster",
    suspend=("suspend",),
    idle=(("state",), ("suspended", "", "unhealthy", "failed")),
    pod_sets_at=_GROUPS,
    ready_at=(("state",), "ready"),
)
JOB: Final = Described(
    Resource("ray.io", "v1", "rayjobs", "RayJob", True),
    integration="ray.io/rayjob",
    suspend=("suspend",),
    idle=(("jobDeploymentStatus",), ("Suspended", "")),
    pod_sets_at=(
        *(replace(place, at=("rayClusterSpec", *place.at)) for place in _GROUPS),
        PodSetsAt((), template=("submitterPodTemplate",), counts=(), name="submitter"),
    ),
    result=(
        ("jobStatus",),
        {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "STOPPED": "Failed"},
    ),
    # Without a template KubeRay makes the submitter's pod up by itself.
    unclear=(("submissionMode",), ("", "K8sJobMode"), ("submitterPodTemplate",)),
    ready_at=(("rayClusterStatus", "state"), "ready"),
)
