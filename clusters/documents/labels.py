"""Labels, annotations and finalizers of Kubernetes, of Kueue and of the portal, by their names.

Source: Kueue pkg/controller/constants, v0.19.2; KEP-693 for copies on workers.
"""

from __future__ import annotations

from budgets.intervals.documents import ORIGIN_LABEL, ORIGIN_UID_ANNOTATION, REPLACES_ANNOTATION

# The ledger reads these three, too: their home is there.
ORIGIN = ORIGIN_LABEL
ORIGIN_UID = ORIGIN_UID_ANNOTATION
SLICE_OF = REPLACES_ANNOTATION
PREFIX = "kueue.x-k8s.io/"
QUEUE = f"{PREFIX}queue-name"
PRIORITY_CLASS = f"{PREFIX}priority-class"
PREBUILT = f"{PREFIX}prebuilt-workload-name"
MAX_EXECUTION = f"{PREFIX}max-exec-time-seconds"
MIN_PARALLELISM = f"{PREFIX}job-min-parallelism"
COMPLETIONS_FOLLOW = f"{PREFIX}job-completions-equal-parallelism"
GATED_BY = f"{PREFIX}admission-gated-by"
JOB_UID = f"{PREFIX}job-uid"
ELASTIC = f"{PREFIX}elastic-job"
SLICE_NAME = f"{PREFIX}workload-slice-name"
OWNER_GVK = f"{PREFIX}job-owner-gvk"
OWNER_NAME = f"{PREFIX}job-owner-name"
COMPONENT_INDEX = f"{PREFIX}component-workload-index"
IN_USE_FINALIZER = f"{PREFIX}resource-in-use"
POD_SET = f"{PREFIX}podset"
CLUSTER_QUEUE_NAME = f"{PREFIX}cluster-queue-name"
LOCAL_QUEUE_NAME = f"{PREFIX}local-queue-name"
MULTIKUEUE = f"{PREFIX}multikueue"
MANAGED = f"{PREFIX}managed"
# What holds a pod back until its Workload is admitted.
ADMISSION_GATE = f"{PREFIX}admission"
# What holds a pod back until it is told which domain of a topology it runs in.
TOPOLOGY_GATE = f"{PREFIX}topology"
# On pods that are placed: their Workload, and the index that their pod set begins with.
WORKLOAD = f"{PREFIX}workload"
INDEX_OFFSET = f"{PREFIX}pod-index-offset"
UNCONSTRAINED = f"{PREFIX}podset-unconstrained-topology"
POD_GROUP = f"{PREFIX}pod-group-name"
POD_GROUP_TOTAL = f"{PREFIX}pod-group-total-count"
POD_GROUP_FAST = f"{PREFIX}pod-group-fast-admission"
POD_ROLE = f"{PREFIX}role-hash"
POD_RETRIABLE = f"{PREFIX}retriable-in-group"
IS_GROUP_WORKLOAD = f"{PREFIX}is-group-workload"
# Ours, on copies: which body was sent, and for which reservation of the manager's workload.
SENT_DIGEST = "gpu-budget-portal.dev/sent-digest"
ATTEMPT = "gpu-budget-portal.dev/attempt"
# Ours, on a Workload copy that no engine adopts: its job was about to be made.
JOB_MADE = "gpu-budget-portal.dev/job-made"
# Ours, on a Workload copy of several pods: UIDs of the manager's pods that were made there.
MEMBERS_MADE = "gpu-budget-portal.dev/members-made"
# Ours, on elastic Jobs: number of the Workload that stands for their present size, from 1 on.
SLICE = "gpu-budget-portal.dev/slice"
# Ours, on jobs: why nobody can count with what their owner wrote, a sentence; on Workloads: why
# they wait until it is written anew.
REFUSED = "gpu-budget-portal.dev/refused"
# Ours, on jobs: labels of the place that the data is at, as ``key=value,key=value``.
DATA_LOCALITY = "gpu-budget-portal.dev/data-locality"

DEFAULT_QUEUE = "default"
# The Job controller's own marks on a template; they name one Job and mean nothing elsewhere.
GENERATED_LABELS = (
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
)
SET_KIND = "LeaderWorkerSet"
SET_GROUP = "leaderworkerset.x-k8s.io"
SET_PREFIX = "leaderworkerset.sigs.k8s.io/"
SET_NAME = f"{SET_PREFIX}name"
SET_INDEX = f"{SET_PREFIX}group-index"
# Whose an object is that the portal applied, and from which promise.
MANAGED_BY = "app.kubernetes.io/managed-by"
INSTALLATION = "gpu-budget-portal.dev/installation"
GENERATION = "gpu-budget-portal.dev/generation"
SUBJECT = "gpu-budget-portal.dev/subject"
# Ours, on the manager's Secret of a worker: which kubeconfig it holds.
KUBECONFIG_DIGEST = "gpu-budget-portal.dev/kubeconfig-digest"
# Ours, on jobs that an action stopped: why.
STOPPED_BECAUSE = "gpu-budget-portal.dev/stopped-because"
# Ours, on a manager's Workload: when Kueue was last made to look at it, after a worker's return.
WOKEN = "gpu-budget-portal.dev/woken-at"

NAMESPACE_NAME = "kubernetes.io/metadata.name"
HOSTNAME = "kubernetes.io/hostname"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"


def level_word(level: str) -> str:
    """A level of a topology: ``example.com/gpu-rack`` → ``gpu-rack``; ``node`` for a hostname."""
    return "node" if level == HOSTNAME else level.rpartition("/")[2]
