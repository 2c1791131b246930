"""Objects of one job, as API servers show them, and what is said of each: rows of the guide.

``docs/troubleshooting.md`` has every one of these sentences, and no other one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clusters.documents import labels
from clusters.explaining.names import Names
from clusters.explaining.objects import Objects
from clusters.jobs.batch import JOB
from clusters.jobs.table import KINDS

Document = dict[str, Any]
NS = "acme-vision"
JOB_SET = KINDS["jobset.x-k8s.io", "JobSet"]
POD = KINDS["", "Pod"]
ADMIN = Names(None, clusters={"hub": "Hub", "east": "East"})
OWNER = Names({NS: "Vision"}, {"acme": "Acme"}, clusters={"hub": "Hub", "east": "East"})
FRAMEWORKS = {"integrations": {"frameworks": ["batch/job", "pod"]}}


def condition(kind: str, status: str, reason: str, message: str) -> Document:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-03-02T10:00:00Z",
    }


def job(kind: str = "Job", /, *, suspend: bool = True, **changes: Any) -> Document:
    """A batch/v1 Job, or another kind of that name; ``marks`` are its labels."""
    container = {
        "name": "main",
        "image": "registry.example.com/train:1",
        "resources": {"requests": {"nvidia.com/gpu": "8"}, "limits": {"nvidia.com/gpu": "8"}},
    }
    metadata = {
        "name": "train",
        "namespace": NS,
        "uid": "uid-train",
        "labels": changes.get("marks", {labels.QUEUE: "default"}),
        "annotations": changes.get("annotations", {}),
        "ownerReferences": changes.get("owners", []),
        "creationTimestamp": "2026-03-02T10:00:00Z",
    }
    template = {
        "metadata": {"labels": changes.get("on_pods", {})},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": changes.get("version", "batch/v1"),
        "kind": kind,
        "metadata": metadata,
        "spec": {"suspend": suspend, "parallelism": 1, "completions": 1, "template": template},
        "status": changes.get("status", {}),
    }


def workload(*conditions: Document) -> Document:
    """Its Workload: one pod with 8 GPUs."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "job-train-1", "namespace": NS, "uid": "uid-workload"},
        "spec": {
            "queueName": "default",
            "podSets": [{"name": "main", "count": 1, "template": job()["spec"]["template"]}],
        },
        "status": {"conditions": list(conditions)},
    }


RESERVED = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved")
ADMITTED = condition("Admitted", "True", "Admitted", "The workload is admitted")


def local_queue(name: str = "default", **spec: Any) -> Document:
    return {
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": NS},
        "spec": {"clusterQueue": NS, **spec},
        "status": {},
    }


def cluster_queue(*conditions: Document, **spec: Any) -> Document:
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": NS},
        "spec": {"namespaceSelector": {}, **spec},
        "status": {"conditions": list(conditions)},
    }


def pod(name: str = "train-0", **changes: Any) -> Document:
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NS,
            "uid": f"uid-{name}",
            "annotations": changes.get("annotations", {}),
            "labels": changes.get("marks", {}),
        },
        "spec": {"containers": [{"name": "main"}], **changes.get("spec", {})},
        "status": {"phase": "Pending", **changes.get("status", {})},
    }


def gated(name: str, *gates: str) -> Document:
    return pod(name, spec={"schedulingGates": [{"name": gate} for gate in gates]})


def unschedulable(name: str, message: str) -> Document:
    told = condition("PodScheduled", "False", "Unschedulable", message)
    return pod(name, status={"conditions": [told]})


def waiting(reason: str, message: str) -> Document:
    state = {"waiting": {"reason": reason, "message": message}}
    image = "registry.example.com/train:1"
    return pod(status={"containerStatuses": [{"name": "main", "image": image, "state": state}]})


def event(reason: str, message: str, about: str = "train") -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about}.1", "namespace": NS},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": {"name": about, "namespace": NS},
        "lastTimestamp": "2026-03-02T10:01:00Z",
    }


