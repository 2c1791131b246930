"""What an embedded cluster does beside its API: Jobs run as long as their annotation says.

Stands in for the Job controller, the scheduler and the nodes together; a Job that another
controller manages (spec.managedBy) is left alone, as by the real Job controller.

And what follows deletions: dependents go with their owners, content with its namespace. One thread
per cluster reads the changes, and sweeps while anything has to go, as the garbage collector and the
namespace controller of a real cluster do.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from clusters.devcluster.cluster import DevCluster
from clusters.devcluster.problems import Document, Failure
from clusters.devcluster.registry import BY_KEY, JOBS, NAMESPACES, NODES
from clusters.devcluster.store import Commit, Key, Subscription
from clusters.devcluster.writes import MERGE, Address, Intent
from clusters.documents import labels
from clusters.documents.conditions import Condition, condition, is_true, with_conditions
from clusters.documents.keys import annotations_of, bound, place_of
from clusters.documents.times import stamp

RUN_SECONDS = "devcluster.gpu-budget.dev/run-seconds"
EXIT_CODE = "devcluster.gpu-budget.dev/exit-code"
DEFAULT_RUN_S = 30.0
JOB_CONTROLLER = "kubernetes.io/job-controller"
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
        if cluster.store.get(NODES.key, "", name):
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
        cluster.writes.create(Address(NODES), document, Intent("devcluster-nodes"))


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
        self._open: dict[Key, Document] = {}
        self._due: dict[Key, None] = {}
        # Those that are due again then, seconds since 1970, or when somebody changes them.
        self._rests: dict[Key, float] = {}

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
            self._wake(time.time())
            for place in list(self._due):
                try:
                    self._advance(self._open[place])
                except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                    # What somebody wrote into it cannot be read: it stands, and others run.
                    self._close(place)
        store.unsubscribe(subscription)

    def _begin(self) -> Subscription:
        store = self._cluster.store
        with store.lock:
            _, subscription = store.subscribe(JOBS.key, since=None)
            jobs = store.all(JOBS.key)[1]
        self._open = {place_of(job): job for job in jobs if not is_finished(job)}
        self._due = dict.fromkeys(self._open)
        self._rests.clear()
        return subscription

    def _take(self, change: Commit) -> float | None:
        place = place_of(change.document)
        if change.type == "DELETED" or is_finished(change.document):
            self._close(place)
            return None
        self._rests.pop(place, None)
        self._open[place], self._due[place] = change.document, None
        return 0.01

    def _wake(self, now: float) -> None:
        """Look again at those that rested until now."""
        for place in [place for place, until in self._rests.items() if until <= now]:
            del self._rests[place]
            self._due[place] = None

    def _rest(self, place: Key, until: float) -> None:
        self._due.pop(place, None)
        if until < math.inf:
            self._rests[place] = until

    def _close(self, place: Key) -> None:
        for known in (self._open, self._due, self._rests):
            known.pop(place, None)

    def _advance(self, job: Document) -> None:
        spec = job["spec"]
        if spec.get("managedBy", JOB_CONTROLLER) != JOB_CONTROLLER:
            self._rest(place_of(job), math.inf)
            return
        status = dict(job.get("status") or {})
        wanted = self._status_of(job, datetime.now(UTC))
        if wanted == status:
            if self._status_of is next_status:
                self._rest(place_of(job), _ends_at(job))
            return
        patch = {key: None for key in status if key not in wanted} | wanted
        body = {**bound(job), "status": patch}
        namespace, name = place_of(job)
        target = Address(JOBS, namespace, name, "status")
        try:
            self._open[namespace, name] = self._cluster.writes.patch(target, body, MERGE, _INTENT)
        except Failure as problem:
            # Somebody else wrote first, or deleted it; the next tick reads that.
            if problem.code not in (404, 409):
                raise
            live = self._cluster.store.get(JOBS.key, namespace, name)
            if live is None or is_finished(live):
                self._close((namespace, name))
            else:
                self._open[namespace, name] = live


def is_finished(job: Document) -> bool:
    """Whether the Job is Complete or Failed."""
    return is_true(job, "Complete") or is_true(job, "Failed")


def next_status(job: Document, now: datetime) -> Document:
    """The status that a Job should have now; equal to the present one when nothing is due."""
    spec, status = job["spec"], dict(job.get("status") or {})
    if spec.get("suspend"):
        kept = {k: v for k, v in status.items() if k not in ("startTime", "active", "ready")}
        kept |= {"active": 0, "ready": 0}
        return _with(job, kept, [("Suspended", True, "JobSuspended", "Job suspended")], now)
    pods = int(spec.get("parallelism", 1))
    if "startTime" not in status:
        status |= {"startTime": stamp(now), "active": pods, "ready": pods}
        resumed = ("Suspended", False, "JobResumed", "Job resumed")
        return _with(job, status, [resumed] if status.get("conditions") else [], now)
    if now.timestamp() < _ends_at(job):
        return status
    pods = int(spec.get("completions") or spec.get("parallelism") or 1)
    status |= {"active": 0, "ready": 0, "terminating": 0}
    if annotations_of(job).get(EXIT_CODE, "0") != "0":
        kinds, because = ("FailureTarget", "Failed"), "BackoffLimitExceeded"
        text = "Job has reached the specified backoff limit"
        status["failed"] = pods
    else:
        kinds, because = ("SuccessCriteriaMet", "Complete"), "CompletionsReached"
        text = "Reached expected number of succeeded pods"
        status |= {"succeeded": pods, "completionTime": stamp(now)}
    return _with(job, status, [(kind, True, because, text) for kind in kinds], now)


def _ends_at(job: Document) -> float:
    """When a Job that nobody changes is over, in seconds since 1970; inf: never."""
    started = (job.get("status") or {}).get("startTime")
    if job["spec"].get("suspend") or not started:
        return math.inf
    run_s = _number(annotations_of(job).get(RUN_SECONDS), DEFAULT_RUN_S)
    return datetime.fromisoformat(started).timestamp() + run_s


def _with(
    job: Document, status: Document, changes: Sequence[tuple[str, bool, str, str]], now: datetime
) -> Document:
    """The status, some of its conditions set; those that say so already stay as they are."""
    due = [
        Condition(*change, is_observed=False)
        for change in changes
        if condition(job, change[0]).get("status") != str(change[1])
    ]
    if not due:
        return status
    return status | {"conditions": with_conditions(job, due, now=now)}


def _number(value: Any, default: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return default


FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_GARBAGE = Intent("devcluster-garbage")
_SWEEP_EVERY_S = 1.0
_BATCH_S = 0.05
# A sweep goes through everything, so it rests for so many times as long as it took.
_REST = 10.0


class GarbageCollector:
    """Runs beside one cluster; `start` and `stop`."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        _, self._subscription = cluster.store.subscribe("", since=None)
        self._is_due, self._rest_s = True, _BATCH_S
        self._thread = threading.Thread(
            target=self._run, name=f"garbage-{cluster.name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._subscription.end()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        store = self._cluster.store
        while not self._stop.is_set():
            if self._is_due:
                begun = time.monotonic()
                self._is_due = self.sweep()
                self._rest_s = max(_BATCH_S, _REST * (time.monotonic() - begun))
            if not self._subscription.read(_SWEEP_EVERY_S, stop=self._stop, take=self._take):
                # The cluster ended every watch, this one included.
                _, self._subscription = store.subscribe("", since=None)
                self._is_due = True
        store.unsubscribe(self._subscription)

    def _take(self, change: Commit) -> float | None:
        """After a change that matters the next sweep comes soon."""
        if not _matters(change):
            return None
        self._is_due = True
        return self._rest_s

    def sweep(self) -> bool:
        """Deletes what has lost its last owner, and moves on what waits to be gone.

        Returns:
            Whether anything had to go, so that it has to be looked at again.
        """
        goes = False
        everything = self._cluster.store.everything()
        uids = {document["metadata"]["uid"] for _, document in everything}
        for kind, document in everything:
            metadata = document["metadata"]
            owners = metadata.get("ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                self._delete(kind, document)
                goes = True
            finalizers = metadata.get("finalizers") or []
            if "deletionTimestamp" in metadata:
                goes = True
                if FOREGROUND in finalizers:
                    self._follow(kind, document, everything)
                elif ORPHAN in finalizers:
                    self._orphan(kind, document, everything)
                elif kind == NAMESPACES.key:
                    self._empty(document, everything)
        return goes

    def _follow(self, kind: str, owner: Document, everything: list[tuple[str, Document]]) -> None:
        """Foreground: the dependents go first; those that block keep the owner."""
        waits = False
        for dependent_kind, dependent, reference in _dependents(owner, everything):
            self._delete(dependent_kind, dependent)
            still = self._cluster.store.get(dependent_kind, *place_of(dependent))
            waits = waits or (still is not None and bool(reference.get("blockOwnerDeletion")))
        if not waits:
            self._strip(kind, owner, FOREGROUND)

    def _orphan(self, kind: str, owner: Document, everything: list[tuple[str, Document]]) -> None:
        uid = owner["metadata"]["uid"]
        for dependent_kind, dependent, _ in _dependents(owner, everything):
            kept = [r for r in dependent["metadata"]["ownerReferences"] if r["uid"] != uid]
            self._patch(dependent_kind, dependent, {"ownerReferences": kept})
        self._strip(kind, owner, ORPHAN)

    def _empty(self, namespace: Document, everything: list[tuple[str, Document]]) -> None:
        name = namespace["metadata"]["name"]
        inside = [
            (kind, document)
            for kind, document in everything
            if document["metadata"].get("namespace") == name
        ]
        for kind, document in inside:
            self._delete(kind, document)
        if not any(self._cluster.store.get(kind, *place_of(document)) for kind, document in inside):
            target, body = Address(NAMESPACES, "", name), {"spec": {"finalizers": None}}
            self._try(lambda: self._cluster.writes.patch(target, body, MERGE, _GARBAGE))

    def _delete(self, kind: str, document: Document) -> None:
        target = Address(BY_KEY[kind], *place_of(document))
        exact = {"preconditions": {"uid": document["metadata"]["uid"]}}
        self._try(lambda: self._cluster.writes.delete(target, exact, dry_run=False))

    def _strip(self, kind: str, document: Document, finalizer: str) -> None:
        left = [f for f in document["metadata"].get("finalizers") or [] if f != finalizer]
        self._patch(kind, document, {"finalizers": left})

    def _patch(self, kind: str, document: Document, metadata: Document) -> None:
        target = Address(BY_KEY[kind], *place_of(document))
        body = {"metadata": {"uid": document["metadata"]["uid"]} | metadata}
        self._try(lambda: self._cluster.writes.patch(target, body, MERGE, _GARBAGE))

    @staticmethod
    def _try(write: Callable[[], object]) -> None:
        """Somebody may have been faster; the next sweep sees what is left."""
        try:
            write()
        except Failure as problem:
            if problem.code not in (404, 409):
                raise


def _matters(change: Commit) -> bool:
    """Whether something may have to go for it."""
    metadata = change.document["metadata"]
    if change.type == "DELETED" or "deletionTimestamp" in metadata:
        return True
    before = change.before["metadata"].get("ownerReferences") if change.before else None
    return bool(metadata.get("ownerReferences") != before)


def _dependents(
    owner: Document, everything: list[tuple[str, Document]]
) -> Iterator[tuple[str, Document, Document]]:
    uid = owner["metadata"]["uid"]
    for kind, document in everything:
        for reference in document["metadata"].get("ownerReferences") or []:
            if reference["uid"] == uid:
                yield kind, document, reference
