"""What goes into and comes out of interval building: plain values, no behaviour.

Those that come by the million are msgspec's structs: made and compared in a tenth of the time.

Source: spec money, sections 1.2 to 1.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from budgets.choices import Choice
from budgets.units import MOST_COUNTED_GPUS, ClusterName, FlavorName, WorkloadUid


class EventType(StrEnum):
    """How a state became known."""

    SEEN = "SEEN"
    DELETED = "DELETED"
    MISSING = "MISSING"


class ClockStart(Choice):
    """The condition whose turning True starts the clock of a flavor."""

    QUOTA_RESERVED = "QuotaReserved", "when quota is reserved"
    ADMITTED = "Admitted", "when admitted"
    PODS_READY = "PodsReady", "when the pods are ready"


class IntervalState(Choice):
    """What is known of an interval's end; SUPERSEDED rows count for nothing."""

    OPEN = "open"
    CLOSED = "closed"
    ESTIMATED = "estimated"
    SUPERSEDED = "superseded"


class IntervalKind(Choice):
    """Who an interval is for; only BILLABLE is ever metered.

    UNDECIDED: a dispatched copy before the manager has named a cluster. RESERVED: quota is
    withheld, but the flavor's clock has not started. MANAGER_WAIT: the manager's own reservation
    while no worker has taken the workload. OUTSIDE: of a queue that is no workspace's, which the
    ledger finds out when it stores a billable one.
    """

    BILLABLE = "billable"
    UNDECIDED = "undecided"
    RACE = "race"
    RESERVED = "reserved"
    MANAGER_WAIT = "manager_wait"
    OUTSIDE = "outside"


class Condition(Struct, frozen=True, order=True):
    """One ``status.conditions`` entry; ``since`` is its lastTransitionTime, UTC."""

    type: str
    status: bool
    since: datetime
    reason: str = ""


class PodSet(Struct, frozen=True, order=True):
    """A pod set as asked for: ``count`` pods of ``gpus`` devices each."""

    name: str
    count: int
    gpus: int


class Assignment(Struct, frozen=True, order=True):
    """A pod set as admitted: ``gpus`` devices in all over ``count`` pods, on one flavor."""

    pod_set: str
    flavor: FlavorName
    count: int
    gpus: int


