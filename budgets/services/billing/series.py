"""Time series: the burst prices of dynamic flavors, from whole UTC hours on; never edited.

Source: spec money, section 3.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from budgets.errors import Fault, reject_any
from budgets.models import Flavor, SpotPrice, User
from budgets.services.audit import audit
from budgets.services.billing.guards import (
    closed_edge,
    currency_faults,
    foreign_currency,
    lock_billing,
    price_of,
    whole_hour_faults,
)
from budgets.services.guards import by_finance

BATCH = 1000
MOST_PRICES = 10_000


@by_finance
def record_spot_prices(
    actor: User | None,
    *,
    flavor: Flavor,
    prices: Iterable[tuple[datetime, Decimal | str]],
    currency: str,
) -> int:
    """Add points to the time series of a flavor; what stands already is left alone.

    Args:
        actor: Finance or admin; None for an importer of the portal.
        flavor: Whose burst price it is, where a card says that it is dynamic.
        prices: (whole UTC hour from which it holds, price per GPU-hour).
        currency: That of the rate cards.

    Returns:
        How many points were new. One for an hour that has a point already supersedes it.
    """
    lock_billing()
    faults = currency_faults("currency", currency) or foreign_currency(currency)
    rows = list(prices)
    if not 0 < len(rows) <= MOST_PRICES:
        faults.append(Fault("prices", "count", f"Give 1 to {MOST_PRICES:,} prices at once."))
    edge = closed_edge(None)
    points: dict[datetime, Decimal] = {}
    for index, (start, value) in enumerate(rows[:MOST_PRICES]):
        faults += whole_hour_faults(f"prices.{index}.start", start, edge)
        points[start] = price_of(f"prices.{index}.price", value, faults)
    reject_any(faults)
    known = dict(
        SpotPrice.objects.filter(flavor=flavor, start__in=points)
        .order_by("pk")
        .values_list("start", "price")
    )
    new = {start: price for start, price in points.items() if known.get(start) != price}
    SpotPrice.objects.bulk_create(
        [
            SpotPrice(flavor=flavor, start=start, price=price, currency=currency, recorded_by=actor)
            for start, price in sorted(new.items())
        ],
        batch_size=BATCH,
    )
    if new:
        audit(
            actor,
            "spot_price.record",
            flavor,
            after={
                "count": len(new),
                "first": min(new).isoformat(),
                "last": max(new).isoformat(),
                "currency": currency,
            },
        )
    return len(new)
