"""When a waiting job is likely to start, from the runs that the meter recorded.

Runs of the same kind of job in the same namespace and flavor stand for a job. Not foreseen: jobs of
other queues that come first, preemption, a change of the budget. Where there are few such runs, or
where jobs of the workspace lately started much sooner than a range says, nothing is said.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from budgets.models import Interval, PendingSpan
from budgets.plan import StopPolicy
from budgets.selectors.fleet.places import at_keys
from clusters.explaining.evidence import Evidence, Pair
from clusters.explaining.names import Names
from clusters.explaining.sentence import shortage
from clusters.explaining.words import is_device
from clusters.forecasting import (
    Ahead,
    Confidence,
    HeldGpus,
    Run,
    RunTimes,
    StartForecast,
    StartQuestion,
    forecast_start,
    kind_of,
)
from clusters.kueue.explanation.why import Holder, Protection
from clusters.models import PendingReason, WorkloadState

WINDOW: Final = timedelta(days=60)
MOST_RECORDS: Final = 2000
MOST_AHEAD: Final = 100
# With fewer runs of its own kind nothing is said of when a job ends.
ENOUGH: Final = 10
RECENT: Final = timedelta(days=7)
# So many jobs have waited lately before their waits are held against a range.
WAITS: Final = 5
_NOTHING: Final = RunTimes(())

Key: TypeAlias = tuple[str, str]


# Run times by (namespace, kind of job).
_Records: TypeAlias = Mapping[Key, RunTimes]


def start_forecast(
    state: WorkloadState, evidence: Evidence, names: Names, *, now: datetime
) -> StartForecast:
    """Say when a waiting job is likely to start; three queries at most.

    How many runs of others stand behind it is not told.
    """
    short = shortage(evidence)
    if evidence.hold is not StopPolicy.NONE or short is None or not is_device(short[0]):
        return StartForecast(
            Confidence.UNKNOWN,
            why_unknown="it is not waiting for GPUs that come back by themselves",
        )
    pair, lacking = short
    holders = [item for item in evidence.holders if item.amounts.get(pair)]
    ahead = _ahead(state, evidence, pair)
    titles = _job_names([*(_key(item) for item in holders), *(key for key, _ in ahead)])
    records = _records({namespace for namespace, _ in titles}, pair.flavor, now=now)

    def history(key: Key) -> RunTimes:
        own = records.get((key[0], kind_of(titles[key])), _NOTHING)
        return own if own.complete >= ENOUGH else _NOTHING

    own = evidence.quota.get(pair)
    gpus = max(evidence.requests.get(pair.resource, 0), lacking)
    question = StartQuestion(
        gpus=gpus,
        free=own.available if own is not None else gpus - lacking,
        held=[
            HeldGpus(
                item.amounts[pair],
                item.since,
                history(_key(item)),
                is_own=item.cluster_queue == evidence.cluster_queue,
            )
            for item in holders
            if item.protection is not Protection.WITHIN_NOMINAL
            or item.cluster_queue == evidence.cluster_queue
        ],
        ahead=[Ahead(count, history(key)) for key, count in ahead],
        room=own.potential - own.used if own is not None else None,
        most=own.potential if own is not None else None,
    )
    found = forecast_start(question, now=now, seed=_seed(state.uid))
    if found.earliest is not None:
        if found.confidence is not Confidence.GOOD:
            why = "too few runs of the jobs that hold the GPUs have been recorded"
            return StartForecast(Confidence.UNKNOWN, why_unknown=why)
        if _is_unlike(state, found.earliest, now=now):
            why = (
                "jobs of this workspace have lately started much sooner than recorded runs suggest"
            )
            return StartForecast(Confidence.UNKNOWN, why_unknown=why)
    is_own = all(names.sees(item.namespace) for item in holders)
    return found if is_own else replace(found, runs=0)


def _is_unlike(state: WorkloadState, earliest: datetime, *, now: datetime) -> bool:
    """Whether no job of the namespace waited half as long lately. One query."""
    spans = PendingSpan.objects.filter(
        namespace=state.namespace, end__gt=now - RECENT, cluster=state.cluster.slug
    )
    newest = spans.order_by("-end").values_list("start", "end")[:MOST_AHEAD]
    waits = [end - start for start, end in newest if end is not None]
    return len(waits) >= WAITS and earliest - state.created_at > 2 * max(waits)


def _key(holder: Holder) -> Key:
    return holder.namespace, holder.name


def _ahead(state: WorkloadState, evidence: Evidence, pair: Pair) -> list[tuple[Key, int]]:
    """Those that stand before it in its queue and ask for the same, in order. One query."""
    if evidence.position < 2:
        return []
    rows = PendingReason.objects.filter(
        cluster=state.cluster.slug,
        evidence__clusterQueue=evidence.cluster_queue,
        evidence__position__gt=0,
        evidence__position__lt=evidence.position,
    ).values_list("namespace", "name", "evidence__position", "evidence__requests")
    found = sorted(
        (position, (namespace, name), int((requests or {}).get(pair.resource) or 0))
        for namespace, name, position, requests in rows[:MOST_AHEAD]
    )
    return [(key, count) for _, key, count in found if count]


def _job_names(keys: Sequence[Key]) -> dict[Key, str]:
    """(namespace, Workload) → name of its job. One query, none for none."""
    if not keys:
        return {}
    rows = WorkloadState.objects.filter(at_keys(keys)).values_list("namespace", "name", "job_name")
    known = {(namespace, name): job_name for namespace, name, job_name in rows if job_name}
    return {key: known.get(key, key[1]) for key in keys}


def _records(namespaces: set[str], flavor: str, *, now: datetime) -> _Records:
    """The newest recorded runs of these namespaces on a flavor. One query, none for none."""
    if not namespaces:
        return {}
    rows = (
        Interval.objects.filter(
            workspace__namespace__in=namespaces,
            flavor=flavor,
            kind=Interval.Kind.BILLABLE,
            state=Interval.State.CLOSED,
            end__gt=now - WINDOW,
        )
        .order_by("-end")
        .values_list(
            "cluster", "uid", "epoch", "namespace", "job_name", "workload", "start", "end"
        )[:MOST_RECORDS]
    )
    spans: dict[tuple[str, str, int], tuple[str, str, datetime, datetime]] = {}
    for cluster, uid, epoch, namespace, job_name, workload, start, end in rows:
        if end is None:
            continue
        known = spans.get((cluster, uid, epoch))
        if known is not None:
            start, end = min(start, known[2]), max(end, known[3])
        spans[cluster, uid, epoch] = (namespace, job_name or workload, start, end)
    return _grouped(spans)


def _grouped(spans: Mapping[tuple[str, str, int], tuple[str, str, datetime, datetime]]) -> _Records:
    last: dict[tuple[str, str], int] = {}
    for cluster, uid, epoch in spans:
        last[cluster, uid] = max(epoch, last.get((cluster, uid), epoch))
    runs: defaultdict[Key, list[Run]] = defaultdict(list)
    for (cluster, uid, epoch), (namespace, name, start, end) in spans.items():
        # It went on in a later epoch, so this one was cut short.
        run = Run((end - start).total_seconds(), is_cut_off=epoch < last[cluster, uid])
        runs[namespace, kind_of(name)].append(run)
    return {key: RunTimes(found) for key, found in runs.items()}


def _seed(uid: str) -> int:
    """The same job has the same draws, whoever looks and whenever."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big")
