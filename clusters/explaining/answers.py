"""What an engine answered to what-if, as one reader may know it.

Own workspaces are told job by job; what happens to others of the same account is added up under
what they may be called, without names, ids or numbers of jobs, and of other accounts nothing is
told. Source: ARCHITECTURE, "What an owner sees of others".
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from budgets.plan import HOST_FLAVOR
from clusters.explaining import words
from clusters.explaining.evidence import Pair, amounts_of
from clusters.explaining.names import Names

JOBS_SHOWN: Final = 25
KINDS: Final = ("started", "preempted", "stopped", "barred", "opened")


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What becomes of a job.

    Attributes:
        name: Its key, or only whose it is.
        namespace, workload: To link to it; empty for others' jobs.
        amounts: What it gets or held.
        why: For a preemption: in whose favor.
    """

    name: str
    amounts: str = ""
    why: str = ""
    namespace: str = ""
    workload: str = ""


@dataclass(frozen=True, slots=True)
class CapacityChange:
    """What the most that somebody can ever have changes by; ``gpus`` may be negative."""

    name: str
    amounts: str
    is_loss: bool


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """The answer of one cluster; of all together for who does not see clusters.

    Attributes:
        headline: One sentence.
        started, preempted, stopped: Jobs, the reader's own one by one.
        barred: Likewise those for which no domain of nodes is left that could ever take them.
        opened: Those for which there is one now, once others end.
        started_count, preempted_count, stopped_count, barred_count, opened_count: All for those who
            see everything, else own.
        capacity: Whose reach changes.
        took_ms: How long the engine took, 0 where that is not told.
        is_settled: False when the forecast was cut off before nothing moved any more.
    """

    headline: str
    started: tuple[JobOutcome, ...] = ()
    preempted: tuple[JobOutcome, ...] = ()
    stopped: tuple[JobOutcome, ...] = ()
    started_count: int = 0
    preempted_count: int = 0
    stopped_count: int = 0
    capacity: tuple[CapacityChange, ...] = ()
    took_ms: int = 0
    is_settled: bool = True
    barred: tuple[JobOutcome, ...] = ()
    barred_count: int = 0
    opened: tuple[JobOutcome, ...] = ()
    opened_count: int = 0


def read_answer(document: Any, names: Names) -> WhatIfAnswer:
    """Read a stored answer; total, like ``read_evidence``."""
    found: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
    counts: dict[str, int] = {}
    lists: dict[str, tuple[JobOutcome, ...]] = {}
    for kind in KINDS:
        own: list[Mapping[str, Any]] = []
        others: list[tuple[str, dict[Pair, int]]] = []
        for item in _items(found.get(kind)):
            queue = str(item.get("clusterQueue"))
            if names.sees_job(str(item.get("key")), queue):
                own.append(item)
            else:
                others.append((queue, amounts_of(item.get("amounts"))))
        full = found.get(f"{kind}Count")
        counts[kind] = int(full) if names.sees_everything and isinstance(full, int) else len(own)
        lists[kind] = (
            *(_own_job(item, names) for item in own[:JOBS_SHOWN]),
            *(JobOutcome(f"jobs of {name}", told) for name, told in words.by_owner(others, names)),
        )
    capacity = (
        *_capacity(found.get("gained"), names, is_loss=False),
        *_capacity(found.get("lost"), names, is_loss=True),
    )
    took = found.get("tookMs")
    # How long it took says how many jobs others have.
    took_ms = took if names.sees_everything and isinstance(took, int) else 0
    is_settled = found.get("settled") is not False
    return _answer(counts, lists, capacity, took_ms=took_ms, is_settled=is_settled)


def joined(answers: Sequence[WhatIfAnswer]) -> WhatIfAnswer:
    """The answers of several clusters as one that names none of them; at least one.

    A job that starts on the manager and on a worker starts once, and the most that somebody can
    have changes once.
    """
    lists: dict[str, tuple[JobOutcome, ...]] = {
        kind: tuple(
            {
                item.name: item for answer in reversed(answers) for item in getattr(answer, kind)
            }.values()
        )
        for kind in KINDS
    }
    counts = {kind: sum(bool(item.workload) for item in lists[kind]) for kind in KINDS}
    found = {
        (change.name, change.is_loss): change
        for answer in reversed(answers)
        for change in answer.capacity
    }
    is_settled = all(answer.is_settled for answer in answers)
    took_ms = answers[0].took_ms
    return _answer(counts, lists, tuple(found.values()), took_ms=took_ms, is_settled=is_settled)


def _answer(
    counts: Mapping[str, int],
    lists: Mapping[str, tuple[JobOutcome, ...]],
    capacity: tuple[CapacityChange, ...],
    *,
    took_ms: int,
    is_settled: bool,
) -> WhatIfAnswer:
    return WhatIfAnswer(
        headline=_headline(counts, lists, capacity),
        **lists,
        started_count=counts["started"],
        preempted_count=counts["preempted"],
        stopped_count=counts["stopped"],
        barred_count=counts["barred"],
        opened_count=counts["opened"],
        capacity=capacity,
        took_ms=took_ms,
        is_settled=is_settled,
    )


def _headline(
    counts: Mapping[str, int],
    lists: Mapping[str, Sequence[JobOutcome]],
    capacity: Sequence[CapacityChange],
) -> str:
    parts = []
    for kind, one, many in (
        ("started", "job starts", "jobs start"),
        ("preempted", "job is preempted", "jobs are preempted"),
        ("stopped", "job is stopped", "jobs are stopped"),
        ("opened", "job can start later", "jobs can start later"),
        ("barred", "job can no longer start", "jobs can no longer start"),
    ):
        if counts[kind]:
            parts.append(f"{counts[kind]:,} {one if counts[kind] == 1 else many}")
        elif lists[kind]:
            parts.append(f"others' {many}")
    if not parts:
        parts.append("No waiting job starts")
    losers = sum(change.is_loss for change in capacity)
    if losers:
        parts.append(f"{losers} can get fewer GPUs")
    text = words.listed(parts)
    return f"{text[0].upper()}{text[1:]}."


def _items(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _own_job(item: Mapping[str, Any], names: Names) -> JobOutcome:
    namespace, _, name = str(item.get("key")).partition("/")
    preemptor = item.get("preemptor")
    why = ""
    if isinstance(preemptor, str) and preemptor:
        is_known = names.sees(preemptor.partition("/")[0])
        why = f"for {preemptor}" if is_known else "for somebody else's job"
    elif item.get("restarts") is True:
        why = "starts again at once"
    return JobOutcome(
        name=f"{namespace}/{name}",
        amounts=words.amounts(amounts_of(item.get("amounts")), names),
        why=why,
        namespace=namespace,
        workload=name,
    )


def _capacity(value: Any, names: Names, *, is_loss: bool) -> Iterable[CapacityChange]:
    """Who gains or loses reach; those with one name are told as one, by the largest of them.

    Not added up: the reach of two workspaces on the same pool is the same GPUs.
    """
    reach = (
        (
            str(queue),
            {pair: n for pair, n in amounts_of(found).items() if pair.flavor != HOST_FLAVOR},
        )
        for queue, found in (value.items() if isinstance(value, Mapping) else ())
    )
    for name, told in words.by_owner(reach, names, join=operator.or_):
        if told:
            yield CapacityChange(name, told, is_loss)
