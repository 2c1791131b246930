"""Whose an admission is: only the copy that the manager named is billed, the rest was a race.

Source: spec money, section 1.3; spec dispatch, sections 2.5 to 2.10.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from budgets.intervals.epochs import Epoch, WorkloadCopy
from budgets.intervals.model import IntervalKind
from budgets.units import ClusterName, WorkloadUid


class RoleSegment(Struct, frozen=True):
    """From ``start`` to ``end`` (None: until the admission ends) it has this role."""

    start: datetime
    end: datetime | None
    role: IntervalKind
    note: str = ""


class Naming(Struct, frozen=True):
    """The manager's status.clusterName was ``cluster`` in [start, end)."""

    cluster: str
    start: datetime
    end: datetime | None


def namings_of(manager: WorkloadCopy) -> list[Naming]:
    """Return which worker a manager's workload was given to, over time.

    The field has no time of its own: it was named at the latest when the manager admitted it,
    and un-named at the latest when that was seen, or else when it was evicted.
    """
    found: list[Naming] = []
    for event in manager.events:
        facts = event.facts
        current = found[-1] if found and found[-1].end is None else None
        if facts.cluster_name == (current.cluster if current else ""):
            continue
        if current is not None:
            evicted_at = facts.true_since("Evicted")
            is_known = evicted_at is not None and current.start <= evicted_at
            end = min(evicted_at, event.observed_at) if is_known and evicted_at else None
            # A clock that was set back does not end it before it began.
            end = max(current.start, end or event.observed_at)
            found[-1] = Naming(current.cluster, current.start, end)
        if facts.cluster_name:
            admitted_at = facts.true_since("Admitted") or event.observed_at
            start = min(admitted_at, event.observed_at)
            if len(found) > 0 and found[-1].end is not None:
                start = max(start, found[-1].end)
            found.append(Naming(facts.cluster_name, start, None))
    return found


class Managers:
    """The manager's workloads, to find the one that a worker's copy was made from.

    Args:
        managers: Its objects.
        origins: Marks of its copies; None where every mark is one of it.
        copies: What there is on workers. A cluster's turn begins with the admission that it was
            named for, so it is not known without them.
    """

    def __init__(
        self,
        managers: Sequence[WorkloadCopy],
        origins: Collection[str] | None = None,
        *,
        copies: Sequence[WorkloadCopy] = (),
    ) -> None:
        self._origins = origins
        self._by_uid = {copy.uid: copy for copy in managers}
        self._by_name: dict[tuple[str, str], list[WorkloadCopy]] = {}
        for copy in sorted(managers, key=lambda copy: (copy.facts.created_at, copy.uid)):
            key = (copy.facts.namespace, copy.facts.name)
            self._by_name.setdefault(key, []).append(copy)
        self._namings = {copy.uid: namings_of(copy) for copy in managers}
        self._turns = {
            uid: [(row.start, row.cluster) for row in rows] for uid, rows in self._namings.items()
        }
        for copy in copies:
            self._begin_turns(copy)

    def _begin_turns(self, copy: WorkloadCopy) -> None:
        """A copy is billed from its own admission on, so the one before it no longer."""
        manager = self.manager_of(copy) if self.is_copy(copy) else None
        if manager is None:
            return
        namings, turns = self._namings[manager.uid], self._turns[manager.uid]
        for epoch in copy.epochs:
            at = _about(namings, copy, epoch)
            if at is None or namings[at].cluster != copy.cluster:
                continue
            if not _is_too_late(namings[at].start, copy, epoch):
                turns[at] = min(turns[at], (epoch.reserved_at, copy.cluster))

    def manager_of(self, copy: WorkloadCopy) -> WorkloadCopy | None:
        """Return the manager's object, by its uid where the copy says it, else by name.

        A name may have been used again: then the newest one that is not younger than the copy.
        """
        facts = copy.facts
        if facts.manager_uid:
            found = self._by_uid.get(WorkloadUid(facts.manager_uid))
            if found is not None:
                return found
        same = self._by_name.get((facts.namespace, facts.name), [])
        # In their order, so a name that was used a thousand times is not gone through each time.
        younger = bisect_right(same, facts.created_at, key=lambda one: one.facts.created_at)
        return same[max(0, younger - 1)] if same else None

    def segments(self, copy: WorkloadCopy, epoch: Epoch) -> list[RoleSegment]:
        """Return an admission's roles over time, in order, without gaps."""
        start = epoch.reserved_at
        if not self.is_copy(copy):
            return [RoleSegment(start, None, IntervalKind.BILLABLE)]
        manager = self.manager_of(copy)
        if manager is None:
            return [_unknown(copy, start)]
        namings = self._namings[manager.uid]
        at = _about(namings, copy, epoch)
        if at is None:
            return [_unnamed(copy, epoch, manager)]
        naming = namings[at]
        if naming.cluster == copy.cluster and _is_too_late(naming.start, copy, epoch):
            return [RoleSegment(start, None, IntervalKind.RACE, "it was named only later")]
        return _by_turns(copy.cluster, epoch, self._turns[manager.uid][at:])

    def is_copy(self, copy: WorkloadCopy) -> bool:
        """Whether a workload is a copy of one of the manager's.

        Another manager's copy, or what only says that it is one, is a job of its namespace like
        any other.
        """
        origin = copy.facts.origin
        if not origin:
            return False
        is_ours = self._origins is None or origin in self._origins
        return is_ours or self.manager_of(copy) is not None


