"""One object's states in order → its admissions, each with what it held from when to when.

Source: spec money, sections 1.2 and 1.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import lt

from budgets.intervals.model import EventType, Problem, ProblemCode, WorkloadEvent, WorkloadFacts
from budgets.units import ClusterName, FlavorName, WorkloadUid

SKEW_WARNING = timedelta(seconds=2)
SKEW_LIMIT = timedelta(seconds=60)
TAKEN_BACK_AFTER = timedelta(seconds=60)
"""Two watchers tell states out of order by less; a cluster that is restored takes longer."""

Amounts = Mapping[tuple[str, FlavorName], int]


@dataclass(slots=True)
class HeldStep:
    """From ``since`` on (None: from the start) the admission held these GPUs.

    ``estimated``: pod sets and flavors whose change happened at an unknown time before.
    """

    since: datetime | None
    amounts: dict[tuple[str, FlavorName], int]
    estimated: frozenset[tuple[str, FlavorName]] = frozenset()


@dataclass(slots=True)
class Epoch:
    """One admission of one object: quota was reserved at ``reserved_at`` and freed at ``end``.

    ``counted``: the state that the newest of ``steps`` was worked out from. ``told``: what its
    condition says of ``reserved_at``; older where the cluster came back with an older past.
    """

    number: int
    reserved_at: datetime
    last_alive: datetime
    told: datetime
    cluster_queue: str = ""
    admitted_at: datetime | None = None
    ready_at: datetime | None = None
    end: datetime | None = None
    is_estimated: bool = False
    note: str = ""
    ended_by: str = ""
    steps: list[HeldStep] = field(default_factory=list)
    counted: WorkloadFacts | None = None

    def close(self, end: datetime, *, note: str = "", is_estimated: bool = False) -> None:
        """Let the admission end; what is called first stays."""
        if self.end is None:
            self.end, self.note, self.is_estimated = end, note, is_estimated


@dataclass(slots=True)
class WorkloadCopy:
    """One Workload object of one cluster, as its events tell it.

    Attributes:
        events: Unique, in the order of their resource versions.
        epochs: In order.
        gone_at: When it was deleted or first missed; None while it is there.
        over_at: When nothing more can come of it: finished, deleted or missed.
    """

    cluster: ClusterName
    uid: WorkloadUid
    events: Sequence[WorkloadEvent]
    epochs: list[Epoch] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    gone_at: datetime | None = None
    over_at: datetime | None = None

    @property
    def facts(self) -> WorkloadFacts:
        """The newest state."""
        return self.events[-1].facts

    def problem(self, code: ProblemCode, message: str, *, is_blocking: bool = True) -> None:
        """Record what was refused or looks wrong."""
        self.problems.append(Problem(self.cluster, self.uid, code, message, is_blocking))


def build_copy(
    cluster: ClusterName, uid: WorkloadUid, events: Iterable[WorkloadEvent]
) -> WorkloadCopy:
    """Read one object's events, in any order and as often as they were seen."""
    copy = WorkloadCopy(cluster, uid, [])
    parts = [_in_order(part, copy) for part in lives(_with_versions(events, copy))]
    copy.events = [event for part in parts for event in part]
    returns = {id(part[0]) for part in parts[1:]}
    before: WorkloadEvent | None = None
    for event in copy.events:
        if id(event) in returns and before is not None:
            _come_back(copy, event, before)
        if event.type is EventType.MISSING:
            _miss(copy, event)
        else:
            _read(copy, event, before)
            before = event
    _check_skew(copy)
    return copy


