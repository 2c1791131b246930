"""What has to hold over every history (issue text, "Never"), judged from what the observer saw.

Rules on one kind of object of one cluster are exact: their events come in their true order. Rules
that look at two clusters allow for :data:`SLACK_S` between the arrivals of two events; what must
never happen twice is therefore counted as well, which needs no order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tests.faults.observer import JOBS, WORKLOADS, Document, Told
from tests.faults.timeline import (
    MANAGER,
    ORIGIN,
    Life,
    attempt,
    checks,
    chosen,
    condition,
    copies,
    holds,
    is_reserved,
    is_true,
    labels,
    lives,
    outcome,
    runs_on,
    workload_of,
    workloads,
)
from tests.faults.traffic import Passage

SLACK_S: Final = 3.0
# A worker that is back has been cleared of what it brought with it within this time.
CLEARED_WITHIN_S: Final = 60.0
ORPHAN_S: Final = 90.0
REFUSED: Final = frozenset({400, 403, 405, 413, 415, 422})


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the dispatcher could not reach a worker, monotonic seconds."""

    worker: str
    began_at: float
    ended_at: float

    def is_on(self, moment: float) -> bool:
        return self.began_at <= moment <= self.ended_at


@dataclass(slots=True)
class Facts:
    """What the run itself did.

    Attributes:
        origin: Value of the origin label.
        grace_s: ``workerLostTimeout``.
        quota: GPUs of the queue by cluster.
        outages: Of workers.
        drains: When the manager's queue was drained, (begin, end).
        passages: What went over the roads.
        crashes: Words of shifts that ended by an error of their own.
        blind: What the observer could not see.
    """

    origin: str
    grace_s: float
    quota: Mapping[str, int]
    outages: list[Outage] = field(default_factory=list)
    drains: list[tuple[float, float]] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Verdict:
    """How often each rule was looked at, and what broke it."""

    checked: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def judge(history: Sequence[Told], facts: Facts) -> Verdict:
    """Look at a whole history."""
    case = Case(history, facts)
    verdict = Verdict()
    for name, rule in RULES.items():
        for fault in rule(case):
            verdict.checked[name] += 1
            if fault:
                verdict.faults.append(f"{name}: {fault}")
    return verdict


class Case:
    """A history and its readings, made once."""

    def __init__(self, history: Sequence[Told], facts: Facts) -> None:
        self.history, self.facts = history, facts
        self.workloads = workloads(history)
        self.copies = copies(history, facts.origin)
        self.by_workload: dict[str, list[Life]] = defaultdict(list)
        for copy in self.copies:
            self.by_workload[workload_of(copy)].append(copy)

    def workload(self, name: str) -> Life | None:
        return next((life for life in self.workloads if life.name == name), None)


Rule = Callable[[Case], Iterator[str]]
"""Yields once for each thing it looked at: what is wrong with it, or an empty text."""


def _one_start_per_reservation(case: Case) -> Iterator[str]:
    """A workload's Jobs on all workers are no more than the reservations that it was given."""
    for life in case.workloads:
        given = sum(
            is_reserved(told.document) and not is_reserved(before)
            for before, told in life.changes()
        )
        made = len({copy.uid for copy in case.by_workload[life.name]})
        yield f"{life.name}: {made} Jobs under {given} reservations" if made > given else ""


def _one_start_per_attempt(case: Case) -> Iterator[str]:
    for name, found in case.by_workload.items():
        for mark, count in Counter(attempt(copy.last) for copy in found).items():
            yield f"{name}: {count} Jobs under the attempt {mark!r}" if count > 1 else ""