SPACE = {
    "kind": "Namespace",
    "metadata": {"name": NS, "labels": {"kubernetes.io/metadata.name": NS}},
}
ON_HUB = Objects(
    cluster="hub",
    role="manager",
    namespace=NS,
    name="train",
    configuration=FRAMEWORKS,
    space=SPACE,
    kind=JOB,
    job=job(),
    queue="default",
    local_queues=(local_queue(),),
    cluster_queue=cluster_queue(),
)
ADMITTED_THERE = replace(
    ON_HUB,
    cluster="east",
    role="worker",
    job=job(suspend=False, status={"active": 1}),
    workload=workload(RESERVED, ADMITTED),
)
ON_EAST = replace(ON_HUB, cluster="east", role="worker", job=None, asked=workload(RESERVED))
BARE = job(marks={})


def full(key: str, used: str, hard: str) -> Document:
    return {
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": NS},
        "status": {"hard": {key: hard}, "used": {key: used}},
    }


UNMADE = {
    "namespace is not there": replace(ON_HUB, space=None),
    "job is not there": replace(ON_HUB, job=None, kind=None),
    "job has ended": replace(
        ON_HUB,
        job=job(status={"conditions": [condition("Complete", "True", "CompletionsReached", "")]}),
    ),
    "job belongs to another kind": replace(
        ON_HUB,
        job=job(
            owners=[
                {
                    "apiVersion": "jobset.x-k8s.io/v1alpha2",
                    "kind": "JobSet",
                    "name": "all",
                    "uid": "uid-all",
                    "controller": True,
                }
            ]
        ),
    ),
    "number that nobody can count with": replace(
        ON_HUB, job=job(marks={labels.QUEUE: "default", labels.MAX_EXECUTION: "9" * 12})
    ),
    "framework is not enabled": replace(
        ON_HUB, kind=JOB_SET, job=job("JobSet", version="jobset.x-k8s.io/v1alpha2")
    ),
    "no queue name, suspended": replace(ON_HUB, job=BARE, queue=""),
    "no queue name, runs": replace(ON_HUB, job=job(marks={}, suspend=False), queue=""),
    "queue name in an annotation": replace(
        ON_HUB, job=job(marks={}, annotations={labels.QUEUE: "default"}), queue=""
    ),
    "queue name on the pods": replace(
        ON_HUB, job=job(marks={}, on_pods={labels.QUEUE: "default"}), queue=""
    ),
    "another label": replace(ON_HUB, job=job(marks={"kueue.sh/queue": "default"}), queue=""),
    "namespace is left alone": replace(
        ON_HUB,
        configuration={
            **FRAMEWORKS,
            "managedJobsNamespaceSelector": {"matchLabels": {"queues": "yes"}},
        },
    ),
    "prebuilt Workload is not there": replace(
        ON_HUB, job=job(marks={labels.QUEUE: "default", labels.PREBUILT: "mine"})
    ),
    "pods of a group are missing": replace(
        ON_HUB,
        name="band",
        kind=POD,
        job=pod(
            annotations={labels.POD_GROUP_TOTAL: "4"},
            marks={labels.QUEUE: "default", labels.POD_GROUP: "band"},
        ),
        group=(pod("train-0"), pod("train-1"), pod("train-2")),
    ),
    "LocalQueue is not there": replace(ON_HUB, job=job(marks={labels.QUEUE: "fast"}), queue="fast"),
    "LocalQueue leads nowhere": replace(ON_HUB, cluster_queue=None),
    "LocalQueue is stopped": replace(ON_HUB, local_queues=(local_queue(stopPolicy="Hold"),)),
    "ClusterQueue is stopped": replace(ON_HUB, cluster_queue=cluster_queue(stopPolicy="Hold")),
    "cluster warns": replace(
        ON_HUB,
        events=(event("ErrWorkloadCompose", "'band' group has fewer runnable pods than expected"),),
    ),
    "Kueue does not work": ON_HUB,
    "the portal does not work": replace(ON_HUB, is_kueue=False, configuration={}),
}
UNSTARTED = {
    "still suspended": replace(ADMITTED_THERE, job=job()),
    "ResourceQuota refuses pods": replace(
        ADMITTED_THERE,
        job=job(suspend=False),
        events=(
            event(
                "FailedCreate",
                'Error creating: pods "train-x" is forbidden: exceeded quota: gpus, requested: '
                "requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=12, limited: "
                "requests.nvidia.com/gpu=16",
            ),
        ),
    ),
    "pod security refuses pods": replace(
        ADMITTED_THERE,
        job=job(suspend=False),
        events=(
            event(
                "FailedCreate",
                'Error creating: pods "train-x" is forbidden: violates PodSecurity '
                '"restricted:latest": runAsNonRoot != true (pod or container "main" must set '
                "securityContext.runAsNonRoot=true)",
            ),
        ),
    ),
    "webhook refuses pods": replace(
        ADMITTED_THERE,
        job=job(suspend=False),
        events=(
            event(
                "FailedCreate",
                'Error creating: admission webhook "images.example.com" denied the request: only '
                "images of registry.example.com",
            ),
        ),
    ),
    "foreign gate": replace(ADMITTED_THERE, pods=(gated("train-0", "example.com/data"),)),
    "admission gate": replace(ADMITTED_THERE, pods=(gated("train-0", labels.ADMISSION_GATE),)),
    "topology gate": replace(
        ADMITTED_THERE, pods=(gated("train-0", labels.TOPOLOGY_GATE), pod("train-1"))
    ),
    "no node": replace(
        ADMITTED_THERE,
        pods=(
            unschedulable(
                "train-0",
                "0/9 nodes are available: 3 Insufficient nvidia.com/gpu, 6 node(s) didn't match "
                "Pod's node affinity/selector.",
            ),
        ),
    ),
    "image": replace(
        ADMITTED_THERE,
        pods=(
            waiting("ImagePullBackOff", 'Back-off pulling image "registry.example.com/train:1"'),
        ),
    ),
    "ConfigMap is missing": replace(
        ADMITTED_THERE,
        pods=(waiting("CreateContainerConfigError", 'configmap "train" not found'),),
    ),
    "node is gone": replace(
        ADMITTED_THERE, pods=(pod(spec={"nodeName": "gpu-7"}),), nodes={"gpu-7": None}
    ),
    "node is not ready": replace(
        ADMITTED_THERE,
        pods=(pod(spec={"nodeName": "gpu-7"}),),
        nodes={
            "gpu-7": {
                "metadata": {"name": "gpu-7"},
                "status": {
                    "conditions": [condition("Ready", "Unknown", "NodeStatusUnknown", "gone")]
                },
            }
        },
    ),
    "volume is missing": replace(
        ADMITTED_THERE,
        pods=(pod(),),
        events=(
            event("FailedMount", 'MountVolume.SetUp failed: secret "token" not found', "train-0"),
        ),
    ),
    "no pods yet": replace(ADMITTED_THERE, job=job(suspend=False)),
    "no pods yet, events are hidden": replace(
        ADMITTED_THERE, job=job(suspend=False), sees_events=False
    ),
    "being set up": replace(ADMITTED_THERE, pods=(pod(),)),
}
REFUSING = {
    "worker has no namespace": replace(ON_EAST, space=None),
    "worker has no CRD": replace(ON_EAST, kind=JOB_SET, is_served=False),
    "worker has no LocalQueue": replace(ON_EAST, local_queues=()),
    "worker has no ClusterQueue": replace(ON_EAST, cluster_queue=None),
    "worker's queue is stopped": replace(
        ON_EAST, cluster_queue=cluster_queue(stopPolicy="HoldAndDrain")
    ),
    "worker's queue is not active": replace(
        ON_EAST,
        cluster_queue=cluster_queue(
            condition(
                "Active",
                "False",
                "FlavorNotFound",
                "Can't admit new workloads: references missing ResourceFlavor(s): h100.",
            )
        ),
    ),
    "worker's queue takes other namespaces": replace(
        ON_EAST,
        cluster_queue=cluster_queue(namespaceSelector={"matchLabels": {"team": "speech"}}),
    ),
    "worker's ResourceQuota is full": replace(
        ON_EAST, quotas=(full("requests.nvidia.com/gpu", "12", "16"),)
    ),
    "copy has no quota": replace(
        ON_EAST,
        workload=workload(
            condition(
                "QuotaReserved",
                "False",
                "Pending",
                "couldn't assign flavors to pod set main: insufficient unused quota for "
                "nvidia.com/gpu in flavor h100, 4 more needed",
            )
        ),
    ),
    "worker is not connected": replace(
        ON_HUB,
        workload=workload(RESERVED),
        connections=(
            {
                "metadata": {"name": "east"},
                "status": {
                    "conditions": [
                        condition("Active", "False", "ClientConnectionFailed", "dial tcp: refused")
                    ]
                },
            },
        ),
    ),
}
GROUPS = {
    "No Workload was made": UNMADE,
    "Admitted, but the pods do not start": UNSTARTED,
    "The worker refuses": REFUSING,
}