def lives(events: Sequence[WorkloadEvent]) -> list[Sequence[WorkloadEvent]]:
    """One object's events, cut where its cluster came back with an older past.

    A restored etcd counts its versions from an earlier one on. What was seen before did happen, so
    it is a life of its own and not sorted in between what happened afterwards.

    Args:
        events: Of one object, any order; each with a version in decimal digits.

    Returns:
        Lives in the order of time, at least one; within each, any order. O(n log n).
    """
    if _is_in_order(events):
        return [events]
    found: list[list[WorkloadEvent]] = [[]]
    highest, reached_at = -1, datetime.min.replace(tzinfo=UTC)
    for event in sorted(events, key=lambda one: (one.observed_at, int(one.resource_version))):
        version, is_there = int(event.resource_version), event.type is not EventType.MISSING
        if is_there and version < highest and event.observed_at - reached_at > TAKEN_BACK_AFTER:
            found.append([])
            highest = -1
        found[-1].append(event)
        if is_there and version > highest:
            highest, reached_at = version, event.observed_at
    return list(found)


def _come_back(copy: WorkloadCopy, event: WorkloadEvent, before: WorkloadEvent) -> None:
    """Begin another life: what was held before stays counted, and is not counted twice.

    An admission that goes on goes on; one that was over or unknown, and is there again, counts
    from when it was seen again.
    """
    copy.problem(
        ProblemCode.TAKEN_BACK,
        f"the cluster was restored to an older state: version {event.resource_version} was seen at "
        f"{event.observed_at.isoformat()}, after version {before.resource_version}",
    )
    copy.gone_at = copy.over_at = None
    told, finished = (event.facts.true_since(kind) for kind in ("QuotaReserved", "Finished"))
    if copy.epochs and (last := copy.epochs[-1]).end is None:
        if last.told == told:
            return
        alive = min(last.last_alive, event.observed_at)
        last.close(alive, note="an older past came back", is_estimated=True)
    if told is None or finished is not None or told > before.observed_at:
        return
    now = event.observed_at
    epoch = Epoch(len(copy.epochs) + 1, now, now, told)
    epoch.admitted_at = now if event.facts.true_since("Admitted") is not None else None
    epoch.ready_at = now if event.facts.true_since("PodsReady") is not None else None
    copy.epochs.append(epoch)


def _with_versions(events: Iterable[WorkloadEvent], copy: WorkloadCopy) -> list[WorkloadEvent]:
    found = []
    for event in events:
        if event.resource_version.isdecimal():
            found.append(event)
        else:
            copy.problem(
                ProblemCode.BAD_RESOURCE_VERSION,
                f"resourceVersion {event.resource_version!r} has no order",
            )
    return found


def _in_order(events: Sequence[WorkloadEvent], copy: WorkloadCopy) -> Sequence[WorkloadEvent]:
    """Each state once, by resource version; of one seen twice the first live sighting."""
    if _is_in_order(events):
        return events
    by_version: dict[int, list[WorkloadEvent]] = {}
    for event in events:
        by_version.setdefault(int(event.resource_version), []).append(event)
    ordered: list[WorkloadEvent] = []
    missing: list[WorkloadEvent] = []
    for version, sightings in sorted(by_version.items()):
        if len(sightings) == 1:
            (event,) = sightings
            if event.type is EventType.MISSING:
                missing.append(event)
            else:
                # A list that did not show it was wrong when the object was seen again later.
                missing = []
                ordered.append(event)
            continue
        sightings.sort(key=_sighting)
        seen = [event for event in sightings if event.type is not EventType.MISSING]
        if seen:
            missing = []
            deleted = [event for event in seen if event.type is EventType.DELETED]
            ordered.append(deleted[0] if deleted else seen[0])
        if any(event.facts != seen[0].facts for event in seen):
            copy.problem(
                ProblemCode.CONFLICTING_STATES,
                f"resourceVersion {version} was seen with two different states",
            )
        missing += [event for event in sightings if event.type is EventType.MISSING]
    if ordered and ordered[-1].type is EventType.DELETED:
        return ordered
    return ordered + missing[:1]


def _is_in_order(events: Sequence[WorkloadEvent]) -> bool:
    """Whether they came as they mostly do: each state once, in order, and no list lacked it."""
    numbers = [int(event.resource_version) for event in events]
    return all(map(lt, numbers, numbers[1:])) and not any(
        event.type is EventType.MISSING for event in events
    )


def _sighting(event: WorkloadEvent) -> tuple[object, ...]:
    """A total order of sightings of one state, so that no arrival order shows."""
    return (event.after_gap, event.observed_at, event.type, repr(event))


