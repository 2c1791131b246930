"""The training kinds of Kubeflow: a map of replica types each, and one run policy for all.

TrainJob, which came after them, brings its Workload along.
"""

from __future__ import annotations

from typing import Final

from clusters.documents.resources import Resource
from clusters.jobs.described import Described, PodSetsAt
from clusters.jobs.paths import ANY


def _replicas(kind: str, field: str, *order: str, version: str = "v1") -> Described:
    """A kind with its replica types in a field of ``spec``, and which of them come first."""
    plural = f"{kind.lower()}s"
    return Described(
        Resource("kubeflow.org", version, plural, kind, True),
        integration=f"kubeflow.org/{kind.lower()}",
        managed_by=("runPolicy", "managedBy"),
        suspend=("runPolicy", "suspend"),
        not_sent=(("runPolicy", "ttlSecondsAfterFinished"),),
        active=(("replicaStatuses", ANY, "active"),),
        pod_sets_at=(PodSetsAt((field, ANY)),),
        order=order,
        ready="Running",
    )


JAX: Final = _replicas("JAXJob", "jaxReplicaSpecs", "worker")
MPI: Final = _replicas("MPIJob", "mpiReplicaSpecs", "launcher", "worker", version="v2beta1")
PADDLE: Final = _replicas("PaddleJob", "paddleReplicaSpecs", "master", "worker")
PYTORCH: Final = _replicas("PyTorchJob", "pytorchReplicaSpecs", "master", "worker")
TENSORFLOW: Final = _replicas("TFJob", "tfReplicaSpecs", "chief", "master", "ps", "worker")
XGBOOST: Final = _replicas("XGBoostJob", "xgbReplicaSpecs", "master", "worker")
TRAIN: Final = Described(
    Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", True),
    integration="trainer.kubeflow.org/trainjob",
    words="whoever owns the kind",
    is_queued_here=False,
    tells_end=False,
    suspend=("suspend",),
    active=(("jobsStatus", ANY, "active"),),
)
