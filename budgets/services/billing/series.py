"""Time series: the burst prices of dynamic flavors, from whole UTC hours on; never edited.

Source: spec money, section 3.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from budgets.errors import Fault, Rejected, reject_any
from budgets.models import Approval, Flavor, Proposal, SpotPrice, User
from budgets.selectors.approvals import installation
from budgets.selectors.billing.prices import card_in_force, prices_of
from budgets.selectors.clock import utc_now
from budgets.services.audit import audit
from budgets.services.billing.approvals import MoneyDeed, Seen, propose, row_of
from budgets.services.billing.guards import (
    closed_edge,
    currency_faults,
    foreign_currency,
    hour_faults,
    lock_billing,
    percent_off,
    percent_text,
    price_of,
)
from budgets.services.guards import by_finance
from budgets.units import time_text

BATCH = 1000
MOST_PRICES = 10_000
Points = dict[datetime, Decimal]


@by_finance
def record_spot_prices(
    actor: User | None,
    *,
    flavor: Flavor,
    prices: Iterable[tuple[datetime, Decimal | str]],
    currency: str,
    reason: str = "",
) -> int | Proposal:
    """Add points to the time series of a flavor; what stands already is left alone.

    Args:
        actor: Finance.
        flavor: Whose burst price it is, where a card says that it is dynamic.
        prices: (whole UTC hour from which it holds, price per GPU-hour).
        currency: That of the rate cards.
        reason: For the log.

    Returns:
        How many points were new; one for an hour that has a point already supersedes it. A
        proposal of all of them where one is off what two people agreed on last by more than the
        tolerance of the installation, or is of an hour that is over.
    """
    lock_billing()
    rows = list(prices)
    points = _points(rows, currency)
    new = _new_points(flavor, points)
    tolerance = installation().price_tolerance
    off = _off_by(flavor, new)
    over = utc_now() - timedelta(hours=1)
    if any(
        off[start] is None or off[start] > tolerance or start <= over  # type: ignore[operator]  # None was asked for
        for start in new
    ):
        return propose(
            actor,
            RECORD,
            subject=f"spot_price:{flavor.slug} {min(new):%Y-%m-%dT%H}",
            reason=reason,
            flavor=flavor,
            prices=sorted(points.items()),
            currency=currency,
        )
    return _write(actor, None, flavor, new, currency, reason)


def _points(rows: Sequence[tuple[datetime, Decimal | str]], currency: str) -> Points:
    """The points of what was typed.

    Raises:
        Rejected: Too many, no prices, or of hours that are closed.
    """
    faults = currency_faults("currency", currency) or foreign_currency(currency)
    if not 0 < len(rows) <= MOST_PRICES:
        faults.append(Fault("prices", "count", f"Give 1 to {MOST_PRICES:,} prices at once."))
    edge = closed_edge(None)
    points: Points = {}
    for index, (start, value) in enumerate(rows[:MOST_PRICES]):
        faults += hour_faults(f"prices.{index}.start", start, edge)
        points[start] = price_of(f"prices.{index}.price", value, faults)
    reject_any(faults)
    return points


def _new_points(flavor: Flavor, points: Points) -> Points:
    known = dict(
        SpotPrice.objects.filter(flavor=flavor, start__in=points)
        .order_by("pk")
        .values_list("start", "price")
    )
    return {start: price for start, price in points.items() if known.get(start) != price}


def _off_by(flavor: Flavor, points: Points) -> dict[datetime, Decimal | None]:
    """Percent off what two people agreed on last for an hour: a point, else the card's price."""
    if not points:
        return {}
    agreed = list(
        SpotPrice.objects.filter(flavor=flavor, approval__isnull=False, start__lte=max(points))
        .order_by("start", "pk")
        .values_list("start", "price")
    )
    found: dict[datetime, Decimal | None] = {}
    cards: dict[int, Decimal | None] = {}
    base: Decimal | None = None
    at = 0
    for start, price in sorted(points.items()):
        while at < len(agreed) and agreed[at][0] <= start:
            base, at = agreed[at][1], at + 1
        if base is None:
            card = card_in_force(None, start)
            if card is not None and card.pk not in cards:
                listed = prices_of(card).get(flavor.slug)
                cards[card.pk] = listed.burst if listed else None
            found[start] = percent_off(price, cards[card.pk] if card else None)
        else:
            found[start] = percent_off(price, base)
    return found


def _write(
    actor: User | None,
    approval: Approval | None,
    flavor: Flavor,
    new: Points,
    currency: str,
    reason: str,
) -> int:
    off, tolerance = _off_by(flavor, new), installation().price_tolerance
    SpotPrice.objects.bulk_create(
        [
            SpotPrice(
                flavor=flavor,
                start=start,
                price=price,
                currency=currency,
                recorded_by=approval.author if approval else actor,
                off_by=off[start],
                tolerance=tolerance,
                approval=approval,
            )
            for start, price in sorted(new.items())
        ],
        batch_size=BATCH,
    )
    if new:
        audit(
            actor,
            "spot_price.record",
            flavor,
            reason=reason,
            after={
                "count": len(new),
                "first": min(new).isoformat(),
                "last": max(new).isoformat(),
                "currency": currency,
            },
        )
    return len(new)


def _recording(flavor: Flavor, prices: Sequence[Any], currency: str, *, at: datetime) -> Seen:
    new = _new_points(flavor, _points(prices, currency))
    if not new:
        raise Rejected.because("prices", "nothing_new", "All of these prices are recorded already.")
    off = _off_by(flavor, new).values()
    most = None if None in off else max(part for part in off if part is not None)
    over = sum(start <= at - timedelta(hours=1) for start in new)
    return {
        "Flavor": flavor.name,
        "New points": f"{len(new):,}",
        "From": time_text(min(new)),
        "Last from": time_text(max(new)),
        "Lowest": f"{min(new.values()).normalize():f} {currency}",
        "Highest": f"{max(new.values()).normalize():f} {currency}",
        "Largest difference from the agreed prices": percent_text(most),
        "Of hours that were over": f"{over:,}",
    }


def _record(
    actor: User,
    approval: Approval,
    *,
    flavor: Flavor,
    prices: Sequence[Any],
    currency: str,
    reason: str,
) -> str:
    new = _new_points(flavor, _points(prices, currency))
    count = _write(actor, approval, flavor, new, currency, reason)
    return f"{count:,} point{'' if count == 1 else 's'} of {flavor.name} recorded."


def _read_prices(stored: Iterable[Sequence[str]]) -> list[tuple[datetime, str]]:
    return [(datetime.fromisoformat(start), price) for start, price in stored]


RECORD = MoneyDeed(
    name="spot_price.record",
    title="Record prices of a time series",
    takes={"flavor": row_of(Flavor), "prices": _read_prices, "currency": str},
    look=_recording,
    do=_record,
)
