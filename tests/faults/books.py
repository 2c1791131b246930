"""The onlooker's own count of GPU-seconds, beside the ledger's; no code of the portal is in it.

The rule: what a copy on a worker holds begins when it is admitted and ends when it is finished,
when its quota is given back, or when it is deleted, whichever comes first, in whole seconds as its
conditions say; of a deletion, when it was seen. Each admission stands in the ledger exactly once,
with as many GPU-seconds, whoever is billed for it. A row that the ledger itself calls estimated may
lack seconds, and says so; it never has one more. The conditions themselves are judged by the
onlooker's own clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from tests.faults.observer import WORKLOADS, Document, Told
from tests.faults.timeline import GPU, MANAGER, condition, is_true, lives

DELETION_SLACK_S = 3
"""A deletion has no time of its own: two onlookers see it so far apart, on a quiet machine."""
CLOCK_SLACK_S = 15
"""A condition is as old as this at most when it is first seen: a paused or killed writer decides
before and writes after; a wrong clock is off by ten minutes."""
Place = tuple[str, str]


@dataclass(slots=True)
class Hold:
    """One admission of one Workload on a worker, as the onlooker saw it; UTC seconds."""

    cluster: str
    uid: str
    name: str
    gpus: int
    start: int
    seen_start: int
    end: int | None = None
    seen_end: int | None = None
    by_deletion: bool = False

    @property
    def gpu_seconds(self) -> int:
        return 0 if self.end is None else self.gpus * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Row:
    """An interval of the ledger; UTC seconds."""

    cluster: str
    uid: str
    workload: str
    gpus: int
    start: int
    end: int | None
    state: str
    kind: str
    note: str

    @property
    def gpu_seconds(self) -> int:
        return 0 if self.end is None else self.gpus * (self.end - self.start)


@dataclass(slots=True)
class Books:
    """What both came to.

    Attributes:
        counted: GPU-seconds that the onlooker saw, and the ledger's.
        estimated: GPU-seconds that the ledger lacks and calls estimated.
        told: Those that it lacks where it told finance that nothing was watched, or is proven.
        faults: What breaks the rule, in words.
    """

    holds: int = 0
    counted: int = 0
    booked: int = 0
    estimated: int = 0
    told: int = 0
    faults: list[str] = field(default_factory=list)


def holds_of(history: Sequence[Told], *, wall_offset_s: float) -> list[Hold]:
    """Every admission on every worker."""
    found: list[Hold] = []
    for life in lives(history, WORKLOADS):
        if life.cluster == MANAGER:
            continue
        current: Hold | None = None
        for told in life.told:
            seen = int(told.at + wall_offset_s)
            document, is_gone = told.document, told.change == "DELETED"
            ended = _ended(document)
            if current is None and is_true(document, "Admitted"):
                start = _at(document, "Admitted")
                if not any(row.uid == life.uid and row.start == start for row in found):
                    gpus = _gpus(document)
                    current = Hold(life.cluster, life.uid, life.name, gpus, start, seen)
                    found.append(current)
            if current is not None and (ended is not None or is_gone):
                current.end = max(current.start, seen if ended is None else ended)
                current.seen_end, current.by_deletion = seen, ended is None
                current = None
    return found


def _ended(document: Document) -> int | None:
    if is_true(document, "Finished"):
        return _at(document, "Finished")
    reserved = condition(document, "QuotaReserved")
    return _at(document, "QuotaReserved") if reserved.get("status") == "False" else None


def _at(document: Document, kind: str) -> int:
    text = condition(document, kind)["lastTransitionTime"]
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC).timestamp())


def _gpus(document: Document) -> int:
    admission = document["status"].get("admission") or {}
    usages = [row.get("resourceUsage") or {} for row in admission.get("podSetAssignments") or ()]
    return sum(int(usage.get(GPU, 0)) for usage in usages)


def compare(
    holds: Sequence[Hold],
    rows: Sequence[Row],
    *,
    broken_at: Mapping[str, Sequence[tuple[int, int]]],
    unwatched: Mapping[str, Sequence[tuple[int, int]]],
    unproven: Collection[Place] = (),
) -> Books:
    """Hold the ledger against what was seen.

    Args:
        holds: Of the onlooker.
        rows: Of the ledger, of workers, without superseded ones and mere reservations.
        broken_at: Worker → spans that an etcd was thrown back over: what was seen in them may have
            been undone, so both counts of a Workload of that time are of different pasts.
        unwatched: Worker → spans of which the ledger told finance that nothing was watched.
        unproven: (worker, UID) of Workloads of which it told finance that no second is proven.
    """
    books = Books()
    ledger: dict[Place, list[Row]] = defaultdict(list)
    seen: dict[Place, list[Hold]] = defaultdict(list)
    # By name, which has the job's UID in it: what the ledger has from the manager alone is under
    # the manager's UID.
    for row in rows:
        ledger[row.cluster, row.workload].append(row)
    for hold in holds:
        seen[hold.cluster, hold.name].append(hold)
    for place in sorted(ledger.keys() | seen.keys()):
        of_place, of_ledger = seen.get(place, []), ledger.get(place, [])
        if _touches(of_place, broken_at.get(place[0], ())) or (
            not of_place and _touches(of_ledger, broken_at.get(place[0], ()))
        ):
            continue
        books.holds += len(of_place)
        is_told = _touches(of_place, unwatched.get(place[0], ())) or any(
            (hold.cluster, hold.uid) in unproven for hold in of_place
        )
        _compare_one(books, place, of_place, of_ledger, is_told=is_told)
    books.faults += _times(holds, broken_at)
    return books


def _compare_one(
    books: Books,
    place: Place,
    holds: Sequence[Hold],
    rows: Sequence[Row],
    *,
    is_told: bool,
) -> None:
    what = f"{place[0]}: {place[1]}"
    if any(hold.end is None for hold in holds) or any(row.end is None for row in rows):
        books.faults.append(f"{what} is still open: seen {holds}, booked {rows}")
        return
    counted, booked = sum(h.gpu_seconds for h in holds), sum(r.gpu_seconds for r in rows)
    books.counted, books.booked = books.counted + counted, books.booked + booked
    slack = sum(hold.gpus * DELETION_SLACK_S for hold in holds if hold.by_deletion)
    difference = booked - counted
    if abs(difference) <= slack:
        return
    said = f"{what}: seen {counted}, booked {booked} GPU-seconds; {holds} {rows}"
    if difference > 0:
        books.faults.append(f"invented {said}")
    elif any(row.state == "estimated" for row in rows):
        books.estimated -= difference
    elif is_told:
        books.told -= difference
    else:
        books.faults.append(f"lost {said}")


def _touches(found: Sequence[Hold] | Sequence[Row], spans: Iterable[tuple[int, int]]) -> bool:
    return any(
        one.start <= end and (last is None or last >= begin)
        for one in found
        for last in [_last(one)]
        for begin, end in spans
    )


def _last(one: Hold | Row) -> int | None:
    """When it was over at the latest: an older past says an older time of what it undoes."""
    if one.end is None or isinstance(one, Row):
        return one.end
    return max(one.end, one.seen_end or one.end)


def _times(
    holds: Sequence[Hold], broken_at: Mapping[str, Sequence[tuple[int, int]]]
) -> Iterator[str]:
    """Conditions that say another time than the clock on the wall."""
    for hold in holds:
        if _touches([hold], broken_at.get(hold.cluster, ())):
            continue
        edges = [("admitted", hold.start, hold.seen_start)]
        if hold.end is not None and hold.seen_end is not None:
            edges.append(("ended", hold.end, hold.seen_end))
        for what, said, seen in edges:
            if not -CLOCK_SLACK_S <= said - seen <= 2:
                yield (f"{hold.cluster}: {hold.name} {what} at {said - seen:+d} s by its condition")


def doubles(rows: Sequence[Row]) -> Iterator[str]:
    """Two workers billed for one job at a time."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.kind == "billable" and row.end is not None and row.end > row.start:
            by_name[row.workload].append(row)
    for name, found in by_name.items():
        ordered = sorted(found, key=lambda row: row.start)
        for one, two in pairwise(ordered):
            if one.uid != two.uid and one.end is not None and two.start < one.end:
                yield f"{name}: billed on {one.cluster} and {two.cluster} at the same time"
