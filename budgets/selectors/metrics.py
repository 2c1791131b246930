"""What the books show of themselves to a monitoring system: families of numbers, read at a scrape.

Read from the database and not counted in processes, so they hold whatever has been killed. Nobody
is asked for a permission here: the address that serves them has a token of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from django.db.models import Count, Min, Q, Sum

from budgets.models import (
    AuditEntry,
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
from budgets.models.reconciliation import UNSETTLED
from budgets.selectors.budget.history import WAITING

Sample = tuple[tuple[str, ...], float]
T = TypeVar("T")
Number = tuple[str, str, Callable[[T], float | None]]
"""Name, what it is, and how it is read of a thing; None: this thing has none."""


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
    def one(cls, name: str, says: str, number: float | None) -> Family:
        """A number without labels; 0 for None."""
        return cls(name, says, (), (((), number or 0.0),))

    @classmethod
    def each(
        cls,
        numbers: Iterable[Number[T]],
        labels: tuple[str, ...],
        things: Sequence[tuple[tuple[str, ...], T]],
    ) -> Iterator[Family]:
        """A family for each number, with a sample of each thing, by the values of its labels."""
        for name, says, read in numbers:
            found = [(values, read(thing)) for values, thing in things]
            samples = tuple((values, float(x)) for values, x in found if x is not None)
            yield cls(name, says, labels, samples)


_METER: Sequence[Number[MeterState]] = (
    (
        "portal_meter_complete_until_timestamp_seconds",
        "Time up to which the facts of a cluster are complete.",
        lambda meter: _stamp(meter.complete_until),
    ),
    (
        "portal_meter_metered_until_timestamp_seconds",
        "Time up to which the use of a cluster is metered.",
        lambda meter: _stamp(meter.metered_until),
    ),
)


def book_families(now: datetime) -> Iterator[Family]:
    """Meter, ledger, money and what waits to be sent. Ten queries."""
    yield from _of_the_ledger()
    yield from _of_months(now)
    yield from _of_what_is_sent(now)
    yield from _of_budgets(now)
    yield from _of_people(now)


def _of_the_ledger() -> Iterator[Family]:
    meters = MeterState.objects.order_by("cluster")
    yield from Family.each(_METER, ("cluster",), [((meter.cluster,), meter) for meter in meters])
    undecided = Interval.objects.filter(kind=Interval.Kind.UNDECIDED)
    rows = undecided.order_by("cluster").values_list("cluster").annotate(gpus=Sum("gpus"))
    yield Family(
        "portal_undecided_gpus",
        "GPUs of copies of jobs of which the manager has not said yet whether they are billed; "
        "they block the close of a month.",
        ("cluster",),
        tuple(((cluster,), float(gpus)) for cluster, gpus in rows),
    )
    kinds = (
        Discrepancy.objects.filter(state__in=UNSETTLED)
        .order_by("cluster", "kind")
        .values_list("cluster", "kind")
        .annotate(count=Count("pk"))
    )
    yield Family(
        "portal_discrepancies_open",
        "Discrepancies that are not settled; they block the close of a month.",
        ("cluster", "kind"),
        tuple(((cluster, kind), float(count)) for cluster, kind, count in kinds),
    )


def _of_months(now: datetime) -> Iterator[Family]:
    months = BillingPeriod.objects.filter(closed_at=None, end__lte=now).aggregate(
        count=Count("pk"), oldest=Min("end")
    )
    yield Family.one(
        "portal_months_to_close", "Months that are over and not closed.", months["count"]
    )
    yield Family.one(
        "portal_oldest_month_to_close_age_seconds",
        "How long ago the oldest month to close ended; 0 when there is none.",
        age(months["oldest"], now),
    )


def _of_what_is_sent(now: datetime) -> Iterator[Family]:
    running = Export.objects.filter(operation__state=Operation.State.RUNNING)
    yield Family.one("portal_exports_running", "Exports that are being written.", running.count())
    sent = Delivery.objects.aggregate(
        waiting=Count("pk", filter=Q(state=Delivery.State.WAITING)),
        given_up=Count("pk", filter=Q(state=Delivery.State.GIVEN_UP)),
        oldest=Min("next_at", filter=Q(state=Delivery.State.WAITING)),
    )
    yield Family(
        "portal_deliveries",
        "Mails and webhooks that wait to be sent, and those that were given up.",
        ("state",),
        tuple(((state,), float(sent[state])) for state in ("waiting", "given_up")),
    )
    yield Family.one(
        "portal_oldest_delivery_overdue_seconds",
        "How long ago the oldest mail or webhook should have been sent; 0 when none is late.",
        age(sent["oldest"], now),
    )


def _of_budgets(now: datetime) -> Iterator[Family]:
    requests = BudgetRevision.objects.filter(WAITING).aggregate(
        count=Count("pk"), oldest=Min("created_at")
    )
    yield Family.one(
        "portal_budget_requests_waiting",
        "Budget requests that wait for a decision.",
        requests["count"],
    )
    yield Family.one(
        "portal_oldest_budget_request_age_seconds",
        "How long the oldest budget request has waited; 0 when there is none.",
        age(requests["oldest"], now),
    )
    capped = SpendEffect.objects.order_by("budget__workspace__namespace").values_list(
        "budget__workspace__namespace", flat=True
    )
    yield Family(
        "portal_spend_cap_in_force",
        "1 for a workspace in which a reached spend cap acts now.",
        ("workspace",),
        tuple(((str(namespace),), 1.0) for namespace in capped),
    )


def _of_people(now: datetime) -> Iterator[Family]:
    emergencies = AuditEntry.objects.filter(
        action="session.break_glass", at__gt=now - timedelta(days=1)
    )
    yield Family.one(
        "portal_break_glass_sign_ins",
        "Sign-ins within the last 24 hours with the account for emergencies.",
        emergencies.count(),
    )


def age(moment: datetime | None, now: datetime) -> float | None:
    """Seconds since a moment, 0 for one to come; None for none."""
    return None if moment is None else max(0.0, (now - moment).total_seconds())


def _stamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