def _about(namings: Sequence[Naming], copy: WorkloadCopy, epoch: Epoch) -> int | None:
    """The place of the first naming that is about an admission; O(log n) where few share an end."""
    start = epoch.reserved_at
    first = bisect_left(namings, start, key=lambda row: row.end or datetime.max.replace(tzinfo=UTC))
    rest = range(first, len(namings))
    return next((at for at in rest if _is_about(namings[at], copy, start)), None)


def _is_about(naming: Naming, copy: WorkloadCopy, start: datetime) -> bool:
    """Whether a naming decides about an admission that began at ``start``.

    Condition times have whole seconds, so one that ended in the second in which the copy was
    admitted may still be about it: then the copy has to be there already when it was named.
    """
    if naming.end is None or naming.end > start:
        return True
    return naming.end == start and naming.start >= copy.facts.created_at


def _unknown(copy: WorkloadCopy, start: datetime) -> RoleSegment:
    """The manager's workload may still come to be known, or never: then nobody named the copy."""
    if copy.gone_at is not None:
        return RoleSegment(start, None, IntervalKind.RACE, "its manager's workload was never seen")
    return RoleSegment(start, None, IntervalKind.UNDECIDED, "its manager's workload is not known")


def _unnamed(copy: WorkloadCopy, epoch: Epoch, manager: WorkloadCopy) -> RoleSegment:
    start = epoch.reserved_at
    is_lost = copy.gone_at is not None or epoch is not copy.epochs[-1]
    if is_lost or manager.over_at is not None:
        return RoleSegment(start, None, IntervalKind.RACE, "no cluster was named for it")
    return RoleSegment(start, None, IntervalKind.UNDECIDED, "no cluster is named yet")


def _is_too_late(named_at: datetime, copy: WorkloadCopy, epoch: Epoch) -> bool:
    """Whether the copy was gone, or admitted anew, before the manager named its cluster.

    One that went in the very second in which its cluster was named was named first: a cluster is
    named for a copy that stands.
    """
    if copy.gone_at is not None and copy.gone_at < named_at:
        return True
    is_newest = epoch.number == len(copy.epochs)
    return not is_newest and copy.epochs[epoch.number].reserved_at <= named_at


def _by_turns(
    cluster: ClusterName, epoch: Epoch, turns: Sequence[tuple[datetime, str]]
) -> list[RoleSegment]:
    """Billed while it is its cluster's turn, should this copy live on (a worker that was lost).

    Args:
        cluster: The copy's.
        epoch: Its admission; the first turn is the one that decides about its beginning.
        turns: (since when, cluster), in order. A cluster's turn lasts until the next one's.
    """
    found: list[RoleSegment] = []
    for since, named in turns:
        role = IntervalKind.BILLABLE if named == cluster else IntervalKind.RACE
        note = "" if named == cluster else f"{named} was named"
        if not found:
            found.append(RoleSegment(epoch.reserved_at, None, role, note))
        elif epoch.end is not None and since >= epoch.end:
            break
        elif role is not found[-1].role:
            last = found.pop()
            if last.start < since:
                found.append(RoleSegment(last.start, since, last.role, last.note))
            found.append(RoleSegment(max(last.start, since), None, role, note))
    return found
