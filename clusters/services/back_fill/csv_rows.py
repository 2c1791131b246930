"""CSV of finished runs → values; everything that is wrong with the file at once."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.utils.dateparse import parse_datetime

from budgets.errors import Fault, Rejected
from budgets.units import year_fault

REQUIRED: Final = ("cluster", "namespace", "workload", "flavor", "gpus", "start", "end")
OPTIONAL: Final = ("uid", "cluster_queue", "job")
COLUMNS: Final = (*REQUIRED, *OPTIONAL)
MOST_FAULTS: Final = 50
MOST_GPUS: Final = 100_000
_IDENTITY: Final = uuid.UUID("6f1c9b6e-7f0a-5d0f-9a52-5f3f0c7a1f10")


@dataclass(frozen=True, slots=True)
class PastRun:
    """One workload that held GPUs of one flavor on one cluster in [start, end), UTC.

    Attributes:
        line: Its line in the file, the heading being 1.
        uid: Of its Workload; made from what identifies the run where the file has none, so that
            the same file twice is the same history once.
        cluster_queue: Whose quota it was; the namespace where the file has none.
        job: Name of the Job that it belonged to, or empty.
    """

    line: int
    cluster: str
    namespace: str
    workload: str
    flavor: str
    gpus: int
    start: datetime
    end: datetime
    uid: str
    cluster_queue: str
    job: str


def read_runs(lines: Iterable[str], *, now: datetime) -> list[PastRun]:
    """Read a CSV file with a heading; columns in any order, times in ISO 8601 with a zone.

    Args:
        lines: Text of the file.
        now: UTC; nothing ends after it.

    Raises:
        Rejected: Whatever is wrong, with line and column, at most :data:`MOST_FAULTS` of it.
    """
    reader = csv.DictReader(lines, strict=True)
    heading = [name.strip().removeprefix("\ufeff") for name in reader.fieldnames or ()]
    faults = list(_heading_faults(heading))
    if faults:
        raise Rejected(faults)
    reader.fieldnames = heading
    runs: list[PastRun] = []
    seen: dict[tuple[str, str], int] = {}
    try:
        for row in reader:
            run, wrong = _run(reader.line_num, row, now)
            faults += wrong
            if run is not None:
                first = seen.setdefault((run.cluster, run.uid), run.line)
                if first != run.line:
                    faults.append(_fault(run.line, "uid", f"is that of line {first} already"))
                runs.append(run)
            if len(faults) >= MOST_FAULTS:
                break
    except csv.Error as error:
        faults.append(_fault(reader.line_num, "", f"cannot be read as CSV: {error}"))
    if faults:
        raise Rejected(faults[:MOST_FAULTS])
    return runs


def _heading_faults(heading: list[str]) -> Iterator[Fault]:
    missing = [name for name in REQUIRED if name not in heading]
    unknown = [name for name in heading if name not in COLUMNS]
    twice = sorted({name for name in heading if heading.count(name) > 1})
    if missing:
        yield _fault(1, "", f"lacks the columns {', '.join(missing)}")
    if unknown:
        yield _fault(
            1, "", f"has unknown columns {', '.join(unknown)}; there are {', '.join(COLUMNS)}"
        )
    if twice:
        yield _fault(1, "", f"has {', '.join(twice)} more than once")


def _run(
    line: int, row: Mapping[str | None, str | list[str] | None], now: datetime
) -> tuple[PastRun | None, list[Fault]]:
    if None in row:
        return None, [_fault(line, "", "has more cells than the heading")]
    cells = {str(name): str(value or "").strip() for name, value in row.items()}
    faults = [
        _fault(line, name, "is empty") for name in REQUIRED if not cells[name]
    ]  # fmt: skip
    gpus = _whole(cells["gpus"])
    if cells["gpus"] and not 0 < gpus <= MOST_GPUS:
        words = f"is {cells['gpus']!r}; a whole number from 1 to {MOST_GPUS} is wanted"
        faults.append(_fault(line, "gpus", words))
    times = {name: _instant(cells[name]) for name in ("start", "end")}
    for name, at in times.items():
        if cells[name] and at is None:
            words = f"is {cells[name]!r}; write it like 2026-03-01T08:00:00Z"
            faults.append(_fault(line, name, words))
        elif at is not None and (words := year_fault(at)):
            faults.append(_fault(line, name, f"cannot be: {words}"))
    start, end = times["start"], times["end"]
    if start is not None and end is not None:
        if end <= start:
            faults.append(_fault(line, "end", f"is not after the start {start.isoformat()}"))
        if end > now:
            faults.append(_fault(line, "end", "lies ahead; only what has ended can be filled in"))
    if faults or start is None or end is None:
        return None, faults
    identity = (cells[name] for name in ("cluster", "namespace", "workload", "flavor"))
    key = "/".join((*identity, start.isoformat()))
    return PastRun(
        line=line,
        cluster=cells["cluster"],
        namespace=cells["namespace"],
        workload=cells["workload"],
        flavor=cells["flavor"],
        gpus=gpus,
        start=start,
        end=end,
        uid=cells.get("uid") or str(uuid.uuid5(_IDENTITY, key)),
        cluster_queue=cells.get("cluster_queue") or cells["namespace"],
        job=cells.get("job", ""),
    ), []


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _instant(text: str) -> datetime | None:
    """Whole seconds in UTC; None for what is no time or has no zone."""
    try:
        found = parse_datetime(text)
        if found is None or found.tzinfo is None:
            return None
        return found.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        return None


def _fault(line: int, column: str, words: str) -> Fault:
    field = f"line {line}, {column}" if column else f"line {line}"
    return Fault(field, "unreadable", f"{column or 'the line'} {words}")