def _read(copy: WorkloadCopy, event: WorkloadEvent, before: WorkloadEvent | None) -> None:
    facts = event.facts
    reserved_at = facts.true_since("QuotaReserved")
    current = copy.epochs[-1] if copy.epochs and copy.epochs[-1].end is None else None
    if reserved_at is None:
        if current is not None:
            _release(current, event, before)
    else:
        is_known = bool(copy.epochs) and copy.epochs[-1].told == reserved_at
        if current is not None and not is_known:
            _close_unseen(current, facts, until=reserved_at)
        if not is_known:
            number = len(copy.epochs) + 1
            copy.epochs.append(Epoch(number, reserved_at, reserved_at, reserved_at))
        epoch = copy.epochs[-1]
        if epoch.end is None:
            _hold(copy, epoch, event, before)
    finished_at = facts.true_since("Finished")
    if finished_at is not None:
        copy.over_at = copy.over_at or finished_at
        if copy.epochs:
            copy.epochs[-1].close(finished_at)
    if event.type is EventType.DELETED:
        _delete(copy, event, before)


def _hold(
    copy: WorkloadCopy, epoch: Epoch, event: WorkloadEvent, before: WorkloadEvent | None
) -> None:
    """Take over what a state says of an admission that holds quota."""
    facts = event.facts
    epoch.cluster_queue = facts.cluster_queue or epoch.cluster_queue
    admitted_at, ready_at = facts.true_since("Admitted"), facts.true_since("PodsReady")
    if epoch.admitted_at is None and admitted_at is not None:
        if admitted_at < epoch.reserved_at:
            copy.problem(
                ProblemCode.START_BEFORE_RESERVATION,
                f"admitted {admitted_at.isoformat()}, before quota was reserved "
                f"{epoch.reserved_at.isoformat()}",
            )
        else:
            epoch.admitted_at = admitted_at
    # A PodsReady that is older than the reservation was left over from the admission before.
    if ready_at is not None and ready_at >= epoch.reserved_at:
        epoch.ready_at = min(ready_at, epoch.ready_at or ready_at)
    if facts.assignments:
        _step(copy, epoch, event, before)
    epoch.last_alive = max(epoch.last_alive, event.observed_at)


def _step(
    copy: WorkloadCopy, epoch: Epoch, event: WorkloadEvent, before: WorkloadEvent | None
) -> None:
    facts, counted = event.facts, epoch.counted
    if counted is not None and _holds_the_same(facts, counted):
        return
    amounts = _amounts(copy, facts)
    epoch.counted = facts
    if not epoch.steps:
        epoch.steps.append(HeldStep(None, amounts))
        return
    held, latest = epoch.steps[-1].amounts, epoch.steps[-1].since or epoch.reserved_at
    # Two watchers may stamp states a moment out of order; the order of versions is what counts.
    seen_at = max(event.observed_at, latest)
    changed = {key for key in {*held, *amounts} if held.get(key, 0) != amounts.get(key, 0)}
    if not changed:
        return
    if not event.after_gap or before is None:
        epoch.steps.append(HeldStep(seen_at, amounts))
        return
    # Seen only now, happened somewhere in the gap: the bound that costs the customer less.
    fewer = {key for key in changed if amounts.get(key, 0) < held.get(key, 0)}
    if fewer:
        less = {key: amounts.get(key, 0) if key in fewer else held[key] for key in held}
        epoch.steps.append(HeldStep(max(before.observed_at, latest), less, frozenset(fewer)))
    if changed - fewer:
        epoch.steps.append(HeldStep(seen_at, amounts, frozenset(changed - fewer)))


def _holds_the_same(facts: WorkloadFacts, before: WorkloadFacts) -> bool:
    """Whether everything that amounts are worked out from is equal, as in most states it is."""
    return (
        facts.assignments == before.assignments
        and facts.pod_sets == before.pod_sets
        and facts.reclaimable == before.reclaimable
    )