class WorkloadFacts(Struct, frozen=True):
    """The fields of one Workload object that the meter needs.

    Attributes:
        created_at: metadata.creationTimestamp, UTC.
        deleting_since: metadata.deletionTimestamp, UTC.
        cluster_queue: status.admission.clusterQueue; empty while nothing is reserved.
        assignments: Every pod set's GPUs by flavor; empty while nothing is reserved.
        reclaimable: Pods of a pod set that no longer need their devices.
        origin: Label multikueue-origin, set on copies that a manager made; else empty.
        manager_uid: Annotation multikueue-origin-uid, where the integration writes it.
        cluster_name: status.clusterName, on a manager: the worker that has it.
        replaces: ``namespace/name`` of the workload slice that this one replaces.
        variant_of: UID of the parent, where several variants race for one admission.
        is_active: spec.active; a deactivated workload waits for nothing.
        evictions: How often it was ever evicted, by status.schedulingStats; 0 where not kept.
    """

    namespace: str
    name: str
    created_at: datetime
    deleting_since: datetime | None = None
    queue: str = ""
    priority: int = 0
    job_kind: str = ""
    job_name: str = ""
    job_uid: str = ""
    is_active: bool = True
    pod_sets: tuple[PodSet, ...] = ()
    conditions: tuple[Condition, ...] = ()
    cluster_queue: str = ""
    assignments: tuple[Assignment, ...] = ()
    reclaimable: tuple[tuple[str, int], ...] = ()
    origin: str = ""
    manager_uid: str = ""
    cluster_name: str = ""
    replaces: str = ""
    variant_of: str = ""
    evictions: int = 0

    @property
    def requested_gpus(self) -> int:
        """Devices that all pods ask for together, at most :data:`MOST_COUNTED_GPUS`.

        Kubernetes takes any number for an extended resource, up to 2**63 for each container.
        """
        return min(MOST_COUNTED_GPUS, sum(row.count * row.gpus for row in self.pod_sets))

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of that type, or None where it was never set."""
        for row in self.conditions:
            if row.type == kind:
                return row
        return None

    def pods_kept(self, part: Assignment) -> int:
        """Return how many pods of an assignment still need their devices.

        An elastic Job that shrinks keeps its Workload and what was admitted; only its counts in
        ``spec`` go down. Partial admission goes the other way, so the smaller number holds.
        Source: Kueue pkg/workload (totalRequestsFromAdmission); spec money, section 1.2.
        """
        asked = next((row.count for row in self.pod_sets if row.name == part.pod_set), part.count)
        return max(0, min(part.count, asked) - dict(self.reclaimable).get(part.pod_set, 0))

    def true_since(self, kind: str) -> datetime | None:
        """Return since when a condition is True, or None."""
        for row in self.conditions:
            if row.type == kind:
                return row.since if row.status else None
        return None


class WorkloadEvent(Struct, frozen=True):
    """One observed state of one Workload on one cluster.

    Attributes:
        resource_version: Decimal digits; of a MISSING, that of the last state seen.
        observed_at: When the state was known, by the cluster's clock, UTC. Of a MISSING, the
            first time a list did not show the object.
        facts: The state; of a MISSING, the last one seen (kept for its names, not read).
        last_seen_at: Only of a MISSING: the last time a list or watch showed it alive.
        completed_at: Only of a MISSING: when its pods or job ended, if that could still be read.
        after_gap: Nothing was watched between the state before and this one (a re-list, a
            resumed watch), so ``observed_at`` is not when it happened.
    """

    cluster: ClusterName
    uid: WorkloadUid
    resource_version: str
    observed_at: datetime
    type: EventType
    facts: WorkloadFacts
    last_seen_at: datetime | None = None
    completed_at: datetime | None = None
    after_gap: bool = False


class Interval(Struct, frozen=True, order=True):
    """One pod set of one admission held ``gpus`` of one flavor in [start, end).

    The first six fields are its natural key. ``epoch`` counts the admissions of the object from
    1, ``seq`` the pieces of one (epoch, pod set, flavor) from 1. ``end`` is None while open.
    ``admitted_at`` is the time that orders the waterfall: of this admission, or when quota was
    reserved where the flavor's clock starts there. ``note`` says why an end is estimated or a
    role is not BILLABLE. ``ended_by``: the reason of the eviction that ended the admission, such
    as ``Preempted``.
    """

    cluster: ClusterName
    uid: WorkloadUid
    epoch: int
    pod_set: str
    flavor: FlavorName
    seq: int
    gpus: int
    admitted_at: datetime
    start: datetime
    end: datetime | None
    state: IntervalState
    role: IntervalKind
    namespace: str
    workload: str
    cluster_queue: str
    job_kind: str = ""
    job_name: str = ""
    note: str = ""
    ended_by: str = ""


class PendingSpan(Struct, frozen=True, order=True):
    """A workload waited for ``gpus`` devices in [start, end); never billed.

    ``cluster`` and ``uid`` are those of the object that its owner made: the manager's where it
    is dispatched, else the worker's. ``requeued``: it had been admitted before.
    """

    cluster: ClusterName
    uid: WorkloadUid
    start: datetime
    end: datetime | None
    gpus: int
    namespace: str
    workload: str
    queue: str
    requeued: bool


class ProblemCode(StrEnum):
    """Why a piece of history could not be counted as it was seen."""

    BAD_DOCUMENT = "bad_document"
    BAD_RESOURCE_VERSION = "bad_resource_version"
    CONFLICTING_STATES = "conflicting_states"
    NEGATIVE_DURATION = "negative_duration"
    START_BEFORE_RESERVATION = "start_before_reservation"
    UNEVEN_PODS = "uneven_pods"
    CLOCK_SKEW = "clock_skew"
    TAKEN_BACK = "taken_back"
    NOTHING_PROVEN = "nothing_proven"
    EVENTS_RETIRED = "events_retired"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that was refused or looks wrong, as a value.

    ``is_blocking``: something was left out of the intervals, or the skew is too large to close
    a period on.
    """

    cluster: ClusterName
    uid: WorkloadUid
    code: ProblemCode
    message: str
    is_blocking: bool = True


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """Which condition starts the clock, per flavor and since when.

    Attributes:
        starts: Flavor → (in force from, UTC; condition), any order. A flavor that is not named
            starts at ``default``. What held when quota was reserved decides for that admission.
    """

    starts: Mapping[FlavorName, Sequence[tuple[datetime, ClockStart]]] = field(default_factory=dict)
    default: ClockStart = ClockStart.ADMITTED

    def start_of(self, flavor: FlavorName, *, reserved_at: datetime) -> ClockStart:
        """Return the condition that starts the clock of an admission reserved then."""
        in_force = [row for row in self.starts.get(flavor, ()) if row[0] <= reserved_at]
        return max(in_force, key=lambda row: row[0])[1] if in_force else self.default


@dataclass(frozen=True, slots=True)
class History:
    """What the events of a fleet come to.

    Attributes:
        intervals: Sorted by natural key; the same bytes for any order of the events.
        pending: Sorted.
        problems: Sorted, without repeats.
    """

    intervals: tuple[Interval, ...]
    pending: tuple[PendingSpan, ...]
    problems: tuple[Problem, ...]
