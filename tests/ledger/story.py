"""A Workload's life, told in seconds: what its controller wrote and what a watcher saw of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from budgets.intervals import (
    Assignment,
    Condition,
    EventType,
    Interval,
    PodSet,
    WorkloadEvent,
    WorkloadFacts,
)

DAY = datetime(2026, 5, 4, 10, tzinfo=UTC)


def at(second: float) -> datetime:
    return DAY + timedelta(seconds=second)


class Job:
    """One object on one cluster; every method that says when is seen then, unless ``seen``."""

    versions = 100

    def __init__(
        self,
        cluster: str = "east",
        uid: str = "u1",
        *,
        name: str = "train",
        created: float = 0,
        **fields: object,
    ) -> None:
        self.cluster, self.uid = cluster, uid
        self.version = Job.versions
        self.facts = WorkloadFacts(
            namespace="acme-vision",
            name=name,
            created_at=at(created),
            pod_sets=(PodSet("main", 4, 2),),
            **fields,
        )
        self.events: list[WorkloadEvent] = []

    def set(self, **fields: object) -> Job:
        self.facts = replace(self.facts, **fields)
        return self

    def condition(self, kind: str, since: float, *, status: bool = True, reason: str = "") -> Job:
        rest = [row for row in self.facts.conditions if row.type != kind]
        new = Condition(kind, status, at(since), reason)
        return self.set(conditions=tuple(sorted([*rest, new])))

    def see(self, second: float, *, gap: bool = False, kind: EventType = EventType.SEEN) -> Job:
        self.version += 1
        event = WorkloadEvent(
            cluster=self.cluster,
            uid=self.uid,
            resource_version=str(self.version),
            observed_at=at(second),
            type=kind,
            facts=self.facts,
            after_gap=gap,
        )
        self.events.append(event)
        return self

    def reserve(self, second: float, **pod_sets: int) -> Job:
        """Quota is reserved, unseen: {pod set: GPUs} on h100, 4 pods each."""
        wanted = pod_sets or {"main": 8}
        self.set(
            cluster_queue="acme-vision",
            assignments=tuple(
                Assignment(name, "h100", 4, gpus) for name, gpus in sorted(wanted.items())
            ),
        )
        return self.condition("QuotaReserved", second)

    def admit(self, second: float) -> Job:
        """Reserved (unless it is already) and admitted, unseen."""
        if self.facts.true_since("QuotaReserved") is None:
            self.reserve(second)
        return self.condition("Admitted", second)

    def evict(self, second: float) -> Job:
        return self.condition("Evicted", second).set(evictions=self.facts.evictions + 1)

    def release(self, second: float) -> Job:
        self.condition("QuotaReserved", second, status=False)
        self.condition("Admitted", second, status=False)
        return self.set(assignments=(), cluster_queue="", reclaimable=())

    def finish(self, second: float, reason: str = "Succeeded") -> Job:
        return self.condition("Finished", second, reason=reason)

    def delete(self, second: float, *, gap: bool = False) -> Job:
        return self.see(second, gap=gap, kind=EventType.DELETED)

    def miss(self, second: float, *, last_seen: float, completed: float | None = None) -> Job:
        self.events.append(
            WorkloadEvent(
                cluster=self.cluster,
                uid=self.uid,
                resource_version=str(self.version),
                observed_at=at(second),
                type=EventType.MISSING,
                facts=self.facts,
                last_seen_at=at(last_seen),
                completed_at=None if completed is None else at(completed),
            )
        )
        return self


def shown(row: Interval) -> tuple[object, ...]:
    """(uid, role, GPUs, start second, end second or None, state), short enough for a table."""
    end = None if row.end is None else int((row.end - DAY).total_seconds())
    start = int((row.start - DAY).total_seconds())
    return (row.uid, row.role.value, row.gpus, start, end, row.state.value)
