"""A look at the objects of one job on its clusters: what is wrong there, in sentences.

For jobs that the portal has no row of, because no Workload was made, and for what no Workload
tells: pods that do not start, workers that cannot take a job. Asked for by a person, carried out by
a task, told by the operation. Nothing on a cluster is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from budgets import services as promises
from budgets.errors import Rejected
from budgets.models import Operation, User, Workspace
from budgets.selectors import visible_workspaces
from clusters.broker import send
from clusters.credentials import connection_to
from clusters.documents import labels
from clusters.documents.conditions import is_true
from clusters.documents.keys import Document, owner_uids, status_of, uid_of
from clusters.documents.resources import Resource
from clusters.errors import ClusterError, Forbidden, NotFound
from clusters.explaining.names import Names
from clusters.explaining.objects import Objects, looked_at
from clusters.jobs.kind import JobKind
from clusters.jobs.table import KINDS
from clusters.jobs.workloads import queue_of
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, Selection
from clusters.kube.shares import IN_TASKS
from clusters.models import Cluster
from clusters.selectors.names import reader_names

log = structlog.stdlib.get_logger(__name__)

KIND: Final = "look_at_the_objects"
TASK: Final = "clusters.tasks.look_at_job"
AT_ONCE: Final = 8
TIMEOUT_S: Final = 3.0
MOST_PODS: Final = 200
MOST_NODES: Final = 3
MOST_EVENTS: Final = 50
MOST_TEXT: Final = 500
NOTHING: Final = (
    "Nothing on the clusters speaks against this job. If it waits for GPUs, its page says for "
    "which."
)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_POD_GROUP: Final = KINDS["", "Pod"]


def start_look(actor: User, *, workspace: Workspace, job: str) -> Operation:
    """Look at a job's objects in the background; without a broker it is done before this returns.

    Args:
        actor: Who reads the answer, in the names that they may see.
        workspace: One that the actor sees.
        job: Name of the job, or of a pod group.

    Raises:
        Rejected: No job can have that name.
    """
    name = job.strip()
    if _NAME.fullmatch(name) is None:
        words = (
            f"{name[:80]!r} is not the name of a job. Type its metadata.name: small letters, "
            "digits, hyphens and dots, 253 at most."
        )
        raise Rejected.because("job", "invalid", words)
    visible_workspaces(actor, include_archived=True).get(pk=workspace.pk)
    subject = f"job:{workspace.namespace}/{name}"
    operation = promises.start_operation(actor, kind=KIND, subject=subject)
    if not send(TASK, str(operation.pk)):
        look_at_job(str(operation.pk))
        operation.refresh_from_db()
    return operation


def look_at_job(operation_id: str) -> str:
    """Ask the clusters and close the operation; returns what was told, empty for none."""
    row = Operation.objects.filter(
        pk=operation_id, kind=KIND, state=Operation.State.RUNNING
    ).select_related("started_by")
    operation = row.first()
    if operation is None or operation.started_by is None:
        return ""
    namespace, _, name = operation.subject.partition(":")[2].partition("/")
    names = reader_names(operation.started_by)
    told = _cut(dict.fromkeys(_sentences(namespace, name, names)))
    promises.finish_operation(operation_id, message=told or NOTHING)
    return told


def _cut(sentences: Iterable[str]) -> str:
    """As many as an operation keeps; what is longer by itself is cut between words."""
    told = ""
    for sentence in sentences:
        more = f"{told} {sentence}".strip()
        if len(more) > MOST_TEXT:
            return told or f"{sentence[: MOST_TEXT - 2].rsplit(' ', 1)[0]} …"
        told = more
    return told


def _sentences(namespace: str, name: str, names: Names) -> list[str]:
    """What the clusters show, first where the job was submitted, then where it is to run."""
    known = Cluster.objects.active()
    submitted = _asked(known.taking_jobs(), Sought(namespace, name))
    having = [look for look in submitted if look.objects is not None and look.has_job]
    told = [text for look in having or submitted if (text := look.sentence(names))]
    manager = next((look for look in having if look.cluster.is_manager), None)
    if manager is None or manager.objects is None or manager.objects.workload is None:
        return told
    workload = manager.objects.workload
    if not is_true(workload, "QuotaReserved") or is_true(workload, "Finished"):
        return told
    status = status_of(workload)
    offered = [status["clusterName"]] if status.get("clusterName") else None
    offered = offered or status.get("nominatedClusterNames")
    workers = known.workers().filter(slug__in=offered) if offered else known.workers()
    there = Sought(namespace, name, manager.objects.kind, workload, manager.objects.job)
    return [*told, *(text for look in _asked(workers, there) if (text := look.sentence(names)))]


@dataclass(frozen=True, slots=True)
class Sought:
    """Which job; of one on a worker also what the manager has of it."""

    namespace: str
    name: str
    kind: JobKind | None = None
    workload: Document | None = None
    job: Document | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    """What one cluster showed; without objects why it showed none."""

    cluster: Cluster
    objects: Objects | None = None
    problem: str = ""

    @property
    def has_job(self) -> bool:
        """Whether the job is known there."""
        found = self.objects
        return found is not None and (found.job is not None or found.workload is not None)

    def sentence(self, names: Names) -> str:
        """For a reader; empty where nothing is wrong."""
        if self.objects is None:
            if not names.sees_everything:
                return "One cluster could not be asked. Ask again in a while."
            where, why = names.cluster(self.cluster.slug), self.problem.rstrip(".")
            return f"{where} could not be asked: {why}."
        found = looked_at(self.objects, names)
        return found.sentence if found is not None else ""


def _asked(clusters: Iterable[Cluster], job: Sought) -> list[_Look]:
    """Each cluster in a thread of its own, which touches no database; one fault is one's own."""
    rows = list(clusters)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="look") as pool:
        return list(pool.map(lambda cluster: _look(cluster, job), rows))


