"""Charge rows become the rows of spec/money.md 2.3."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets.charging.rows import RowKind
from budgets.exports.focus import FocusInput, Version, WorkloadShare, focus_rows, focus_table
from budgets.exports.focus.columns import COLUMNS
from budgets.exports.writers.csv_file import SHOWN as SHOWN_AS
from tests.exports.charges import FLOOR, HOUR, NAMES, START, charge, many, story
from tests.exports.focus_files import check

SHOWN = (
    "ChargeCategory",
    "ChargeFrequency",
    "PricingCategory",
    "CommitmentDiscountStatus",
    "PricingQuantity",
    "ConsumedQuantity",
    "CommitmentDiscountQuantity",
    "BilledCost",
    "EffectiveCost",
    "ListCost",
)


def documents(source, version=Version.V1_4):
    names = focus_table(version).names
    return [dict(zip(names, row, strict=True)) for row in focus_rows(source, NAMES, version)]


def shown(document):
    return tuple(
        str(v.normalize()) if isinstance(v, Decimal) else v
        for v in (document[name] for name in SHOWN)
    )


@pytest.mark.parametrize(("version", "count"), [(Version.V1_2, 57), (Version.V1_4, 65)])
def test_focus_columns_are_those_of_the_version_and_ours_come_last(version, count):
    names = focus_table(version).names

    assert list(names[:count]) == sorted(COLUMNS[version])
    assert all(name.startswith("x_") for name in names[count:])
    assert len(names) == count + 9
    assert sum(column.is_mandatory for column in COLUMNS[version].values()) == 21


def test_focus_rows_of_one_hour_are_those_of_the_mapping():
    rows = [shown(d) for d in documents(story())[:9]]

    assert rows == [
        ("Purchase", "Recurring", "Standard", None, "16", None, "16", "32", "0", "32"),
        ("Usage", "Usage-Based", "Committed", "Used", "8", "8", "8", "0", "16", "24"),
        ("Usage", "Usage-Based", "Committed", "Used", "4", "4", "4", "0", "8", "12"),
        ("Usage", "Usage-Based", "Committed", "Unused", "4", None, "4", "0", "8", "12"),
        ("Usage", "Usage-Based", "Standard", None, "3", "3", None, "9", "9", "9"),
        ("Usage", "Usage-Based", "Standard", None, "2", "2", None, "6", "6", "6"),
        ("Usage", "Usage-Based", "Dynamic", None, "5", "5", None, "7.5", "7.5", "7.5"),
        ("Credit", "One-Time", None, None, None, None, None, "-2", "-2", "-2"),
        ("Adjustment", "One-Time", None, None, None, None, None, "12.34", "12.34", "12.34"),
    ]


def test_focus_usage_of_the_floor_is_contracted_at_the_on_demand_price():
    used = documents(story())[1]

    assert used["ContractedUnitPrice"] == used["ListUnitPrice"] == 3
    assert used["ResourceId"] == "workload/gpu-east/uid-a"
    assert used["x_WorkloadUid"] == "uid-a"
    assert used["x_BudgetRevisionId"] == "acme-vision/3"


def test_focus_commitment_is_its_own_resource_when_bought_and_unused():
    rows = documents(story())

    for at in (0, 3):
        assert rows[at]["ResourceId"] == rows[at]["CommitmentDiscountId"] == FLOOR.key
    assert rows[7]["CommitmentDiscountId"] == FLOOR.key
    assert rows[7]["CommitmentDiscountQuantity"] is None


def test_focus_prices_share_a_sku_and_spot_has_a_price_of_its_own():
    usage = [d for d in documents(story()) if d["ChargeCategory"] == "Usage"]

    assert {(d["SkuId"], d["SkuPriceId"]) for d in usage} == {
        ("gpu/h100", "gpu/h100/on-demand"),
        ("gpu/h100-spot", "gpu/h100-spot/spot"),
    }


def test_focus_correction_bills_the_old_hour_in_the_open_period():
    fix = documents(story())[9]

    assert fix["ChargeClass"] == "Correction"
    assert fix["ChargePeriodStart"] == START - HOUR
    assert fix["BillingPeriodStart"] == START
    assert fix["BilledCost"] == Decimal("-1.500833333333333")


def test_focus_correction_of_use_alone_moves_cost_from_unused_to_used():
    row = charge(
        RowKind.CORRECTION,
        0,
        "2",
        class_of=RowKind.FLOOR,
        used_gpu_seconds=3600,
        start=START - HOUR,
        end=START,
    )

    rows = documents([FocusInput(row, commitment=FLOOR)])

    assert [(d["CommitmentDiscountStatus"], d["EffectiveCost"]) for d in rows] == [
        ("Used", Decimal("2")),
        ("Unused", Decimal("-2")),
    ]


def test_focus_reserved_floor_is_a_capacity_reservation():
    reserved = replace(FLOOR, is_reserved=True)
    row = charge(RowKind.FLOOR, 7200, "2", used_gpu_seconds=3600)

    rows = documents([FocusInput(row, commitment=reserved)])

    assert [d["CapacityReservationStatus"] for d in rows] == [None, "Used", "Unused"]
    assert rows[1]["CapacityReservationId"] == f"{FLOOR.key}/reserved"


def test_focus_floor_of_fixed_hours_prices_other_hours_than_it_commits():
    row = charge(RowKind.FLOOR, 3600, "2")
    row = replace(row, exact=row.exact * Fraction(730, 744))

    bought = documents([FocusInput(row, commitment=FLOOR)])[0]

    assert bought["CommitmentDiscountQuantity"] == 1
    assert abs(bought["PricingQuantity"] * 2 - bought["BilledCost"]) < Decimal("1e-12")


def test_focus_use_that_no_workload_is_known_for_stays_in_the_sum():
    share = WorkloadShare("gpu-east", "uid-a", "train", 0, 1000)
    row = charge(RowKind.BURST, 3600, "3")

    rows = documents([FocusInput(row, (share,))])

    assert [(d["ResourceType"], d["x_GpuSeconds"]) for d in rows] == [
        ("Workload", 1000),
        ("Queue", 2600),
    ]


def test_focus_workloads_with_more_than_the_charge_are_not_named():
    share = WorkloadShare("gpu-east", "uid-a", "train", 0, 5000)

    rows = documents([FocusInput(charge(RowKind.BURST, 3600, "3"), (share,))])

    assert [(d["ResourceId"], d["x_GpuSeconds"]) for d in rows] == [("queue/acme-vision", 3600)]


def test_focus_rounding_row_makes_each_invoice_the_payable():
    rows = [
        charge(RowKind.BURST, 1, "2.99999999", amount=Decimal("0.00")),
        charge(RowKind.BURST, 7, "3.1", amount=Decimal("0.01"), statement="RE-1"),
        charge(RowKind.ROUNDING, amount=Decimal("0.01"), statement="RE-1"),
    ]
    sums: dict[str, Decimal] = defaultdict(Decimal)

    for document in documents([FocusInput(row) for row in rows]):
        sums[document["InvoiceId"]] += document["BilledCost"]

    assert sums == {"PROVISIONAL-acme-2026-03": Decimal("0.00"), "RE-1": Decimal("0.02")}


def texts(document):
    """A row as the checker reads it from a file."""
    kinds = {column.name: column.kind for column in focus_table(Version.V1_4).columns}
    return {n: None if v is None else SHOWN_AS[kinds[n]](v) for n, v in document.items()}


seconds = st.integers(0, 500_000)
prices = st.decimals(0, 99_999, places=8)


@settings(max_examples=60)
@given(st.lists(st.tuples(seconds, seconds, seconds, prices, prices), min_size=1, max_size=6))
def test_focus_identities_hold_for_any_quantities_and_prices(hours):
    source = []
    for used_a, used_b, unused, price, list_price in hours:
        total = used_a + used_b + unused
        shares = (
            WorkloadShare("east", "a", "a", used_a, used_b),
            WorkloadShare("west", "b", "b", used_b, used_a),
        )
        floor = charge(
            RowKind.FLOOR,
            total,
            str(price),
            used_gpu_seconds=used_a + used_b,
            list_unit_price=list_price,
        )
        source.append(FocusInput(floor, shares, FLOOR))
        source.append(FocusInput(charge(RowKind.BURST, used_a + used_b, str(list_price)), shares))
    rows = documents(source)

    bought = sum(d["BilledCost"] for d in rows if d["ChargeCategory"] == "Purchase")
    borne = sum(d["EffectiveCost"] for d in rows if d["CommitmentDiscountStatus"])
    assert borne == bought
    for d in rows:
        for price_of, cost in (
            ("ListUnitPrice", "ListCost"),
            ("ContractedUnitPrice", "ContractedCost"),
        ):
            if d["PricingQuantity"] is not None:
                assert abs(d[price_of] * d["PricingQuantity"] - d[cost]) <= Decimal("1e-9")
    payable = sum(given.row.amount for given in source)
    assert sum(d["BilledCost"] for d in rows) == payable
    if rows:
        assert check([texts(d) for d in rows], Version.V1_4) == []


def test_focus_versions_have_the_same_figures():
    old, new = documents(many(3), Version.V1_2), documents(many(3), Version.V1_4)

    shared = COLUMNS[Version.V1_2].keys() & COLUMNS[Version.V1_4].keys()
    assert [{n: d[n] for n in shared} for d in old] == [{n: d[n] for n in shared} for d in new]
