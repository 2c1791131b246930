"""Labels, annotations and names by which Kueue, Jobs and the portal know each other.

Source: Kueue pkg/controller/constants, pkg/controller/jobframework/workload_names.go, v0.19.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

Document = Mapping[str, Any]

PREFIX = "kueue.x-k8s.io/"
QUEUE = f"{PREFIX}queue-name"
PRIORITY_CLASS = f"{PREFIX}priority-class"
PREBUILT = f"{PREFIX}prebuilt-workload-name"
MAX_EXECUTION = f"{PREFIX}max-exec-time-seconds"
MIN_PARALLELISM = f"{PREFIX}job-min-parallelism"
COMPLETIONS_FOLLOW = f"{PREFIX}job-completions-equal-parallelism"
GATED_BY = f"{PREFIX}admission-gated-by"
JOB_UID = f"{PREFIX}job-uid"
ORIGIN = f"{PREFIX}multikueue-origin"
IN_USE_FINALIZER = f"{PREFIX}resource-in-use"
POD_SET = f"{PREFIX}podset"
CLUSTER_QUEUE_NAME = f"{PREFIX}cluster-queue-name"
LOCAL_QUEUE_NAME = f"{PREFIX}local-queue-name"
MULTIKUEUE = f"{PREFIX}multikueue"
# Ours, on copies: which body was sent, and for which reservation of the manager's workload.
SENT_DIGEST = "gpu-budget-portal.dev/sent-digest"
ATTEMPT = "gpu-budget-portal.dev/attempt"
# Ours, on a Workload copy that no engine adopts: its job was about to be made.
JOB_MADE = "gpu-budget-portal.dev/job-made"
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
_NAME_LIMIT, _HASH_LENGTH = 253, 5


def key_of(document: Document) -> str:
    """``namespace/name``."""
    metadata = document["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def labels_of(document: Document) -> Mapping[str, str]:
    return document["metadata"].get("labels") or {}


def annotations_of(document: Document) -> Mapping[str, str]:
    return document["metadata"].get("annotations") or {}


def workload_name(*, kind: str, group: str, name: str, uid: str) -> str:
    """The name of the Workload that is made for an owner.

    Args:
        kind: Of the owner, as ``Job``.
        group: Its API group, as ``batch``.
        name: Its name.
        uid: Its UID, so that a Job of a name that was used before gets another Workload.
    """
    digest = hashlib.sha1("\n".join((kind, group, name, uid)).encode(), usedforsecurity=False)
    stem = f"{kind.lower()}-{name}"[: _NAME_LIMIT - _HASH_LENGTH - 1]
    return f"{stem}-{digest.hexdigest()[:_HASH_LENGTH]}"


def stamp(at: datetime) -> str:
    """A time as Kubernetes writes it: UTC, whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
