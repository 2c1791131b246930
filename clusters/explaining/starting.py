"""When a waiting job is likely to start, from its evidence and from the runs that were recorded.

Runs of the same kind of job in the same namespace and flavor stand for a job. Not foreseen: jobs of
other queues that come first, preemption, a change of the budget; by how much ranges missed for such
reasons is what ``calibration`` of ``clusters.forecasting`` makes up for. Where there are few such
runs, or where jobs of the workspace lately started much sooner than a range says, nothing is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from budgets.plan import StopPolicy
from clusters.explaining.evidence import Evidence, Pair
from clusters.explaining.sentence import shortage
from clusters.explaining.words import is_device
from clusters.forecasting import (
    Ahead,
    Confidence,
    HeldGpus,
    RunTimes,
    StartForecast,
    StartQuestion,
    forecast_start,
    kind_of,
)
from clusters.kueue.explanation.why import Holder, Protection

ENOUGH: Final = 10
"""With fewer runs of its own kind nothing is said of when a job ends."""
WAITS: Final = 5
"""So many jobs have waited lately before their waits are held against a range."""
WINDOW: Final = timedelta(days=60)
"""So old may a run be that counts,"""
MOST_RECORDS: Final = 2000
"""and so many of the newest count."""
RECENT: Final = timedelta(days=7)
"""What lately means, for waits."""
MOST_AHEAD: Final = 100
"""Jobs before one in its queue, and waits, that are looked at."""
UNFORESEEN: Final = StartForecast(
    Confidence.UNKNOWN,
    why_unknown="it is not waiting for GPUs that come back by themselves",
)
_NOTHING: Final = RunTimes(())

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""
Records: TypeAlias = Mapping[Key, RunTimes]
"""Run times by namespace and kind of job."""


def awaited(evidence: Evidence) -> tuple[Pair, int] | None:
    """The GPUs that a job waits for, and how many are missing; None where time brings none."""
    short = shortage(evidence)
    if evidence.hold is not StopPolicy.NONE or short is None or not is_device(short[0]):
        return None
    return short


def holders_of(evidence: Evidence, pair: Pair) -> list[Holder]:
    """Those that hold what a job waits for."""
    return [item for item in evidence.holders if item.amounts.get(pair)]


def likely_start(
    evidence: Evidence,
    short: tuple[Pair, int],
    *,
    ahead: Sequence[tuple[Key, int]],
    history: Callable[[Key], RunTimes],
    now: datetime,
    uid: str,
) -> StartForecast:
    """Say when a job is likely to start as things go; the same job has always the same draws.

    Args:
        evidence: why it waits.
        short: what ``awaited`` found in it.
        ahead: those before it in its queue that ask for the same, with how much, in order.
        history: run times that stand for a workload's.
        now: UTC, aware.
        uid: of the job's Workload.
    """
    pair, lacking = short
    own = evidence.quota.get(pair)
    gpus = max(evidence.requests.get(pair.resource, 0), lacking)
    question = StartQuestion(
        gpus=gpus,
        free=own.available if own is not None else gpus - lacking,
        held=[
            HeldGpus(
                item.amounts[pair],
                item.since,
                history((item.namespace, item.name)),
                is_own=item.cluster_queue == evidence.cluster_queue,
            )
            for item in holders_of(evidence, pair)
            if item.protection is not Protection.WITHIN_NOMINAL
            or item.cluster_queue == evidence.cluster_queue
        ],
        ahead=[Ahead(count, history(key)) for key, count in ahead],
        room=own.potential - own.used if own is not None else None,
        most=own.potential if own is not None else None,
    )
    seed = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big")
    found = forecast_start(question, now=now, seed=seed)
    if found.earliest is not None and found.confidence is not Confidence.GOOD:
        why = "too few runs of the jobs that hold the GPUs have been recorded"
        return StartForecast(Confidence.UNKNOWN, why_unknown=why)
    return found


def history_in(records: Records, titles: Mapping[Key, str]) -> Callable[[Key], RunTimes]:
    """Run times that stand for a workload: those of its kind, where enough are known.

    Args:
        records: of the namespaces.
        titles: workload → name of its job.
    """

    def history(key: Key) -> RunTimes:
        own = records.get((key[0], kind_of(titles[key])), _NOTHING)
        return own if own.complete >= ENOUGH else _NOTHING

    return history


def unless_unlike(
    found: StartForecast, *, created_at: datetime, waits: Callable[[], Sequence[timedelta]]
) -> StartForecast:
    """The forecast, unless no job of the namespace waited half as long lately."""
    if found.earliest is None:
        return found
    lately = waits()
    if len(lately) >= WAITS and found.earliest - created_at > 2 * max(lately):
        why = "jobs of this workspace have lately started much sooner than recorded runs suggest"
        return StartForecast(Confidence.UNKNOWN, why_unknown=why)
    return found
