"""What the portal has to know of a kind of job: the one protocol behind every row of ``table``.

Whoever queues, starts, dispatches or shows jobs asks the kind and never compares its name. All of
it is pure: documents are plain dicts, which nobody here changes in place or sends anywhere.

Source: Kueue pkg/controller/jobframework/{interface,multikueue}.go, v0.19.2; spec dispatch 4,
admission 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.documents import labels
from clusters.documents.keys import Document, labels_of
from clusters.documents.resources import Resource
from clusters.jobs import counting, remote, topology, workloads
from clusters.jobs.paths import values
from clusters.jobs.remote import CopyMarks


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended; ``reason`` is that of the Workload's Finished condition."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Priority:
    """A workload's priority and what it comes from.

    Attributes:
        value: Higher goes first.
        reference: ``spec.priorityClassRef``, None when it comes from nothing.
    """

    value: int = 0
    reference: Mapping[str, str] | None = None


class JobKind:
    """One kind of job; what stands here is true of kinds whose jobs are one object each.

    Attributes:
        resource: The kind as API servers serve it.
        integration: Its name in ``integrations.frameworks``; empty for one that an admin names.
        words: Who makes its Workload in portal mode, for the documentation.
        selector: Labels of the objects that can be jobs; empty for all.
        is_required: A cluster that does not serve it cannot be worked with at all.
        is_queued_here: The portal makes its Workloads, in portal mode; else they come along.
        is_adopted: A worker's engine makes the job the owner of its Workload.
        is_shared: One object stands for several Workloads, which go to one worker together.
        is_grouped: Several objects may stand for one Workload, and come and go by themselves.
        is_silent: Its status never says that no pod runs.
        is_followed: Its copies follow a change of size.
        tells_end: Its end can be read on whichever cluster it is.
        tells_when: Its status says at what time it ended.
        tells_readiness: Its status says when its pods are ready.
        takes_status: The status of a copy is written to the manager's object.
        answers_for_jobs: A Job below one of it does not queue by itself.
        stops_by_deletion: Only a deletion stops what was started.
        is_placed: In portal mode its pods are brought to the domains of a topology.
        pod_index: Label that numbers the pods of a pod set; empty where none does.
        managed_by: Field of ``spec`` that says who runs it; empty where none does.
    """

    resource: Resource
    integration = ""
    words = "the owner of the kind"
    selector = ""
    is_required = False
    is_queued_here = True
    is_adopted = True
    is_shared = False
    is_grouped = False
    is_silent = False
    is_followed = False
    tells_end = True
    tells_when = False
    tells_readiness = True
    takes_status = True
    answers_for_jobs = True
    stops_by_deletion = False
    is_placed = False
    pod_index = ""
    managed_by = ""

    @property
    def full_kind(self) -> str:
        """As annotations and Workloads name it: ``batch/v1, Kind=Job``."""
        return f"{self.resource.api_version}, Kind={self.resource.kind}"

    # Which Workloads it has

    def workload_names(self, job: Document) -> Sequence[str]:
        """Names of the Workloads that a job has, or will have."""
        return (self.workload_name_of(job),)

    def workload_name_of(self, job: Document) -> str:
        """Name of the Workload that is made for a job, or that somebody made for it."""
        return workloads.prebuilt_name(job) or workloads.made_name_of(job)

    def view_of(self, job: dict[str, Any], workload: str) -> dict[str, Any]:
        """A job as one of its Workloads means it."""
        return job

    def gathered(self, jobs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """The one document that stands for the jobs that name a Workload, oldest first."""
        return jobs[0]

    def has_several(self, job: Document) -> bool:
        """Whether Workloads of it come and go while it stays."""
        return self.is_shared

    def speaks(self, job: Document) -> bool:
        """Whether a view of it writes on the object: of several Workloads the first one's does."""
        return True

    # How it queues

    def counts(self, job: Document) -> Iterator[tuple[str, Any]]:
        """Where its owner wrote a number that is read here, and what stands there."""
        yield counting.mark_of(labels_of(job), labels.MAX_EXECUTION)

    def fault(self, job: Document) -> str:
        """What its owner wrote that nobody can count with, a sentence; empty when all is well."""
        return counting.fault_of(self.counts(job))

    def is_left_to_dispatch(self, job: Document) -> bool:
        """Whether its own cluster never runs it, so that a worker's copy can speak for it."""
        at = self.managed_by
        return bool(at) and labels.MULTIKUEUE in values(job.get("spec") or {}, at)

    def is_clear(self, job: Document) -> bool:
        """Whether its pod sets can be told; if not, no Workload is made here (yet)."""
        return True

    def pod_sets(self, job: Document) -> list[dict[str, Any]]:
        """Pod sets as a Workload has them."""
        raise NotImplementedError

    def pod_priority_class(self, job: Document) -> str:
        """``priorityClassName`` of its pods, of the first that name one; else empty."""
        named = (
            (item["template"].get("spec") or {}).get("priorityClassName")
            for item in self.pod_sets(job)
        )
        return next((str(name) for name in named if name), "")

    def ranks(self, job: Document, pod_set: str) -> dict[str, Any]:
        """Fields of a ``topologyRequest`` that say how the pods of a pod set are numbered."""
        return {"podIndexLabel": self.pod_index} if self.pod_index else {}

    def asked(self, job: Document, *, is_placed: bool = False) -> list[dict[str, Any]]:
        """Pod sets with what they ask of the topology.

        Args:
            job: Of this kind.
            is_placed: There are flavors with a topology, so that pods may be placed unasked.
        """
        return [
            topology.asking(item, ranks=self.ranks(job, item["name"]), is_placed=is_placed)
            for item in self.pod_sets(job)
        ]

    def workload_for(
        self, job: Document, *, priority: Priority, is_placed: bool = False
    ) -> dict[str, Any]:
        """The Workload to create for a job that brought none; see :meth:`asked`."""
        spec: dict[str, Any] = {
            "active": True,
            "queueName": workloads.queue_of(job),
            "podSets": self.asked(job, is_placed=is_placed),
            "priority": priority.value,
        }
        if priority.reference is not None:
            spec["priorityClassRef"] = dict(priority.reference)
        seconds = workloads.max_execution_seconds(job)
        if seconds is not None:
            spec["maximumExecutionTimeSeconds"] = seconds
        metadata = job["metadata"]
        return {
            "metadata": {
                "name": self.workload_name_of(job),
                "namespace": metadata["namespace"],
                "labels": {labels.JOB_UID: metadata["uid"]},
                "ownerReferences": [workloads.owner_reference(job)],
            },
            "spec": spec,
        }

    def is_in_sync(self, job: Document, workload: Document) -> bool:
        """Whether a Workload still describes its job."""
        return True

    def is_surplus(self, job: Document, workload: Document) -> bool:
        """Whether a Workload is one of a part that its job no longer has."""
        return False

    def missing_owners(self, job: Document, workload: Document) -> list[dict[str, Any]]:
        """Owners that its Workload should have besides those that it has."""
        return []

    def controls(self, job: Document) -> bool:
        """Whether it is the one owner that controls its Workload."""
        return True

    # How it starts, runs, stops and ends

    def is_suspended(self, job: Document) -> bool:
        """Whether something of it waits to be started."""
        return True

    def is_stopped(self, job: Document) -> bool:
        """Whether nothing of it is left to be stopped."""
        return self.is_suspended(job)

    def is_started_here(self, *, is_dispatched: bool) -> bool:
        """Whether a start changes it on this cluster."""
        return True

    def is_fixed(self, job: Document) -> bool:
        """Whether its template cannot be changed yet."""
        return False

    def part_to_start(self, job: Document) -> Document:
        """The object that a start changes: the job, or the next pod of a group."""
        return job

    def part_to_stop(self, job: Document) -> Document:
        """The object that a stop changes or deletes: the job, or the next pod of a group."""
        return job

    def start_patch(
        self, job: Document, workload: Document, *, flavors: Mapping[str, Document]
    ) -> dict[str, Any]:
        """The merge patch that starts it, or its next part.

        Args:
            job: Suspended.
            workload: Its admitted Workload, which keeps the templates as their owner wrote them.
            flavors: ResourceFlavor documents by name.

        Raises:
            StartRefused: a template and the admission contradict each other.
        """
        raise NotImplementedError

    def suspend_patch(self, job: Document) -> dict[str, Any] | None:
        """The merge patch that stops it; None where only a deletion does."""
        return None

    def restore_patch(self, job: Document, workload: Document) -> dict[str, Any] | None:
        """The merge patch that takes a start's marks off a stopped job; None without any."""
        return None

    def are_pods_ready(self, job: Document) -> bool:
        """Whether all of its pods run or are done, as far as its status tells."""
        return False

    def reclaimable(self, job: Document) -> int:
        """Pods that are done and will not be replaced; 0 where that cannot be told."""
        return 0

    def outcome_of(self, job: Document) -> JobOutcome | None:
        """How it ended; None while it has not."""
        return None

    def ended_at(self, job: Document) -> str | None:
        """When it ended, RFC 3339, by its cluster's clock; None while it runs, or says no time."""
        return None

    def is_active(self, job: Document) -> bool:
        """Whether pods of it may run, as far as its status tells."""
        return True

    # How it is dispatched

    def members(self, job: Document) -> Sequence[Document]:
        """The objects that a job consists of."""
        return (job,)

    def is_past(self, member: Document) -> bool:
        """Whether a member of a group ended, or goes: it is not made again."""
        return False

    def refusal(self, job: Document) -> str:
        """Why a manager's job may not be dispatched: it would run there; empty when it may."""
        return remote.managed_refusal(job, self.managed_by)

    def is_stop_due(self, job: Document) -> bool:
        """Whether the manager's own has to be stopped before its status may say that none runs."""
        return False

    def copy_of(self, job: Document, workload: Document, *, marks: CopyMarks) -> dict[str, Any]:
        """The body of the worker's copy.

        Args:
            job: The manager's; of a group one member. A start may have changed its template.
            workload: The manager's Workload, which the copy is linked to.
            marks: Go onto the copy.
        """
        raise NotImplementedError

    def copied_pod_sets(self, workload: Document, answer: Document) -> Sequence[dict[str, Any]]:
        """Pod sets of the worker's Workload; ``answer`` is the copy as it would store it."""
        return [dict(item) for item in workload["spec"]["podSets"]]

    def status_patch(
        self, local: Document, copied: Document, *, now: datetime
    ) -> dict[str, Any] | None:
        """The merge patch that brings a copy's status to the manager; None when nothing is due."""
        return None

    def follow_patch(self, local: Document, copied: Document) -> dict[str, Any] | None:
        """The merge patch that makes a copy follow the manager's job; None when nothing is due."""
        return None

    def inactive_patch(self, local: Document, *, now: datetime) -> dict[str, Any] | None:
        """The status patch that says that no pod runs; None where the status cannot say so."""
        return None
