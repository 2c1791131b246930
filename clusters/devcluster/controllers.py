"""What an embedded cluster does for lack of kubelets: Jobs run as long as their annotation says.

Stands in for the Job controller, the scheduler and the nodes together; a Job that another
controller manages (spec.managedBy) is left alone, as by the real Job controller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from clusters.devcluster.cluster import DevCluster
from clusters.devcluster.problems import Document, Problem
from clusters.devcluster.registry import BY_KEY
from clusters.devcluster.store import Change, Subscription
from clusters.devcluster.writes import MERGE, Intent, Target
from clusters.documents import labels
from clusters.documents.conditions import is_true

RUN_SECONDS = "devcluster.gpu-budget.dev/run-seconds"
EXIT_CODE = "devcluster.gpu-budget.dev/exit-code"
DEFAULT_RUN_S = 30.0
JOB_CONTROLLER = "kubernetes.io/job-controller"
_JOBS, _NODES = BY_KEY["batch/jobs"], BY_KEY["/nodes"]
_INTENT = Intent("devcluster-jobs")
_TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Nodes to make: how many, their labels, taints and resources (as Kubernetes quantities)."""

    prefix: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


def make_nodes(cluster: DevCluster, shape: NodeShape) -> None:
    """Creates the Ready nodes of a shape that are not there yet."""
    now = cluster.writes.timestamp()
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", **shape.resources}
    for index in range(shape.count):
        name = f"{shape.prefix}-{index}"
        if cluster.store.get(_NODES.key, "", name):
            continue
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "embedded node",
            "lastTransitionTime": now,
            "lastHeartbeatTime": now,
        }
        document: Document = {
            "metadata": {"name": name, "labels": {labels.HOSTNAME: name, **shape.labels}},
            "spec": {"taints": [dict(taint) for taint in shape.taints]} if shape.taints else {},
            "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
        }
        cluster.writes.create(Target(_NODES), document, Intent("devcluster-nodes"))


class JobRunner:
    """Runs the Jobs of one cluster; `start` and `stop`.

    Args:
        cluster: Where the Jobs are.
        status_of: From a Job and the time to the status that it should have.
    """

    def __init__(
        self,
        cluster: DevCluster,
        *,
        status_of: Callable[[Document, datetime], Document] | None = None,
    ) -> None:
        self._cluster = cluster
        self._status_of = status_of or next_status
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"jobs-{cluster.name}", daemon=True)
        self._open: dict[tuple[str, str], Document] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        store = self._cluster.store
        subscription = self._begin()
        while not self._stop.is_set():
            if not subscription.read(_TICK_S, stop=self._stop, take=self._take):
                subscription = self._begin()
            for job in list(self._open.values()):
                self._advance(job)
        store.unsubscribe(subscription)

    def _begin(self) -> Subscription:
        store = self._cluster.store
        with store.lock:
            _, subscription = store.subscribe(_JOBS.key, since=None)
            jobs = store.all(_JOBS.key)[1]
        self._open = {_place(job): job for job in jobs if not is_finished(job)}
        return subscription

    def _take(self, change: Change) -> float | None:
        place = _place(change.document)
        if change.type == "DELETED" or is_finished(change.document):
            self._open.pop(place, None)
            return None
        self._open[place] = change.document
        return 0.01

    def _advance(self, job: Document) -> None:
        spec = job["spec"]
        if spec.get("managedBy", JOB_CONTROLLER) != JOB_CONTROLLER:
            return
        status = dict(job.get("status") or {})
        wanted = self._status_of(job, datetime.now(UTC))
        if wanted == status:
            return
        patch = {key: None for key in status if key not in wanted} | wanted
        body = {
            "metadata": {"resourceVersion": job["metadata"]["resourceVersion"]},
            "status": patch,
        }
        namespace, name = _place(job)
        target = Target(_JOBS, namespace, name, "status")
        try:
            self._open[namespace, name] = self._cluster.writes.patch(target, body, MERGE, _INTENT)
        except Problem as problem:
            # Somebody else wrote first, or deleted it; the next tick reads that.
            if problem.code not in (404, 409):
                raise
            self._reread(namespace, name)

    def _reread(self, namespace: str, name: str) -> None:
        live = self._cluster.store.get(_JOBS.key, namespace, name)
        if live is None or is_finished(live):
            self._open.pop((namespace, name), None)
        else:
            self._open[namespace, name] = live


def is_finished(job: Document) -> bool:
    """Whether the Job is Complete or Failed."""
    return is_true(job, "Complete") or is_true(job, "Failed")


def next_status(job: Document, now: datetime) -> Document:
    """The status that a Job should have now; equal to the present one when nothing is due."""
    spec, status = job["spec"], dict(job.get("status") or {})
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if spec.get("suspend"):
        kept = {k: v for k, v in status.items() if k not in ("startTime", "active", "ready")}
        kept |= {"active": 0, "ready": 0}
        return _with_condition(kept, ("Suspended", "True", "JobSuspended", "Job suspended"), stamp)
    pods = int(spec.get("parallelism", 1))
    if "startTime" not in status:
        status |= {"startTime": stamp, "active": pods, "ready": pods}
        if status.get("conditions"):
            resumed = "Suspended", "False", "JobResumed", "Job resumed"
            status = _with_condition(status, resumed, stamp)
        return status
    annotations = job["metadata"].get("annotations") or {}
    started = datetime.fromisoformat(status["startTime"])
    if (now - started).total_seconds() < _number(annotations.get(RUN_SECONDS), DEFAULT_RUN_S):
        return status
    return _ended(status, spec, failed=annotations.get(EXIT_CODE, "0") != "0", stamp=stamp)


def _ended(status: Document, spec: Document, *, failed: bool, stamp: str) -> Document:
    pods = int(spec.get("completions") or spec.get("parallelism") or 1)
    status = status | {"active": 0, "ready": 0, "terminating": 0}
    if failed:
        status["failed"] = pods
        text = "Job has reached the specified backoff limit"
        for kind in ("FailureTarget", "Failed"):
            condition = kind, "True", "BackoffLimitExceeded", text
            status = _with_condition(status, condition, stamp)
        return status
    status |= {"succeeded": pods, "completionTime": stamp}
    text = "Reached expected number of succeeded pods"
    for kind in ("SuccessCriteriaMet", "Complete"):
        status = _with_condition(status, (kind, "True", "CompletionsReached", text), stamp)
    return status


def _with_condition(status: Document, condition: tuple[str, str, str, str], stamp: str) -> Document:
    kind, value, reason, message = condition
    conditions = list(status.get("conditions") or [])
    for entry in conditions:
        if entry["type"] == kind and entry["status"] == value:
            return status
    rest = [entry for entry in conditions if entry["type"] != kind]
    new = {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastProbeTime": stamp,
        "lastTransitionTime": stamp,
    }
    return status | {"conditions": [*rest, new]}


def _number(value: Any, default: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return default


def _place(document: Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata["namespace"], metadata["name"]