def _one_worker(case: Case) -> Iterator[str]:
    """Two workers hold a Job of one workload only while the older one's cannot be reached."""
    for name, found in case.by_workload.items():
        ordered = sorted(found, key=lambda copy: copy.began_at)
        for older, newer in pairwise(ordered):
            ended = older.ended_at if older.ended_at is not None else float("inf")
            if ended <= newer.began_at + SLACK_S:
                yield ""
                continue
            excused = any(
                outage.worker == older.cluster
                and outage.began_at <= newer.began_at
                and ended <= outage.ended_at + CLEARED_WITHIN_S
                for outage in case.facts.outages
            )
            where = f"{older.cluster} and {newer.cluster}"
            yield "" if excused else f"{name}: Jobs on {where} at the same time"


def _nominated_before_chosen(case: Case) -> Iterator[str]:
    for life in case.workloads:
        for before, told in life.changes():
            new, old = chosen(told.document), chosen(before)
            if new and new != old:
                nominated = (before.get("status") or {}).get("nominatedClusterNames") or []
                yield "" if new in nominated else f"{life.name}: {new} was not nominated"


def _choice_is_kept(case: Case) -> Iterator[str]:
    for life in case.workloads:
        for before, told in life.changes():
            new, old = chosen(told.document), chosen(before)
            if new and old:
                yield "" if new == old else f"{life.name}: went from {old} to {new}"


def _no_retry_under_eviction(case: Case) -> Iterator[str]:
    for life in case.workloads:
        for before, told in life.changes():
            old = checks(before)
            for name, state in checks(told.document).items():
                if state in ("Retry", "Rejected") and old.get(name) != state:
                    wrong = is_true(before, "Evicted")
                    yield f"{life.name}: {state} while Evicted" if wrong else ""


def _reservation_is_kept(case: Case) -> Iterator[str]:
    for life in lives(case.history, WORKLOADS):
        for before, told in life.changes():
            if before and is_reserved(before) and is_reserved(told.document):
                old, new = (item["status"].get("admission") for item in (before, told.document))
                same = _flavors(old) == _flavors(new)
                yield "" if same else f"{life.name} on {life.cluster}: admission changed in place"


def _flavors(admission: Document | None) -> list[tuple[str, str]]:
    found = (admission or {}).get("podSetAssignments") or []
    return [(item["name"], str(item.get("flavors"))) for item in found]


def _quota_is_kept(case: Case) -> Iterator[str]:
    """At no moment is more reserved than the queue has."""
    held: dict[str, dict[str, int]] = defaultdict(dict)
    for told in case.history:
        if told.kind == WORKLOADS and told.cluster in case.facts.quota:
            gone = told.change == "DELETED"
            held[told.cluster][told.uid] = 0 if gone else holds(told.document)
            total, quota = sum(held[told.cluster].values()), case.facts.quota[told.cluster]
            wrong = total > quota
            yield f"{told.cluster}: {total} of {quota} GPUs reserved" if wrong else ""


def _evicted_for_a_reason(case: Case) -> Iterator[str]:
    """What runs is stopped only when its worker was away for the whole grace, or by a drain."""
    for life in case.workloads:
        for before, told in life.changes():
            if not is_true(told.document, "Evicted") or is_true(before, "Evicted"):
                continue
            worker = chosen(before)
            reason = condition(told.document, "Evicted").get("reason", "")
            fine = _is_lost(case.facts, worker, told.at) or any(
                begin - SLACK_S <= told.at <= end + SLACK_S for begin, end in case.facts.drains
            )
            yield "" if fine else f"{life.name}: evicted from {worker or 'nowhere'} ({reason})"


def _is_lost(facts: Facts, worker: str, at: float) -> bool:
    # Times in conditions are whole seconds, so a grace may seem up to one second shorter.
    return any(
        outage.worker == worker
        and min(at, outage.ended_at) - outage.began_at >= facts.grace_s - 1
        and outage.began_at <= at <= outage.ended_at + CLEARED_WITHIN_S
        for outage in facts.outages
    )