def _look(cluster: Cluster, job: Sought) -> _Look:
    try:
        to, share = connection_to(cluster.kubeconfig_sealed), IN_TASKS.of(cluster.slug)
        with KubeClient.from_connection(to, read_timeout_s=TIMEOUT_S, share=share) as client:
            return _Look(cluster, read_objects(client, _known_of(cluster, job), job))
    except ClusterError as error:
        return _Look(cluster, problem=f"{error.reason}: {error.message}"[:200])
    except Exception:  # whatever one cluster shows, the next is asked
        log.exception("job_not_looked_at", cluster=cluster.slug)
        return _Look(cluster, problem="an object of it cannot be read")


def _known_of(cluster: Cluster, job: Sought) -> Objects:
    """What is known of a job before its cluster is asked."""
    return Objects(
        cluster=cluster.slug,
        role=cluster.role,
        namespace=job.namespace,
        name=job.name,
        is_kueue=cluster.mode == Cluster.Mode.KUEUE,
        configuration=cluster.kueue_configuration or {},
        kind=job.kind,
    )


def read_objects(client: KubeClient, known: Objects, job: Sought) -> Objects:
    """Read what the rules look at: some 25 requests at most, each of a bounded answer.

    Raises:
        ClusterError: The cluster does not answer, or does not let the portal read.
    """
    reader = _Reader(client, known.namespace)
    found = replace(known, space=reader.one(r.NAMESPACE, known.namespace))
    if found.space is None:
        return found
    found = reader.with_job(found, job)
    found = replace(found, local_queues=reader.all_of(r.LOCAL_QUEUE))
    leads_to = str(((found.local_queue() or {}).get("spec") or {}).get("clusterQueue") or "")
    if leads_to:
        found = replace(found, cluster_queue=reader.one(r.CLUSTER_QUEUE, leads_to))
    if found.role == Cluster.Role.MANAGER:
        found = replace(found, connections=reader.all_of(r.MULTIKUEUE_CLUSTER))
    elif found.workload is not None and is_true(found.workload, "Admitted"):
        found = reader.with_pods(found)
    elif found.role == Cluster.Role.WORKER:
        asked = found.workload or job.workload
        found = replace(found, quotas=reader.all_of(r.RESOURCE_QUOTA), asked=asked)
    return reader.with_events(found)


