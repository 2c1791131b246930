"""Where a job was offered and who took it, round by round; what the fleet's races came to.

Source: issue "Dispatch" section 3. Texts of the clusters go through the reader's names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Count, F, Sum
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from budgets.models import Allocation, User
from clusters.explaining.names import Names
from clusters.kueue.multikueue.dispatchers import DISPATCHERS
from clusters.models import Cluster, DispatchRound, WorkloadState
from clusters.selectors.fleet import require_platform
from clusters.selectors.names import reader_names
from clusters.selectors.workload_detail import WorkloadDetail
from clusters.selectors.workloads import visible_state

ROUNDS_SHOWN = 60
RACES_COUNTED = 5000
WINDOW = timedelta(hours=24)
Outcome = DispatchRound.Outcome


@dataclass(frozen=True, slots=True)
class OfferRow:
    """One worker in one round; all that did not take it as one for who does not see clusters.

    Attributes:
        worker: Slug; empty for several.
        answer: ``won``, ``lost the race``, ``did not take it``, ``asked`` or ``passed over``.
        at: When that was decided; None while it is open.
    """

    worker: str
    answer: str
    why: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round; ``attempt`` counts the job's reservations from 1 on, ``ending`` ends one."""

    attempt: int
    number: int
    dispatcher: str
    started_at: datetime
    outcome: str
    winner: str
    offers: tuple[OfferRow, ...]
    ended_at: datetime | None
    ending: str


@dataclass(frozen=True, slots=True)
class RaceRow:
    """What one worker got in the last day.

    Attributes:
        running, gpus: Workloads that run there now, and their GPUs.
        floor: GPUs of all floors that stand there: its part of the split.
        share: The same in percent of all floors; None while there are none.
        asked, won, lost: Reservations that it was nominated for, took, and lost to another.
    """

    worker: str
    name: str
    running: int
    gpus: int
    asked: int
    won: int
    lost: int
    floor: int = 0
    share: int | None = None


def dispatch_trail(user: User, detail: WorkloadDetail) -> list[RoundRow]:
    """Rounds of a job, oldest first; five queries at most.

    Raises:
        WorkloadState.DoesNotExist: The job is not for this user.
    """
    visible_state(user, detail.row.cluster, detail.row.uid)
    own = [row.uid for row in (detail.row, *detail.copies) if not row.is_remote_copy]
    found = list(
        DispatchRound.objects.filter(workload_uid__in=own).order_by("-started_at", "-number")[
            :ROUNDS_SHOWN
        ]
    )
    if not found:
        return []
    names = reader_names(user)
    attempts = {key: i for i, key in enumerate(dict.fromkeys(r.attempt for r in found[::-1]), 1)}
    return [_round(row, attempts[row.attempt], names) for row in found[::-1]]


def dispatch_races(user: User) -> list[RaceRow]:
    """What runs on each worker beside its part of the split, and its races; four queries.

    Raises:
        NotAllowed: for people who do not see the platform.
    """
    require_platform(user, "clusters")
    workers = Cluster.objects.registered().workers()
    running = {
        pk: counted
        for pk, *counted in WorkloadState.objects.filter(
            cluster__in=workers.order_by(), phase=WorkloadState.Phase.RUNNING
        )
        .order_by()
        .values_list("cluster")
        .annotate(Count("pk"), Sum("gpu_total"))
    }
    floors = dict(
        Allocation.objects.filter(
            line__revision__budget__in_force=F("line__revision"),
            cluster__in=workers.order_by().values("slug"),
        )
        .order_by()
        .values_list("cluster")
        .annotate(gpus=Sum("committed"))
    )
    promised = sum(floors.values())
    recent = DispatchRound.objects.filter(started_at__gt=timezone.now() - WINDOW)
    told = recent.only("attempt", "nominated", "winner", "losers").order_by("-started_at")
    rounds = told[:RACES_COUNTED]
    asked = Counter(worker for row in rounds for worker in row.nominated)
    lost = Counter(worker for row in rounds for worker in row.losers)
    won = Counter(row.winner for row in rounds)
    return [
        RaceRow(
            worker=worker.slug,
            name=worker.name,
            running=count,
            gpus=gpus,
            asked=asked[worker.slug],
            won=won[worker.slug],
            lost=lost[worker.slug],
            floor=floors.get(worker.slug, 0),
            share=100 * floors.get(worker.slug, 0) // promised if promised else None,
        )
        for worker in workers.only("slug", "name", "position")
        for count, gpus in [running.get(worker.pk, (0, 0))]
    ]


def _round(row: DispatchRound, attempt: int, names: Names) -> RoundRow:
    offers = [_asked(row, worker) for worker in row.nominated]
    if not names.sees_everything:
        # What others were asked, and why they would not do, says what stands there.
        won = [replace(offer, why="") for offer in offers if offer.worker == row.winner]
        offers = won or [replace(offer, worker="", why="") for offer in offers[:1]]
    else:
        offers += [
            OfferRow(worker, "passed over", why)
            for worker, why in row.why.items()
            if worker not in row.nominated
        ]
    return RoundRow(
        attempt=attempt,
        number=row.number,
        dispatcher=found.words if (found := DISPATCHERS.get(row.dispatcher)) else row.dispatcher,
        started_at=row.started_at,
        outcome=Outcome(row.outcome).label,
        winner=row.winner,
        offers=tuple(replace(item, why=names.message(item.why)) for item in offers),
        ended_at=row.ended_at,
        ending=names.message(row.ending),
    )


def _asked(row: DispatchRound, worker: str) -> OfferRow:
    why = row.why.get(worker, "")
    if row.winner == worker:
        return OfferRow(worker, "won", why, row.decided_at)
    if worker in row.losers:
        return OfferRow(worker, "lost the race", why, parse_datetime(row.losers[worker]))
    answer = "asked" if row.outcome == Outcome.OPEN else "did not take it"
    return OfferRow(worker, answer, why, row.decided_at)
