"""Burst that was lost: what a workload used before it was preempted soon after it had begun.

An optional credit of a rate card. Only burst is credited, for the floor is paid used or not, and
never more of an hour than the workload was charged in it. The platform carries it, for it decides
who may preempt whom.

Source: spec features, section 5 (preemption credit); issue 6, section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from budgets.charging import Item, Rates, RowKind
from budgets.models import Flavor, Interval, WorkloadUsage
from budgets.selectors.billing.costs import tiered
from budgets.selectors.billing.prices import PriceBook
from budgets.selectors.fleet.places import at_places
from budgets.units import HOUR_S, FlavorName, Period, utc_hour

PREEMPTED = "Preempted"


@dataclass(frozen=True, slots=True)
class Loss:
    """GPU-seconds of burst of one workspace and flavor that were lost in one UTC hour."""

    account_id: int
    workspace: str
    flavor: str
    hour: datetime
    gpu_seconds: int


def preemption_items(window: Period, book: PriceBook) -> dict[int, list[Item]]:
    """The credits of a period by account, exact and below zero, in the cards' currency.

    Three queries, and none while no card gives a credit. What is found out about a closed period
    later is credited no more.
    """
    sums: dict[tuple[int, str, str, int], tuple[Fraction, int]] = {}
    cards: dict[int, Rates] = {}
    for limit in sorted({card.preemption.minutes for card in book.cards()} - {0}):
        for loss in lost_burst(window, within=timedelta(minutes=limit)):
            card = book.of(loss.account_id)
            if card is None or card.preemption.minutes != limit:
                continue
            if loss.account_id not in cards:
                cards[loss.account_id] = tiered(card, loss.account_id, window)
            rate = cards[loss.account_id].rate_at(FlavorName(loss.flavor), loss.hour)
            if rate is not None:
                price = rate.of(RowKind.BURST) * Fraction(card.preemption.share)
                key = (loss.account_id, loss.workspace, loss.flavor, limit)
                exact, seconds = sums.get(key, (Fraction(0), 0))
                cost = price * loss.gpu_seconds / HOUR_S
                sums[key] = (exact - cost, seconds + loss.gpu_seconds)
    found: dict[int, list[Item]] = {}
    names = dict(Flavor.objects.order_by().values_list("slug", "name")) if sums else {}
    for (account, workspace, flavor, limit), (exact, seconds) in sorted(sums.items()):
        found.setdefault(account, []).append(
            Item(
                workspace=workspace,
                flavor="",
                kind=RowKind.PREEMPTION_CREDIT,
                exact=exact,
                gpu_seconds=seconds,
                text=f"{names.get(flavor, flavor)}, within {limit} minutes",
            )
        )
    return found


def lost_burst(window: Period, *, within: timedelta) -> Iterable[Loss]:
    """Burst of admissions that were preempted in a window, by hour.

    Args:
        window: Preemptions in it; what was used before it is left out.
        within: After the clock of the admission started, at most.
    """
    losses = _losses(window, within)
    charged = WorkloadUsage.objects.filter(
        at_places(key[:2] for key in losses),
        hour__gte=utc_hour(window.start),
        hour__lt=window.end,
        burst__gt=0,
    ).order_by()
    found: dict[tuple[str, str, str, datetime], tuple[int, int, str]] = {}
    for cluster, uid, flavor, hour, burst, account, namespace in charged.values_list(
        "cluster", "uid", "flavor", "hour", "burst", "workspace__account", "workspace__namespace"
    ):
        key = (cluster, uid, flavor, hour)
        before = found[key][0] if key in found else 0
        found[key] = (before + burst, account, namespace)
    for key, seconds in sorted(losses.items()):
        if key in found:
            burst, account, namespace = found[key]
            yield Loss(account, namespace, key[2], key[3], min(seconds, burst))


def _losses(window: Period, within: timedelta) -> Mapping[tuple[str, str, str, datetime], int]:
    """(cluster, uid, flavor, hour) -> GPU-seconds of preempted admissions in the window."""
    ended = Interval.objects.filter(
        end__gt=window.start,
        end__lte=window.end,
        ended_by=PREEMPTED,
        kind=Interval.Kind.BILLABLE,
        workspace__isnull=False,
    ).exclude(state=Interval.State.SUPERSEDED)
    admissions = set(ended.values_list("cluster", "uid", "epoch"))
    rows = Interval.objects.filter(
        at_places(row[:2] for row in admissions), kind=Interval.Kind.BILLABLE, end__isnull=False
    ).exclude(state=Interval.State.SUPERSEDED)
    pieces: dict[tuple[str, str, int], list[tuple[str, int, datetime, datetime]]] = {}
    for cluster, uid, epoch, flavor, gpus, start, end in rows.values_list(
        "cluster", "uid", "epoch", "flavor", "gpus", "start", "end"
    ):
        if end is not None and (cluster, uid, epoch) in admissions:
            pieces.setdefault((cluster, uid, epoch), []).append((flavor, gpus, start, end))
    found: dict[tuple[str, str, str, datetime], int] = {}
    for (cluster, uid, _), parts in pieces.items():
        if max(part[3] for part in parts) - min(part[2] for part in parts) > within:
            continue
        for flavor, gpus, start, end in parts:
            piece = Period(start, end).overlap(window) if start < end else None
            for hour, part in piece.utc_hours() if piece else ():
                place = (cluster, uid, flavor, hour)
                found[place] = found.get(place, 0) + gpus * part.seconds
    return found