@dataclass(slots=True)
class _Reader:
    """Requests to one cluster about one namespace; what is not there, or not shown, is nothing."""

    client: KubeClient
    namespace: str
    unseen: set[str] = field(default_factory=set)

    def one(self, resource: Resource, name: str) -> Document | None:
        """One object; None where it is not there or may not be read."""
        namespace = self.namespace if resource.namespaced else None
        try:
            return self.client.get(resource, name, namespace=namespace)
        except NotFound:
            return None
        except Forbidden:
            if _is_needed(resource):
                raise
            self.unseen.add(resource.plural)
            return None

    def all_of(
        self, resource: Resource, *, labels: str = "", fields: str = ""
    ) -> Sequence[Document]:
        """Objects of the namespace, or all of a kind that has none."""
        namespace = self.namespace if resource.namespaced else None
        try:
            return self.client.list(resource, Selection(namespace, labels, fields)).items
        except NotFound:
            return []
        except Forbidden:
            if _is_needed(resource):
                raise
            self.unseen.add(resource.plural)
            return []

    def serves(self, resource: Resource) -> bool:
        """Whether the cluster has a kind; one that may not be read counts as served."""
        try:
            self.client.newest_version(resource, Selection(self.namespace))
        except NotFound:
            return False
        except Forbidden:
            self.unseen.add(resource.plural)
        return True

    def with_job(self, found: Objects, job: Sought) -> Objects:
        """With the job, of whichever kind it is, and its Workload."""
        if found.role == Cluster.Role.WORKER and job.workload is not None and job.kind is not None:
            metadata = job.workload["metadata"]
            return replace(
                found,
                job=self.one(job.kind.resource, found.name),
                workload=self.one(r.WORKLOAD, metadata["name"]),
                queue=str((job.workload.get("spec") or {}).get("queueName") or ""),
                is_served=self.serves(job.kind.resource),
            )
        kind, document, group = self._job(found)
        workload = self._workload(kind, document, found.name)
        queue = queue_of(document) if document is not None else ""
        if workload is not None:
            queue = str((workload.get("spec") or {}).get("queueName") or queue)
        return replace(found, kind=kind, job=document, group=group, workload=workload, queue=queue)

    def _job(self, found: Objects) -> tuple[JobKind | None, Document | None, Sequence[Document]]:
        for kind in KINDS.values():
            document = self.one(kind.resource, found.name)
            if document is not None:
                return kind, document, ()
        group = self.all_of(r.POD, labels=f"{labels.POD_GROUP}={found.name}")[:MOST_PODS]
        return (_POD_GROUP, group[0], group) if group else (None, None, ())

    def _workload(self, kind: JobKind | None, job: Document | None, name: str) -> Document | None:
        if kind is None or job is None:
            return self.one(r.WORKLOAD, name)
        for each in kind.workload_names(kind.gathered([dict(job)]) or job):
            if (workload := self.one(r.WORKLOAD, each)) is not None:
                return workload
        made = self.all_of(r.WORKLOAD, labels=f"{labels.JOB_UID}={uid_of(job)}")
        return made[0] if made else None

    def with_pods(self, found: Objects) -> Objects:
        """With the pods of the job that have not started, and the nodes that they were given."""
        uids = {uid_of(each) for each in (found.job, *found.group) if each is not None}
        waiting = self.all_of(r.POD, fields="status.phase=Pending")
        pods = [pod for pod in waiting if _is_of(pod, found.name, uids)][:MOST_PODS]
        given = dict.fromkeys(
            str(name) for pod in pods if (name := (pod.get("spec") or {}).get("nodeName"))
        )
        names = list(given)[:MOST_NODES]
        nodes = {name: self.one(r.NODE, name) for name in names}
        if r.NODE.plural in self.unseen:
            nodes = {}
        return replace(found, pods=pods, nodes=nodes)

    def with_events(self, found: Objects) -> Objects:
        """With the warnings about the job, and about the first pod that has not started."""
        about = [found.name, *(str(pod["metadata"]["name"]) for pod in found.pods[:1])]
        events = [
            event
            for name in about
            for event in self.all_of(r.EVENT, fields=f"involvedObject.name={name}")
            if event.get("type") == "Warning"
        ]
        newest = sorted(events, key=_event_at, reverse=True)[:MOST_EVENTS]
        return replace(found, events=newest, sees_events=r.EVENT.plural not in self.unseen)


def _is_needed(resource: Resource) -> bool:
    """Whether nothing can be said of a cluster where the portal may not read a kind."""
    return resource == r.NAMESPACE or resource.group == r.KUEUE_GROUP


def _is_of(pod: Document, job: str, uids: set[str]) -> bool:
    """Whether a pod is of a job: it is the job, or names it as its owner or in a label."""
    metadata = pod["metadata"]
    marks: Mapping[str, Any] = metadata.get("labels") or {}
    owns = {uid_of(pod), *owner_uids(pod), str(marks.get(labels.CONTROLLER_UID) or "")} & uids
    return bool(owns - {""}) or job in marks.values()


def _event_at(event: Document) -> str:
    told = (event.get(key) for key in ("lastTimestamp", "eventTime"))
    return next((str(at) for at in told if at), "") or str(
        event["metadata"].get("creationTimestamp") or ""
    )
