"""Kinds that paths describe, a row each; see ``described`` for what the fields mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from clusters.documents.labels import COMPLETION_INDEX
from clusters.documents.resources import Resource
from clusters.jobs.described import Described, PodSetsAt, named

# AppWrapper: any objects in one; its own controller knows which pods they come to.
APP_WRAPPER: Final = Described(
    Resource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper", True),
    integration="workload.codeflare.dev/appwrapper",
    words="the owner of the kind",
    is_queued_here=False,
    tells_end=False,
    suspend="suspend",
    idle=("phase", ("Suspended", "", "Succeeded", "Failed")),
)

# JobSet: a Job template for each kind of replica.
JOB_SET: Final = Described(
    Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True),
    integration="jobset.x-k8s.io/jobset",
    suspend="suspend",
    not_sent=("ttlSecondsAfterFinished",),
    active=("replicatedJobsStatus.*.active",),
    pod_sets_at=(
        PodSetsAt(
            "replicatedJobs.*",
            template="template.spec.template",
            counts=(("replicas",), ("template.spec.parallelism", "template.spec.completions")),
            name_field="name",
            part_index="jobset.sigs.k8s.io/job-index",
        ),
    ),
    ready_counts="replicatedJobsStatus",
    is_placed=True,
    pod_index=COMPLETION_INDEX,
)

# The training kinds of Kubeflow: a map of replica types each, and one run policy for all.


def _replicas(kind: str, field: str, *order: str, version: str = "v1") -> Described:
    """A kind with its replica types in a field of ``spec``, and which of them come first."""
    plural = f"{kind.lower()}s"
    return Described(
        Resource("kubeflow.org", version, plural, kind, True),
        integration=f"kubeflow.org/{kind.lower()}",
        managed_by="runPolicy.managedBy",
        suspend="runPolicy.suspend",
        not_sent=("runPolicy.ttlSecondsAfterFinished",),
        active=("replicaStatuses.*.active",),
        pod_sets_at=(PodSetsAt(f"{field}.*"),),
        order=order,
        ready="Running",
    )


JAX: Final = _replicas("JAXJob", "jaxReplicaSpecs", "worker")
MPI: Final = _replicas("MPIJob", "mpiReplicaSpecs", "launcher", "worker", version="v2beta1")
PADDLE: Final = _replicas("PaddleJob", "paddleReplicaSpecs", "master", "worker")
PYTORCH: Final = _replicas("PyTorchJob", "pytorchReplicaSpecs", "master", "worker")
TENSORFLOW: Final = _replicas("TFJob", "tfReplicaSpecs", "chief", "master", "ps", "worker")
XGBOOST: Final = _replicas("XGBoostJob", "xgbReplicaSpecs", "master", "worker")
# TrainJob, which came after them, brings its Workload along.
TRAIN: Final = Described(
    Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", True),
    integration="trainer.kubeflow.org/trainjob",
    words="the owner of the kind",
    is_queued_here=False,
    tells_end=False,
    suspend="suspend",
    active=("jobsStatus.*.active",),
)

# RayCluster and RayJob: a head, groups of workers, and perhaps the pod that submits.
_GROUPS: Final = (
    PodSetsAt("headGroupSpec", counts=(), name="head"),
    PodSetsAt(
        "workerGroupSpecs.*", counts=(("replicas",), ("numOfHosts",)), name_field="groupName"
    ),
)
RAY_CLUSTER: Final = Described(
    Resource("ray.io", "v1", "rayclusters", "RayCluster", True),
    integration="ray.io/raycluster",
    suspend="suspend",
    idle=("state", ("suspended", "", "unhealthy", "failed")),
    pod_sets_at=_GROUPS,
    added=("autoscalerOptions",),
    ready_at=("state", "ready"),
)
RAY_JOB: Final = Described(
    Resource("ray.io", "v1", "rayjobs", "RayJob", True),
    integration="ray.io/rayjob",
    suspend="suspend",
    idle=("jobDeploymentStatus", ("Suspended", "")),
    pod_sets_at=(
        *(replace(place, at=f"rayClusterSpec.{place.at}") for place in _GROUPS),
        PodSetsAt("", template="submitterPodTemplate", counts=(), name="submitter"),
    ),
    result=("jobStatus", {"SUCCEEDED": "Succeeded", "FAILED": "Failed", "STOPPED": "Failed"}),
    # Without a template KubeRay makes the submitter's pod up by itself.
    unclear=("submissionMode", ("", "K8sJobMode"), "submitterPodTemplate"),
    added=("rayClusterSpec.autoscalerOptions",),
    ready_at=("rayClusterStatus.state", "ready"),
)
# RayService keeps a RayCluster alive, which is suspended with it; the portal queues none.
RAY_SERVICE: Final = replace(
    named(Resource("ray.io", "v1", "rayservices", "RayService", True)),
    suspend="rayClusterConfig.suspend",
    pod_sets_at=tuple(replace(place, at=f"rayClusterConfig.{place.at}") for place in _GROUPS),
    added=("rayClusterConfig.autoscalerOptions",),
)
