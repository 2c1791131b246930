"""What the books show of themselves to a monitoring system: families of numbers, read at a scrape.

Read from the database and not counted in processes, so they hold whatever has been killed. Nobody
is asked for a permission here: the address that serves them has a token of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min, Q, Sum

from budgets.models import (
    BillingPeriod,
    BudgetRevision,
    Delivery,
    Discrepancy,
    Export,
    Interval,
    MeterState,
    Operation,
    SpendEffect,
)

Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family:
    """Numbers of one name at one moment.

    Attributes:
        name: As Prometheus writes names, with the unit at its end.
        says: What the number is, in one line.
        labels: Names of the labels, in the order of the values in ``samples``.
        samples: Values of the labels → number.
    """

    name: str
    says: str
    labels: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()

    @classmethod
    def one(cls, name: str, says: str, number: float) -> Family:
        """A number without labels."""
        return cls(name, says, (), (((), number),))


def book_families(now: datetime) -> Iterator[Family]:
    """Meter, ledger, money and what waits to be sent. Nine queries."""
    meters = list(MeterState.objects.order_by("cluster"))
    for name, says, moments in (
        (
            "portal_meter_complete_until_timestamp_seconds",
            "Until when the facts of a cluster are complete.",
            [meter.complete_until for meter in meters],
        ),
        (
            "portal_meter_metered_until_timestamp_seconds",
            "Until when the use of a cluster is in the books.",
            [meter.metered_until for meter in meters],
        ),
    ):
        yield Family(
            name,
            says,
            ("cluster",),
            tuple(
                ((meter.cluster,), moment.timestamp())
                for meter, moment in zip(meters, moments, strict=True)
                if moment is not None
            ),
        )
    undecided = Interval.objects.filter(kind=Interval.Kind.UNDECIDED)
    rows = undecided.order_by("cluster").values_list("cluster").annotate(gpus=Sum("gpus"))
    yield Family(
        "portal_undecided_gpus",
        "GPUs in stretches of time of which nobody knows yet whose they are; they block a close.",
        ("cluster",),
        tuple(((cluster,), float(gpus)) for cluster, gpus in rows),
    )
    kinds = (
        Discrepancy.objects.filter(state__in=("open", "proposed"))
        .order_by("cluster", "kind")
        .values_list("cluster", "kind")
        .annotate(count=Count("pk"))
    )
    yield Family(
        "portal_discrepancies_open",
        "Checks of the ledger that disagree; they block a close.",
        ("cluster", "kind"),
        tuple(((cluster, kind), float(count)) for cluster, kind, count in kinds),
    )
    months = BillingPeriod.objects.filter(closed_at=None, end__lte=now).aggregate(
        count=Count("pk"), oldest=Min("end")
    )
    yield Family.one(
        "portal_months_to_close", "Months that are over and not closed.", months["count"]
    )
    yield Family.one(
        "portal_oldest_month_to_close_age_seconds",
        "How long the oldest of them has been over; 0 when there is none.",
        _age(months["oldest"], now),
    )
    running = Export.objects.filter(operation__state=Operation.State.RUNNING)
    yield Family.one("portal_exports_running", "Files that are being written.", running.count())
    sent = Delivery.objects.aggregate(
        waiting=Count("pk", filter=Q(state=Delivery.State.WAITING)),
        given_up=Count("pk", filter=Q(state=Delivery.State.GIVEN_UP)),
        oldest=Min("next_at", filter=Q(state=Delivery.State.WAITING)),
    )
    yield Family(
        "portal_deliveries",
        "Mails and webhooks on their way, and those that were given up.",
        ("state",),
        tuple(((state,), float(sent[state])) for state in ("waiting", "given_up")),
    )
    yield Family.one(
        "portal_oldest_delivery_overdue_seconds",
        "How long ago the next try of the oldest delivery was due; 0 when none is.",
        _age(sent["oldest"], now),
    )
    requests = BudgetRevision.objects.filter(
        state=BudgetRevision.State.REQUESTED, budget__workspace__archived_at=None
    ).aggregate(count=Count("pk"), oldest=Min("created_at"))
    yield Family.one(
        "portal_budget_requests_waiting",
        "Changes of budgets that wait for a decision.",
        requests["count"],
    )
    yield Family.one(
        "portal_oldest_budget_request_age_seconds",
        "How long the oldest of them waits; 0 when there is none.",
        _age(requests["oldest"], now),
    )
    capped = SpendEffect.objects.order_by("budget__workspace__namespace").values_list(
        "budget__workspace__namespace", flat=True
    )
    yield Family(
        "portal_spend_cap_in_force",
        "1 for a workspace whose rules of spending hold or stop jobs now.",
        ("workspace",),
        tuple(((str(namespace),), 1.0) for namespace in capped),
    )


def _age(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())
