"""Charge rows to export: the hour of spec/money.md 2.3, and as many of them as wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from budgets.charging.rows import ChargeRow, RowKind
from budgets.exports.focus import Commitment, FocusInput, FocusNames, WorkloadShare

PERIOD = "2026-03"
START = datetime(2026, 3, 1, tzinfo=UTC)
END = datetime(2026, 4, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NAMES = FocusNames(
    provider="Platform team",
    periods={PERIOD: (START, END), "2026-02": (datetime(2026, 2, 1, tzinfo=UTC), START)},
    accounts={"acme": "Acme"},
    workspaces={"acme-vision": "Vision"},
)
FLOOR = Commitment("acme-vision", 3, "h100")


def cents(exact: Fraction) -> Decimal:
    return Decimal(round(exact * 100)).scaleb(-2)


def charge(kind: RowKind, gpu_seconds: int = 0, price: str = "0", **more: object) -> ChargeRow:
    """An hour of acme-vision; exact and amount follow from quantity and price."""
    exact = Fraction(price) * gpu_seconds / 3600
    values: dict[str, object] = {
        "account": "acme",
        "workspace": "acme-vision",
        "flavor": "h100",
        "kind": kind,
        "start": START,
        "end": START + HOUR,
        "gpu_seconds": gpu_seconds,
        "unit_price": Decimal(price),
        "exact": exact,
        "amount": cents(exact),
        "currency": "EUR",
        "rate_card": 1,
        "period": PERIOD,
        "list_unit_price": Decimal("3.00"),
    }
    return ChargeRow(**{**values, **more})


def story() -> list[FocusInput]:
    """One hour: a floor of 16 with 12 used, 5 burst, 5 spot, lent, adjusted, corrected."""
    train = WorkloadShare("gpu-east", "uid-a", "train-a", 8 * 3600, 3 * 3600)
    tune = WorkloadShare("gpu-west", "uid-b", "=tune", 4 * 3600, 2 * 3600)
    floor = charge(RowKind.FLOOR, 16 * 3600, "2", used_gpu_seconds=12 * 3600)
    credit = charge(RowKind.LENDING_CREDIT, 2 * 3600, "-1", list_unit_price=None)
    fix = charge(RowKind.ADJUSTMENT, exact=Fraction("12.34"), amount=Decimal("12.34"), flavor="")
    old = {"start": START - HOUR, "end": START}
    return [
        FocusInput(floor, (train, tune), FLOOR),
        FocusInput(charge(RowKind.BURST, 5 * 3600, "3"), (train, tune)),
        FocusInput(charge(RowKind.BURST, 5 * 3600, "1.5", flavor="h100-spot"), is_dynamic=True),
        FocusInput(credit, commitment=FLOOR),
        FocusInput(fix, note="Goodwill for the outage of 1 March"),
        FocusInput(
            charge(RowKind.CORRECTION, -1801, "3", class_of=RowKind.BURST, **old),
        ),
        FocusInput(charge(RowKind.BURST, 100, "2.99999999")),
        FocusInput(charge(RowKind.ROUNDING, flavor="", amount=Decimal("0.00"))),
    ]


def many(hours: int, workspaces: int = 20) -> Iterator[FocusInput]:
    """Floors with two workloads and burst, hour by hour; 5 FOCUS rows from each pair."""
    for hour in range(hours):
        start = START + HOUR * (hour % 744)
        for number in range(workspaces):
            name = f"acme-team{number}"
            used = 20_000 + (hour * 37 + number * 11) % 30_000
            burst = 1 + (hour * 7919 + number * 104_729) % 28_800
            commitment = Commitment(name, 1 + hour // 300, "h100")
            more = {"workspace": name, "start": start, "end": start + HOUR}
            shares = (
                WorkloadShare("gpu-east", f"uid-{number}-{hour // 5}", "train", used - 7_000, 0),
                WorkloadShare("gpu-west", f"uid-{number}-{hour // 3}", "tune", 7_000, burst),
            )
            floor = charge(RowKind.FLOOR, 57_600, "2.10000001", used_gpu_seconds=used, **more)
            yield FocusInput(floor, shares, commitment)
            row = charge(RowKind.BURST, burst, "3.33333333", **more)
            yield FocusInput(replace(row, list_unit_price=Decimal("3.5")), shares)
