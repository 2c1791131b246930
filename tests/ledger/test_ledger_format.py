"""The ledger format: what a record is read as, each fault in full, and what differs."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest

from budgets.charging import (
    LedgerDifference,
    LedgerFaults,
    Rate,
    differences,
    read_ledger,
    work_out,
)
from budgets.charging.ledger_format import Reader
from budgets.errors import Fault
from budgets.metering import AccountPool, Floor, Held, PoolChange, Pools, Revision, SharedPool
from budgets.units import Period
from tests.builders import hours
from tests.ledger.test_replay_ledger import example

WISH = "write it like 2026-05-04T10:00:00Z"
NAIVE = "2026-05-04T11:00:00"


def changed(*place: Any, value: Any) -> dict[str, Any]:
    record = example()
    spot = record
    for key in place[:-1]:
        spot = spot[key]
    spot[place[-1]] = value
    return record


def faults_of(record: object) -> list[Fault]:
    with pytest.raises(LedgerFaults) as refused:
        read_ledger(record)
    told = "; ".join(f"{fault.field}: {fault.message}" for fault in refused.value.faults)
    assert str(refused.value) == told
    return list(refused.value.faults)


def unknown(field: str, name: str, what: str, choices: str) -> tuple[str, str, str]:
    return (field, "unknown", f'"{name}" is not a known {what}; {choices}')


LINE = {"flavor": "h100", "committed": 1, "burst": 1, "lendable": None}
RATE = example()["rates"][0]
POOL = {"accounts": ["acme"], "gpus": {}}
NO_COUNT = "is not a whole number from 0 to a billion"


@pytest.mark.parametrize(
    ("place", "value", "want"),
    [
        pytest.param(
            ("currency",),
            "Taler",
            [("unknown", "'Taler' is not an ISO 4217 currency code, such as EUR")],
            id="a currency",
        ),
        pytest.param(
            ("currency",),
            " ",
            [("not_a_text", '" " is not a text; write a name in quotes')],
            id="an empty text",
        ),
        pytest.param(
            ("period", "end"),
            "2026-05-04T10:00:00Z",
            [("not_after_start", "the period ends before it starts; swap them")],
            id="an empty period",
        ),
        pytest.param(
            ("period", "end"),
            NAIVE,
            [("no_time_zone", f"{NAIVE} has no time zone; {WISH}")],
            id="a time without a zone",
        ),
        pytest.param(
            ("period", "end"),
            f"{NAIVE}.5Z",
            [("not_whole", f"{NAIVE}.5Z has a fraction of a second; {WISH}")],
            id="half a second",
        ),
        pytest.param(
            ("period", "end"), 5, [("not_a_time", f"5 is not a time; {WISH}")], id="a number"
        ),
        pytest.param(
            ("period", "end"),
            "soon",
            [("not_a_time", f'"soon" is not a time; {WISH}')],
            id="words for a time",
        ),
        pytest.param(
            ("period", "end"),
            "9001-01-01T00:00:00Z",
            [("out_of_range", "9001-01-01T00:00:00Z is not within 1970 to 9000")],
            id="too late",
        ),
        pytest.param(
            ("period", "start"),
            "1969-12-31T00:00:00Z",
            [("out_of_range", "1969-12-31T00:00:00Z is not within 1970 to 9000")],
            id="too early",
        ),
        pytest.param(
            ("accounts", 0, "shared_pool"),
            [],
            [("not_an_object", "[] is not a JSON object; write {…}")],
            id="no object",
        ),
        pytest.param(
            ("intervals", 0),
            "x" * 70,
            [("not_an_object", f'"{"x" * 56}… is not a JSON object; write {{…}}')],
            id="a long text is cut",
        ),
        pytest.param(
            ("intervals", 0),
            "ö" * 59,
            [("not_an_object", f'"{"ö" * 56}… is not a JSON object; write {{…}}')],
            id="a text is cut at sixty",
        ),
        pytest.param(
            ("intervals", 0),
            "ö" * 58,
            [("not_an_object", f'"{"ö" * 58}" is not a JSON object; write {{…}}')],
            id="sixty are shown",
        ),
        pytest.param(
            ("revisions", 0, "lines", 0, "burst"),
            "x",
            [("not_a_count", f'"x" {NO_COUNT}')],
            id="a burst that nobody bills",
        ),
        pytest.param(
            ("revisions", 0, "lines"),
            {},
            [("not_a_list", "{} is not a list; write […]")],
            id="no list",
        ),
        *(
            pytest.param(
                ("intervals", 0, "gpus"), value, [("not_a_count", f"{text} {NO_COUNT}")], id=text
            )
            for value, text in ((True, "true"), (1.5, "1.5"), (-1, "-1"), (10**9 + 1, "1000000001"))
        ),
        *(
            pytest.param(
                ("rates", 0, "burst"),
                value,
                [("not_an_amount", f'{text} is not an amount; write it like "2.50"')],
                id=f"{text} for a price",
            )
            for value, text in ((2.5, "2.5"), ("dear", '"dear"'), ("NaN", '"NaN"'))
        ),
        pytest.param(
            ("rates", 0, "burst"),
            "0.123456789",
            [("too_precise", "0.123456789 has more than 8 decimals")],
            id="nine decimals",
        ),
        pytest.param(
            ("rates", 0, "burst"),
            "-1",
            [("out_of_range", "-1 is not within 0 up to a billion")],
            id="below zero",
        ),
        pytest.param(
            ("rates", 0, "committed"),
            "1000000001",
            [("out_of_range", "1000000001 is not within 0 up to a billion")],
            id="above a billion",
        ),
        pytest.param(
            ("rates", 0, "committed"),
            "1E+1000000",
            [("out_of_range", "1E+1000000 is not within 0 up to a billion")],
            id="above all that is counted with",
        ),
        pytest.param(
            ("rates", 0, "lending_credit"),
            "1.1",
            [("out_of_range", "1.1 is not within 0 to 1")],
            id="more than all",
        ),
        pytest.param(
            ("rates", 0, "from"),
            "2026-05-01T02:30:00+02:00",
            [
                (
                    "not_a_whole_hour",
                    "2026-05-01T00:30:00Z is not a whole UTC hour; a rate begins on one",
                )
            ],
            id="within an hour",
        ),
        pytest.param(
            ("intervals", 0, "end"),
            "2026-05-04T09:59:59Z",
            [("before_start", "train-1 ends before it starts; correct the times")],
            id="ends before its start",
        ),
    ],
)
def test_fault_of_a_value_is_told_in_full(place, value, want):
    field = ".".join(str(part) for part in place)
    found = faults_of(changed(*place, value=value))
    assert found == [Fault(field, code, message) for code, message in want]


@pytest.mark.parametrize(
    ("place", "value", "want"),
    [
        pytest.param(
            ("accounts",),
            [],
            [
                unknown(f"workspaces.{at}.account", "acme", "account", "there is none")
                for at in (0, 1)
            ],
            id="no accounts",
        ),
        pytest.param(
            ("accounts",),
            [{"name": "acme", "shared_pool": {}}] * 2,
            [("accounts.1.name", "repeated", "the account acme is listed twice; keep one")],
            id="an account twice",
        ),
        pytest.param(
            ("workspaces", 1, "name"),
            "vision",
            [
                (
                    "workspaces.1.name",
                    "repeated",
                    "the workspace vision is listed twice; keep one",
                ),
                unknown("revisions.1.workspace", "speech", "workspace", "there are vision"),
            ],
            id="a workspace twice",
        ),
        pytest.param(
            ("revisions", 0, "lines"),
            [LINE, LINE],
            [("revisions.0.lines.1.flavor", "repeated", "h100 has two lines; keep one")],
            id="a flavor twice",
        ),
        pytest.param(
            ("rates",),
            [RATE, RATE],
            [("rates.1.from", "repeated", "h100 has another rate from then on; keep one")],
            id="a rate twice",
        ),
        pytest.param(
            ("platform_pools",),
            [POOL, POOL],
            [
                (
                    "platform_pools.1.accounts",
                    "in_two_pools",
                    "acme is in another platform pool; keep one",
                )
            ],
            id="two pools",
        ),
        pytest.param(
            ("platform_pools",),
            [{"accounts": ["acme", "beta"], "gpus": {"l4": -1}}],
            [
                unknown("platform_pools.0.accounts.1", "beta", "account", "there are acme"),
                ("platform_pools.0.gpus.l4", "not_a_count", f"-1 {NO_COUNT}"),
            ],
            id="a pool of strangers",
        ),
        pytest.param(
            ("intervals", 0, "workspace"),
            "none",
            [unknown("intervals.0.workspace", "none", "workspace", "there are speech, vision")],
            id="an unknown workspace",
        ),
    ],
)
def test_faults_between_values_are_told_in_full(place, value, want):
    assert faults_of(changed(*place, value=value)) == [Fault(*fault) for fault in want]


def test_keys_that_are_missing_are_told_each_once():
    keys = ["currency", "period", "accounts", "workspaces", "revisions", "rates", "intervals"]
    assert faults_of({}) == [
        Fault(key, "missing", f"the key {key!r} is missing; add it") for key in keys
    ]
    assert faults_of(3) == [Fault("", "not_an_object", "3 is not a JSON object; write {…}")]
    bare = {**example(), "revisions": [{}], "rates": [{}], "intervals": [{}], "accounts": [{}]}
    bare |= {"workspaces": [{}], "period": {}, "platform_pools": [{}]}
    want = {
        "period": ["start", "end"],
        "accounts.0": ["name"],
        "workspaces.0": ["name", "account"],
        "platform_pools.0": ["accounts"],
        "revisions.0": ["workspace", "from", "lines"],
        "rates.0": ["flavor", "from", "committed", "burst", "lending_credit"],
        "intervals.0": ["uid", "workspace", "flavor", "gpus", "admitted", "start"],
    }
    assert [(fault.field, fault.code) for fault in faults_of(bare)] == [
        (f"{place}.{key}", "missing") for place, keys in want.items() for key in keys
    ]


def test_record_is_read_as_what_the_meter_and_the_charges_take():
    record = example()
    del record["name"]
    record["accounts"][0]["shared_pool"] = {"h100": 3}
    record["platform_pools"] = [{"accounts": ["acme"], "gpus": {"l4": 2}}]
    record["revisions"][1]["lines"][0]["lendable"] = None
    record["period"]["start"] = "2026-05-04T12:00:00+02:00"
    record["intervals"][0] |= {"end": "2026-05-04T10:30:00Z", "admitted": "2026-05-04T09:00:00Z"}
    ledger = read_ledger(record)
    ten, may = hours(64 * 24 + 10), hours(61 * 24)
    assert (ledger.name, ledger.window) == ("ledger", Period(ten, hours(64 * 24 + 11)))
    assert ledger.held == (
        Held("train-1", "vision", "h100", 8, hours(64 * 24 + 9), ten, hours(64 * 24 + 10.5)),
    )
    assert ledger.revisions == (
        Revision("vision", may, {"h100": Floor(4, 4)}),
        Revision("speech", may, {"h100": Floor(8, None)}),
    )
    assert ledger.pools == Pools(
        {"vision": "acme", "speech": "acme"},
        (AccountPool("acme", (PoolChange(None, {"h100": 3}),)),),
        (SharedPool(frozenset({"acme"}), (PoolChange(None, {"l4": 2}),)),),
    )
    price = Rate("h100", may, Decimal("2.00"), Decimal("3.00"), Decimal("0.5"))
    assert (ledger.rate_card.currency, ledger.rate_card.rate_at("h100", ten)) == ("EUR", price)
    assert read_ledger(example()).name == "two workspaces, one lends"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        pytest.param(("rates", 0, "burst"), "0.12345678", id="eight decimals"),
        pytest.param(("rates", 0, "burst"), "1000000000", id="a billion for a price"),
        pytest.param(("rates", 0, "committed"), "0", id="for nothing"),
        pytest.param(("rates", 0, "lending_credit"), "1", id="all goes back"),
        pytest.param(("intervals", 0, "gpus"), 0, id="no GPU"),
        pytest.param(("intervals", 0, "gpus"), 10**9, id="a billion GPUs"),
        pytest.param(("intervals", 0, "end"), "2026-05-04T10:00:00Z", id="over as it starts"),
        pytest.param(("period", "start"), "1970-01-01T00:00:00Z", id="the first year"),
        pytest.param(("period", "end"), "9000-12-31T00:00:00Z", id="the last year"),
        pytest.param(("platform_pools",), None, id="no pools"),
    ],
)
def test_bounds_themselves_are_within(place, value):
    assert read_ledger(changed(*place, value=value)).name == "two workspaces, one lends"


def test_empty_name_is_told_once_and_is_not_looked_up():
    found = faults_of(changed("intervals", 0, "workspace", value=""))
    assert found == [
        Fault("intervals.0.workspace", "not_a_text", '"" is not a text; write a name in quotes')
    ]


@pytest.mark.parametrize("value", [{}, {"a": None}, {"a": True}, {"a": {"b": -1}}, 5])
def test_reader_stands_in_for_what_is_wrong_and_tells_each_once(value):
    faults: list[Fault] = []
    reader = Reader(value, path="rows.0", faults=faults)
    told = len(faults)
    assert told == (0 if isinstance(value, dict) else 1)
    found = [
        reader.text("a"),
        reader.known("a", ("x",), what="name"),
        reader.count("a"),
        reader.amount("a"),
        reader.moment("a"),
        list(reader.rows("a")),
        reader.texts("a", ("x",), what="name"),
    ]
    assert found == ["", "", 0, Decimal(0), None, [], ()]
    assert [fault.field for fault in faults[told:]] == ["rows.0.a"] * (7 if told == 0 else 0)


def test_reader_gives_a_default_where_nothing_is_said():
    reader = Reader({"a": "x"}, path="", faults=[])
    assert (reader.text("a", default="y"), reader.text("b", default="y")) == ("x", "y")
    assert (reader.has("a"), reader.has("b"), reader.count_or_none("b")) == (True, False, None)
    assert (reader.place("a"), reader.counts("b"), reader.faults) == ("a", {}, [])


def test_rates_that_cannot_be_read_do_not_hide_the_next():
    found = faults_of(changed("rates", value=[{**RATE, "from": wrong} for wrong in (5, "x")]))
    assert [fault.field for fault in found] == ["rates.0.from", "rates.1.from"]
    late = "2026-05-01T00:30:00Z"
    found = faults_of(changed("rates", value=[{**RATE, "from": late}] * 2))
    assert [fault.field for fault in found] == ["rates.0.from", "rates.1.from"]


def test_eight_choices_are_shown_at_most():
    names = [f"w{at}" for at in range(9)]
    rows = [{"name": name, "account": "acme"} for name in names]
    record = {**changed("workspaces", value=rows), "revisions": [], "intervals": []}
    record["revisions"] = [{"workspace": "x", "from": "2026-05-01T00:00:00Z", "lines": []}]
    shown = "there are w0, w1, w2, w3, w4, w5, w6, w7"
    assert faults_of(record) == [Fault(*unknown("revisions.0.workspace", "x", "workspace", shown))]


HOUR = {"hour": "2026-05-04T10:00:00Z", "flavor": "h100"}
FIRST = {"workspace": "speech", "rounding": "0.00", "payable": "14.00"}
SECOND = {"workspace": "vision", "rounding": "0.00", "payable": "20.00"}
SPEECH = {"committed": 28800, "committed_used": 0, "lent": 7200, "idle": 21600, "burst": 0}
VISION = {"committed": 14400, "committed_used": 14400, "lent": 0, "idle": 0, "burst": 14400}
COVER = {"burst": 14400, "from_pool": 0, "borrowed": 7200, "from_platform": 0, "uncovered": 7200}
GOT = {
    "hours": [
        {**HOUR, "workspace": "speech", **SPEECH},
        {**HOUR, "workspace": "vision", **VISION},
    ],
    "accounts": [{**HOUR, "account": "acme", **COVER}],
    "workloads": [{"uid": "train-1", "committed": 14400, "burst": 14400}],
    "lines": [
        {
            "workspace": workspace,
            "flavor": "h100",
            "kind": kind,
            "gpu_seconds": seconds,
            "amount": amount,
        }
        for workspace, kind, seconds, amount in (
            ("speech", "floor", 28800, "16.00"),
            ("speech", "lending_credit", 7200, "-2.00"),
            ("vision", "burst", 14400, "12.00"),
            ("vision", "floor", 14400, "8.00"),
        )
    ],
    "totals": [FIRST, SECOND],
    "platform_funding": "2.00",
}


def test_example_comes_to_this_in_full():
    assert work_out(read_ledger(example())) == GOT


def test_job_that_was_admitted_twice_stands_there_once():
    record = example()
    (first,) = record["intervals"]
    half = "2026-05-04T10:30:00Z"
    record["intervals"] = [{**first, "end": half}, {**first, "start": half, "flavor": "l4"}]
    assert work_out(read_ledger(record))["workloads"] == [
        {"uid": "train-1", "committed": 7200, "burst": 7200 + 14400}
    ]


NO_ROWS = "a list of objects was expected here"


@pytest.mark.parametrize(
    ("want", "told"),
    [
        pytest.param(GOT, [], id="the same"),
        pytest.param({"totals": [SECOND, FIRST]}, [], id="in another order"),
        pytest.param({}, [], id="nothing is compared"),
        pytest.param(3, [("expect", 3, "a JSON object was expected here")], id="no object"),
        pytest.param({"hours": 3}, [("hours", 3, NO_ROWS)], id="no rows"),
        pytest.param({"hours": [3]}, [("hours", [3], NO_ROWS)], id="rows that are none"),
        pytest.param(
            {"platform_funding": "9.00", "totals": [FIRST, {**SECOND, "payable": "1.00"}]},
            [
                ("totals vision: payable", "1.00", "20.00"),
                ("platform_funding", "9.00", "2.00"),
            ],
            id="values",
        ),
        pytest.param(
            {"workloads": [{"uid": "train-1", "nodes": 2}]},
            [("workloads train-1: nodes", 2, None)],
            id="a value that nobody works out",
        ),
        pytest.param(
            {"totals": [FIRST, {**SECOND, "workspace": "x"}]},
            [("totals vision", None, SECOND), ("totals x", {**SECOND, "workspace": "x"}, None)],
            id="rows missing and too many",
        ),
        pytest.param(
            {"totals": [FIRST, FIRST, SECOND]},
            [("totals", "3 rows", "2 that differ in key")],
            id="a row twice",
        ),
        pytest.param(
            {"workloads": [], "totals": [FIRST]},
            [
                ("workloads train-1", None, GOT["workloads"][0]),
                ("totals vision", None, SECOND),
            ],
            id="of two lists",
        ),
        pytest.param(
            {"accounts": [{**GOT["accounts"][0], "burst": 0}]},
            [("accounts 2026-05-04T10:00:00Z acme h100: burst", 0, 14400)],
            id="a row of three keys",
        ),
    ],
)
def test_differences_are_told_with_place_wanted_and_got(want, told):
    assert differences(deepcopy(GOT), want) == [LedgerDifference(*row) for row in told]
