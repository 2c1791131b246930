"""The checker finds every planted defect, at its row and column, and nothing in a good file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from budgets.exports.focus import Version
from budgets.exports.focus.reading import FocusFileError, Texts, open_focus
from tests.exports.charges import many, story
from tests.exports.focus_files import check, found_in, texts_of, write

Plant = Callable[[list[Texts]], None]
PURCHASE, USED, UNUSED, BURST, SPOT, CREDIT, FIX, CORRECTION = 0, 1, 3, 4, 6, 7, 8, 9
BOTH = pytest.mark.parametrize("version", list(Version))


def put(at: int, **values: str | None) -> Plant:
    return lambda rows: rows[at].update(values)


def more_cost(at: int, *columns: str) -> Plant:
    def plant(rows: list[Texts]) -> None:
        for column in columns:
            rows[at][column] = str(Decimal(rows[at][column] or 0) + 1)

    return plant


@BOTH
@pytest.mark.parametrize("shape", ["csv", "parquet", "jsonl"])
def test_good_file_has_no_finding_in_any_format(tmp_path: Path, version: Version, shape: str):
    path = write(tmp_path / "good", version, [*story(), *many(6)], shape=shape)

    with open_focus(path) as opened:
        rows = list(opened.rows)

    assert len(rows) > 600
    assert check(rows, version) == []


TWELVE = [
    pytest.param(put(BURST, BilledCost=None), "BilledCost", "not_null", id="null BilledCost"),
    pytest.param(put(BURST, ChargeClass="Fixed"), "ChargeClass", "enum", id="ChargeClass"),
    pytest.param(
        put(PURCHASE, ChargeFrequency="Usage-Based"),
        "ChargeFrequency",
        "frequency",
        id="purchase that is usage-based",
    ),
    pytest.param(put(BURST, ChargeCategory="Use"), "ChargeCategory", "enum", id="ChargeCategory"),
    pytest.param(
        put(BURST, ServiceCategory="Computing"), "ServiceCategory", "enum", id="ServiceCategory"
    ),
    pytest.param(
        put(BURST, PricingCategory="On-Demand"), "PricingCategory", "enum", id="PricingCategory"
    ),
    pytest.param(
        put(BURST, ChargeFrequency="Hourly"), "ChargeFrequency", "enum", id="ChargeFrequency"
    ),
    pytest.param(
        put(USED, CommitmentDiscountStatus="Partly"),
        "CommitmentDiscountStatus",
        "enum",
        id="CommitmentDiscountStatus",
    ),
    pytest.param(more_cost(BURST, "ListCost"), "ListCost", "price_times_quantity", id="ListCost"),
    pytest.param(
        more_cost(USED, "EffectiveCost", "PricingCurrencyEffectiveCost"),
        "EffectiveCost",
        "commitment_cost",
        id="EffectiveCost that is not the purchase's",
    ),
    pytest.param(
        put(BURST, PricingUnit="GPU Hours"), "PricingUnit", "unit_format", id="unit spelling"
    ),
    pytest.param(
        put(BURST, Tags='{"team": {"name": "x"}}'), "Tags", "json_flat", id="nested JSON in Tags"
    ),
]


@BOTH
@pytest.mark.parametrize(("plant", "column", "rule"), TWELVE)
def test_each_of_the_twelve_defects_is_found(tmp_path, version, plant, column, rule):
    found = found_in(texts_of(version, tmp_path), version, plant)

    assert (column, rule) in {(c, r) for _, c, r in found}


FURTHER = [
    (put(BURST, BilledCost="1,000.00"), "BilledCost", "numeric_format"),
    (put(BURST, BilledCost="+9.0"), "BilledCost", "numeric_format"),
    (put(BURST, BilledCost="9e0"), "BilledCost", "numeric_format"),
    (put(BURST, BilledCost="9.00 EUR"), "BilledCost", "numeric_format"),
    (put(BURST, BilledCost="٣"), "BilledCost", "numeric_format"),
    (put(BURST, ListUnitPrice="-3.0"), "ListUnitPrice", "not_negative"),
    (put(BURST, RegionName="NULL"), "RegionName", "null"),
    (put(BURST, ResourceName=""), "ResourceName", "null"),
    (put(BURST, ResourceName="  "), "ResourceName", "null"),
    (put(BURST, PricingQuantity="NaN"), "PricingQuantity", "null"),
    (put(BURST, ChargePeriodStart="2026-03-01 00:00:00"), "ChargePeriodStart", "time_format"),
    (put(BURST, ChargePeriodStart="2026-03-01T01:00:00+01:00"), "ChargePeriodStart", "time_format"),
    (put(BURST, ChargePeriodStart="2026-02-30T00:00:00Z"), "ChargePeriodStart", "time_format"),
    (put(BURST, ChargePeriodEnd="2026-03-01T00:00:00Z"), "ChargePeriodEnd", "period"),
    (put(BURST, ChargePeriodStart="2026-02-28T23:00:00Z"), "ChargePeriodStart", "period"),
    (put(BURST, BillingPeriodEnd="2026-03-01T00:00:00Z"), "BillingPeriodEnd", "period"),
    (put(CORRECTION, ChargePeriodEnd="2026-03-01T01:00:00Z"), "ChargeClass", "correction"),
    (put(BURST, BillingCurrency="Euro"), "BillingCurrency", "currency"),
    (put(BURST, BillingCurrency="XXX"), "BillingCurrency", "currency"),
    (put(BURST, ConsumedUnit="GPU-hours"), "ConsumedUnit", "unit_format"),
    (put(BURST, ConsumedUnit="GPUHours"), "ConsumedUnit", "unit_format"),
    (put(BURST, ConsumedUnit=None), "ConsumedUnit", "pair"),
    (put(BURST, Tags="[1]"), "Tags", "json"),
    (put(BURST, Tags='{"a": 1, "a": 2}'), "Tags", "json"),
    (put(BURST, Tags="{team: x}"), "Tags", "json"),
    (put(BURST, SkuPriceDetails='{"Model": "h100"}'), "SkuPriceDetails", "json_key"),
    (put(BURST, SkuPriceDetails='{"GpuCount": "1"}'), "SkuPriceDetails", "json_key"),
    (put(BURST, PricingQuantity=None), "PricingQuantity", "not_null"),
    (put(BURST, PricingCategory=None), "PricingCategory", "not_null"),
    (put(BURST, PricingCategory="Committed"), "PricingCategory", "commitment"),
    (put(USED, PricingCategory="Standard"), "PricingCategory", "commitment"),
    (put(USED, CommitmentDiscountStatus=None), "CommitmentDiscountStatus", "not_null"),
    (put(PURCHASE, CommitmentDiscountStatus="Used"), "CommitmentDiscountStatus", "null"),
    (put(USED, CommitmentDiscountQuantity=None), "CommitmentDiscountQuantity", "not_null"),
    (put(CREDIT, CommitmentDiscountQuantity="2.0"), "CommitmentDiscountQuantity", "null"),
    (put(USED, CommitmentDiscountCategory=None), "CommitmentDiscountCategory", "pair"),
    (put(USED, CommitmentDiscountId=None), "CommitmentDiscountType", "pair"),
    (put(UNUSED, ConsumedQuantity="4.0"), "ConsumedQuantity", "null"),
    (put(CREDIT, ConsumedQuantity="2.0"), "ConsumedQuantity", "null"),
    (put(BURST, ConsumedQuantity=None), "ConsumedQuantity", "not_null"),
    (put(UNUSED, ResourceId="workload/x"), "ResourceId", "commitment"),
    (put(PURCHASE, ResourceId="workload/x"), "ResourceId", "commitment"),
    (put(USED, ResourceId="budget/acme-vision/3/h100"), "ResourceId", "commitment"),
    (put(PURCHASE, EffectiveCost="32.0"), "EffectiveCost", "amortised"),
    (put(USED, BilledCost="16.0"), "BilledCost", "amortised"),
    (put(USED, CapacityReservationId="r1"), "CapacityReservationStatus", "not_null"),
    (put(BURST, CapacityReservationStatus="Used"), "CapacityReservationStatus", "pair"),
    (put(UNUSED, CommitmentDiscountQuantity="3.0"), "CommitmentDiscountQuantity",
     "commitment_quantity"),
    (more_cost(BURST, "ContractedCost"), "ContractedCost", "price_times_quantity"),
    (more_cost(CREDIT, "ListCost"), "ListCost", "equal_costs"),
    (more_cost(FIX, "EffectiveCost"), "EffectiveCost", "equal_costs"),
    (put(BURST, PricingCurrencyEffectiveCost="1.0"), "PricingCurrencyEffectiveCost", "currency"),
    (put(BURST, ServiceSubcategory="Block Storage"), "ServiceSubcategory", "parent"),
    (put(BURST, ServiceCategory="Storage"), "ServiceCategory", "parent"),
    (put(BURST, SkuId="gpu/a100"), "SkuId", "parent"),
    (put(BURST, SkuMeter=None), "SkuMeter", "pair"),
    (put(BURST, SubAccountName=None), "SubAccountName", "pair"),
    (put(BURST, BillingAccountId="globex"), "BillingAccountId", "parent"),
    (put(BURST, BillingAccountType=None), "BillingAccountType", "pair"),
    (put(BURST, RegionName=None, RegionId="gpu-east"), "RegionName", "pair"),
    (put(BURST, x_GpuSeconds="3600"), "x_GpuSeconds", "own"),
    (put(BURST, x_UsageClass="borrowed"), "x_UsageClass", "enum"),
    (lambda rows: rows.pop(), "BilledCost", "payable"),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(("plant", "column", "rule"), FURTHER)
def test_further_defects_are_found(tmp_path, version, plant, column, rule):
    found = found_in(texts_of(version, tmp_path), version, plant)

    assert (column, rule) in {(c, r) for _, c, r in found}


@pytest.mark.parametrize(
    ("plant", "column", "rule"),
    [
        (put(BURST, InvoiceDetailId=None), "InvoiceDetailId", "pair"),
        (put(BURST, HostProviderName=None), "HostProviderName", "not_null"),
        (put(USED, ContractApplied='{"Elements": []}'), "ContractApplied", "contract"),
        (put(USED, ContractApplied='{"Elements": [{"ContractId": "a"}]}'), "ContractApplied",
         "contract"),
        (put(USED, CommitmentProgramEligibilityDetails="{}"),
         "CommitmentProgramEligibilityDetails", "contract"),
        (put(USED, CommitmentProgramEligibilityDetails=json.dumps(
            {"CommitmentPrograms": [{"ProgramType": "Other"}]})),
         "CommitmentProgramEligibilityDetails", "contract"),
        (put(BURST, AllocatedResourceName="x"), "AllocatedResourceName", "pair"),
    ],
)  # fmt: skip
def test_defects_of_what_1_4_added_are_found(tmp_path, plant, column, rule):
    found = found_in(texts_of(Version.V1_4, tmp_path), Version.V1_4, plant)

    assert (column, rule) in {(c, r) for _, c, r in found}


NEEDS_ITS_OWNER = """
SubAccountName SubAccountId; SubAccountType SubAccountId; RegionName RegionId;
ResourceName ResourceId; ResourceType ResourceId; SkuMeter SkuId; SkuPriceId SkuId;
SkuPriceDetails SkuPriceId; PricingUnit PricingQuantity; ConsumedUnit ConsumedQuantity;
CommitmentDiscountUnit CommitmentDiscountQuantity; CommitmentDiscountName CommitmentDiscountId;
CommitmentDiscountCategory CommitmentDiscountId; CommitmentDiscountType CommitmentDiscountId;
CommitmentDiscountStatus CommitmentDiscountId; CapacityReservationStatus CapacityReservationId;
InvoiceDetailId InvoiceId; AllocatedResourceName AllocatedResourceId;
AllocatedMethodDetails AllocatedMethodId
"""
IS_THERE_WITH = """
SubAccountName SubAccountId; SubAccountType SubAccountId; BillingAccountType BillingAccountId;
RegionName RegionId; ResourceType ResourceId; SkuMeter SkuId; PricingUnit PricingQuantity;
ConsumedUnit ConsumedQuantity; CommitmentDiscountUnit CommitmentDiscountQuantity;
CommitmentDiscountCategory CommitmentDiscountId; CommitmentDiscountType CommitmentDiscountId;
InvoiceDetailId InvoiceId
"""


def pairs(text: str) -> list[list[str]]:
    return [pair.split() for pair in text.split(";")]


@pytest.mark.parametrize(("column", "owner"), pairs(NEEDS_ITS_OWNER))
def test_name_without_its_id_is_found(tmp_path, column, owner):
    plant = put(BURST, **{owner: None, column: "Used"})

    found = found_in(texts_of(Version.V1_4, tmp_path), Version.V1_4, plant)

    assert (BURST + 1, column, "pair") in found


@pytest.mark.parametrize(("column", "owner"), pairs(IS_THERE_WITH))
def test_id_without_its_name_is_found(tmp_path, column, owner):
    plant = put(USED, **{owner: "1.0", column: None})

    found = found_in(texts_of(Version.V1_4, tmp_path), Version.V1_4, plant)

    assert (USED + 1, column, "pair") in found


@pytest.mark.parametrize(
    ("changed", "column", "words"),
    [
        ({"SkuId": "gpu/a100"}, "SkuId", "a SKU price has one SKU"),
        ({"ServiceCategory": "Other"}, "ServiceCategory", "a service has one category"),
        ({"CommitmentDiscountUnit": "Hours"}, "CommitmentDiscountUnit", "one unit"),
        ({"BillingCurrency": "USD"}, "BillingCurrency", "a commitment has one currency"),
        ({"BillingCurrency": "USD"}, "BillingCurrency", "an invoice has one currency"),
        ({"BillingAccountId": "globex"}, "BillingAccountId", "an invoice has one billing account"),
        ({"BillingAccountId": "globex"}, "BillingAccountId", "a sub account has one"),
        (
            {"BillingPeriodStart": "2026-02-01T00:00:00Z"},
            "BillingPeriodStart",
            "an invoice has one billing period",
        ),
    ],
)
def test_child_of_two_parents_is_found(tmp_path, changed, column, words):
    rows = texts_of(Version.V1_4, tmp_path)
    put(USED + 1, **changed)(rows)

    found = check(rows, Version.V1_4)

    assert [f.row for f in found if f.column == column and words in f.message] == [USED + 2]


@pytest.mark.parametrize(
    "column", ["PricingCurrencyListUnitPrice", "PricingCurrencyContractedUnitPrice"]
)
def test_price_that_differs_in_the_same_currency_is_found(tmp_path, column):
    plant = put(BURST, **{column: "9.0"})

    found = found_in(texts_of(Version.V1_4, tmp_path), Version.V1_4, plant)

    assert found == {(BURST + 1, column, "currency")}


def test_own_column_with_another_word_is_found(tmp_path):
    plant = put(BURST, x_MeterCompleteness="mostly")

    found = found_in(texts_of(Version.V1_4, tmp_path), Version.V1_4, plant)

    assert found == {(BURST + 1, "x_MeterCompleteness", "enum")}


def test_finding_names_row_column_value_and_way_out(tmp_path):
    rows = texts_of(Version.V1_2, tmp_path)
    put(BURST, PricingUnit="GPU-hours")(rows)

    (finding,) = check(rows, Version.V1_2)

    assert (finding.row, finding.column, finding.value) == (BURST + 1, "PricingUnit", "GPU-hours")
    assert str(finding) == (
        "row 5: PricingUnit: 'GPU-hours': unit_format: spell the unit 'Hours', not 'hours'"
    )


def renamed(old: str, new: str) -> Plant:
    def plant(rows: list[Texts]) -> None:
        for at, row in enumerate(rows):
            rows[at] = {(new if name == old else name): text for name, text in row.items()}

    return plant


def moved_last(name: str) -> Plant:
    def plant(rows: list[Texts]) -> None:
        for row in rows:
            row[name] = row.pop(name)

    return plant


@pytest.mark.parametrize(
    ("plant", "want"),
    [
        (renamed("BilledCost", "billedcost"), {("billedcost", "column"), ("BilledCost", "column")}),
        (renamed("ResourceName", "Resource"), {("Resource", "column")}),
        (renamed("ProviderName", "x_Provider"),
         {("ProviderName", "column"), ("PublisherName", "column_order")}),
        (moved_last("Tags"), {("Tags", "column_order")}),
    ],
)  # fmt: skip
def test_header_defects_are_found(tmp_path, plant, want):
    rows = texts_of(Version.V1_2, tmp_path)
    plant(rows)

    found = {(f.column, f.rule) for f in check(rows, Version.V1_2) if f.row == 0}

    assert want <= found


def test_file_of_the_other_version_is_told_so(tmp_path):
    found = check(texts_of(Version.V1_2, tmp_path), Version.V1_4)

    messages = {f.column: f.message for f in found if f.row == 0}
    assert messages["ProviderName"] == "a column of FOCUS 1.2, not of 1.4; leave it out"
    assert messages["HostProviderName"] == "FOCUS 1.4 has it in every file; add the column"


def test_payable_of_an_invoice_is_compared_where_it_is_known(tmp_path):
    rows = texts_of(Version.V1_2, tmp_path)
    key = rows[0]["InvoiceId"]

    right = check(rows, Version.V1_2, payables={key: Decimal("63.42")})
    wrong = check(rows, Version.V1_2, payables={key: Decimal("63.43"), "RE-9": Decimal(1)})

    assert right == []
    assert [(f.row, f.value, f.rule) for f in wrong] == [
        (1, "63.420000000000000", "payable"),
        (0, "RE-9", "payable"),
    ]


def test_csv_tells_an_empty_text_from_null(tmp_path):
    rows = texts_of(Version.V1_2, tmp_path)
    names = list(rows[0])
    lines = (tmp_path / "story.csv").read_text().splitlines()
    at = names.index("AvailabilityZone")
    cells = lines[1].split(",")
    assert cells[at] == ""
    cells[at] = '""'
    (tmp_path / "bad.csv").write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")

    with open_focus(tmp_path / "bad.csv") as opened:
        found = check(list(opened.rows), Version.V1_2)

    assert [(f.row, f.column, f.value, f.rule) for f in found] == [
        (1, "AvailabilityZone", "", "null")
    ]


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"A,B\n1\n", "row 1 has 1 fields and the header 2"),
        (b'A,B\n1,"2\n', "line 2"),
        (b'{"A": 1}\n{"B": 1}\n', "row 2 has other keys"),
        (b'{"A": 1}\n[]\n', "row 2 is not a JSON object"),
        (b'{"A": ' + b"[" * 9000, "row 1 is not JSON"),
        (b"PAR1 but not really", "not a Parquet file"),
        (b"\x1f\x8b broken", "not UTF-8 text"),
    ],
)
def test_unreadable_file_is_refused_with_the_place(tmp_path, content, want):
    path = tmp_path / "x"
    path.write_bytes(content)

    with pytest.raises(FocusFileError, match=want), open_focus(path) as opened:
        list(opened.rows)


def test_command_exits_by_what_it_found(tmp_path, capsys):
    good = write(tmp_path / "good.csv", Version.V1_2, story())
    packed = tmp_path / "good.csv.gz"
    packed.write_bytes(gzip.compress(good.read_bytes()))
    bad = tmp_path / "bad.csv"
    bad.write_text(good.read_text().replace("Recurring", "Hourly"))

    call_command("focus_check", str(packed), "--version", "1.2")
    assert "nothing is wrong, by FOCUS 1.2" in capsys.readouterr().out

    with pytest.raises(SystemExit) as stopped:
        call_command("focus_check", str(bad), "--version", "1.2")
    out = capsys.readouterr().out
    assert stopped.value.code == 1
    assert "row 1: ChargeFrequency: 'Hourly': enum: use one of:" in out
    assert out.endswith("1 findings, by FOCUS 1.2\n")

    with pytest.raises(CommandError) as refused:
        call_command("focus_check", str(tmp_path / "none.csv"), "--version", "1.2")
    assert refused.value.returncode == 2


def test_command_takes_payables(tmp_path, capsys):
    good = write(tmp_path / "good.csv", Version.V1_2, story())

    with pytest.raises(SystemExit):
        call_command("focus_check", str(good), "--version", "1.2", "--payable", "RE-9=12.50")

    assert "InvoiceId: 'RE-9': payable:" in capsys.readouterr().out
