"""What was read of one cluster about one job, and what a rule says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.documents.keys import Document
from clusters.explaining.names import Names
from clusters.jobs.kind import JobKind

_UNNAMED: Final = {
    "manager": "the cluster where jobs are submitted",
    "worker": "a worker",
    "single": "the cluster",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong.

    Attributes:
        words: A clause without a full stop.
        remedy: What to do about it, a sentence; empty where the cluster itself goes on.
    """

    words: str
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """Both, for people."""
        told = f"{self.words[:1].upper()}{self.words[1:].rstrip('.')}."
        return f"{told} {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True)
class Objects:
    """What one cluster has about one job; what it was not asked for is empty.

    Attributes:
        cluster: Slug.
        role: ``manager``, ``worker`` or ``single``.
        is_kueue: Kueue makes Workloads there; else the portal does.
        namespace, name: Of the job.
        configuration: Kueue's Configuration there; empty where nobody knows it.
        space: The Namespace; None where there is none.
        kind: Of the job; None where no job of the name was found.
        job: The job itself; None where there is none.
        group: All pods of the job's pod group, where it is one.
        workload: Its Workload; None where there is none.
        asked: The Workload that says what the job asks for, on a worker the manager's; else None.
        queue: Name of the LocalQueue that the job names; empty for none.
        local_queues: Those of the namespace.
        cluster_queue: Of the named LocalQueue; None where it is not there.
        connections: The manager's MultiKueueClusters.
        is_served: The cluster has the kind of the job.
        quotas: ResourceQuotas of the namespace.
        pods: Pods of the job that have not started.
        events: Warnings about the job and about those pods, the newest first.
        sees_events: False where the portal may not read events.
        nodes: Node of a pod → the Node; None where it is gone.
    """

    cluster: str
    role: str
    namespace: str
    name: str
    is_kueue: bool = True
    configuration: Mapping[str, Any] = field(default_factory=dict)
    space: Document | None = None
    kind: JobKind | None = None
    job: Document | None = None
    group: Sequence[Document] = ()
    workload: Document | None = None
    asked: Document | None = None
    queue: str = ""
    local_queues: Sequence[Document] = ()
    cluster_queue: Document | None = None
    connections: Sequence[Document] = ()
    is_served: bool = True
    quotas: Sequence[Document] = ()
    pods: Sequence[Document] = ()
    events: Sequence[Document] = ()
    sees_events: bool = True
    nodes: Mapping[str, Document | None] = field(default_factory=dict)

    @property
    def kind_word(self) -> str:
        """``Job``, ``JobSet`` …"""
        return self.kind.resource.kind if self.kind is not None else "Job"

    @property
    def scheduler(self) -> str:
        """Who makes Workloads there."""
        return "Kueue" if self.is_kueue else "the portal"

    def where(self, names: Names) -> str:
        """What a reader calls the cluster."""
        return names.cluster(self.cluster) if names.sees_everything else _UNNAMED[self.role]

    def local_queue(self) -> Document | None:
        """The LocalQueue that the job names."""
        return next(
            (item for item in self.local_queues if item["metadata"]["name"] == self.queue), None
        )