def _amounts(copy: WorkloadCopy, facts: WorkloadFacts) -> dict[tuple[str, FlavorName], int]:
    """What the pods that still need their devices hold, by pod set and flavor."""
    found: dict[tuple[str, FlavorName], int] = {}
    for row in facts.assignments:
        gone = row.count - facts.pods_kept(row)
        gpus = row.gpus
        if gone:
            if gpus % row.count:
                copy.problem(
                    ProblemCode.UNEVEN_PODS,
                    f"pod set {row.pod_set}: {gpus} GPUs over {row.count} pods are not whole, so "
                    f"{gone} pods that hold none any more cannot be taken off",
                    is_blocking=False,
                )
            gpus = gpus // row.count * (row.count - gone)
        found[row.pod_set, row.flavor] = gpus
    return found


def _release(epoch: Epoch, event: WorkloadEvent, before: WorkloadEvent | None) -> None:
    """Quota is seen to be released: at that condition's time, not when eviction was decided."""
    facts = event.facts
    evicted = facts.condition("Evicted")
    if evicted is not None and evicted.status:
        epoch.ended_by = evicted.reason
    lost = facts.evictions - before.facts.evictions if before is not None else 0
    if event.after_gap and lost > 1:
        # It was admitted again and evicted again unseen: this release is not of this admission.
        _close_unseen(epoch, facts, until=event.observed_at)
        return
    released = facts.condition("QuotaReserved")
    if released is not None:
        epoch.close(released.since)
    elif event.after_gap:
        _close_unseen(epoch, facts, until=event.observed_at)
    else:
        epoch.close(event.observed_at)


def _close_unseen(epoch: Epoch, facts: WorkloadFacts, *, until: datetime) -> None:
    """Close at the last fact that proves it held quota; the time after is in nobody's bill."""
    alive = epoch.last_alive
    evicted_at = facts.true_since("Evicted")
    if facts.evictions <= 1 and evicted_at is not None and alive < evicted_at <= until:
        alive = evicted_at
    epoch.close(min(alive, until), note="release was not seen", is_estimated=True)


def _delete(copy: WorkloadCopy, event: WorkloadEvent, before: WorkloadEvent | None) -> None:
    copy.gone_at = event.observed_at
    copy.over_at = copy.over_at or event.observed_at
    if not copy.epochs or copy.epochs[-1].end is not None:
        return
    epoch = copy.epochs[-1]
    if not event.after_gap:
        epoch.close(event.observed_at)
        return
    alive = before.observed_at if before is not None else epoch.reserved_at
    since = event.facts.deleting_since
    early = since if since is not None and since > alive else alive
    epoch.close(min(early, event.observed_at), note="deletion was not watched", is_estimated=True)


def _miss(copy: WorkloadCopy, event: WorkloadEvent) -> None:
    """A list does not show it any more: it ended somewhere since it was last seen."""
    last_seen = event.last_seen_at or (copy.epochs[-1].last_alive if copy.epochs else None)
    copy.gone_at = event.observed_at
    copy.over_at = copy.over_at or last_seen or event.observed_at
    if not copy.epochs or copy.epochs[-1].end is not None:
        return
    epoch = copy.epochs[-1]
    alive = max(last_seen or epoch.last_alive, epoch.last_alive)
    done = event.completed_at
    if done is not None and epoch.reserved_at <= done <= event.observed_at:
        epoch.close(done, note="vanished unseen; its job's completion", is_estimated=True)
    else:
        epoch.close(
            min(alive, event.observed_at),
            note="vanished unseen; the last time it was seen",
            is_estimated=True,
        )


def _check_skew(copy: WorkloadCopy) -> None:
    ahead = timedelta(0)
    for event in copy.events:
        for row in event.facts.conditions:
            if row.since > event.observed_at:
                ahead = max(ahead, row.since - event.observed_at)
    if ahead > SKEW_WARNING:
        copy.problem(
            ProblemCode.CLOCK_SKEW,
            f"conditions are up to {ahead // timedelta(seconds=1)} s ahead of when they were seen",
            is_blocking=ahead > SKEW_LIMIT,
        )