def _nobody_kills_what_runs(case: Case) -> Iterator[str]:
    """A Job that has not ended is not removed while the manager says that it runs there."""
    for copy in case.copies:
        if copy.ended_at is None or outcome(copy.last):
            continue
        life = case.workload(workload_of(copy))
        if life is None:
            yield ""
            continue
        states = life.within(copy.ended_at - SLACK_S, copy.ended_at + SLACK_S)
        wrong = all(state is not None and runs_on(state) == copy.cluster for state in states)
        text = f"{life.name}: its Job on {copy.cluster} was removed while it ran there"
        yield text if wrong else ""


def _ends_are_true(case: Case) -> Iterator[str]:
    """A job of the manager ends as one of its copies did, and after it."""
    ends: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for copy in case.copies:
        for told in copy.told:
            if ended := outcome(told.document):
                ends[workload_of(copy)].append((ended, told.at))
                break
    for life in case.workloads:
        for before, told in life.changes():
            if is_true(told.document, "Finished") and not is_true(before, "Finished"):
                good = condition(told.document, "Finished")["reason"] == "Succeeded"
                wanted = "Complete" if good else "Failed"
                found = any(
                    ended == wanted and at <= told.at + SLACK_S for ended, at in ends[life.name]
                )
                yield "" if found else f"{life.name}: Finished, and no copy was {wanted}"


def _no_orphans(case: Case) -> Iterator[str]:
    """What belongs to nothing any more does not stay on a worker that can be reached."""
    by_name = {life.name: life for life in case.workloads}
    end = case.history[-1].at if case.history else 0.0
    for kind in (JOBS, WORKLOADS):
        for life in lives(case.history, kind):
            if life.cluster == MANAGER or labels(life.last).get(ORIGIN) != case.facts.origin:
                continue
            owner = by_name.get(workload_of(life) if kind == JOBS else life.name)
            since = life.began_at if owner is None else owner.ended_at
            until = life.ended_at if life.ended_at is not None else end
            away = max(
                (o.ended_at for o in case.facts.outages if o.worker == life.cluster), default=0.0
            )
            wrong = since is not None and until - max(since, away) > ORPHAN_S
            yield f"{life.name}: an orphan on {life.cluster}" if wrong else ""


def _others_are_left_alone(case: Case) -> Iterator[str]:
    """A Job on a worker that is not the portal's is neither deleted nor taken over."""
    for life in lives(case.history, JOBS):
        if life.cluster == MANAGER or labels(life.told[0].document).get(ORIGIN):
            continue
        wrong = life.ended_at is not None or ORIGIN in labels(life.last)
        yield f"{life.name} on {life.cluster} is not ours and was touched" if wrong else ""


def _no_refused_write(case: Case) -> Iterator[str]:
    for passage in case.facts.passages:
        if passage.is_write and not passage.is_injected and "/events" not in passage.path:
            wrong = passage.code in REFUSED
            what = f"{passage.program}: {passage.method} {passage.path}"
            yield f"{what} → {passage.code} {passage.words[:400]}" if wrong else ""


def _no_crash(case: Case) -> Iterator[str]:
    yield ""
    yield from case.facts.crashes


def _nothing_unseen(case: Case) -> Iterator[str]:
    yield ""
    yield from case.facts.blind


RULES: Final[Mapping[str, Rule]] = {
    "one start per reservation": _one_start_per_reservation,
    "one start per attempt": _one_start_per_attempt,
    "one worker at a time": _one_worker,
    "nominated before chosen": _nominated_before_chosen,
    "a choice is kept": _choice_is_kept,
    "no retry under an eviction": _no_retry_under_eviction,
    "a reservation is kept": _reservation_is_kept,
    "quota is kept": _quota_is_kept,
    "evicted for a reason": _evicted_for_a_reason,
    "nobody kills what runs": _nobody_kills_what_runs,
    "ends are true": _ends_are_true,
    "no orphans": _no_orphans,
    "others are left alone": _others_are_left_alone,
    "no refused write": _no_refused_write,
    "no crash": _no_crash,
    "nothing unseen": _nothing_unseen,
}
