"""The command that works ledgers out again, its format, and the recorded ledgers."""

from __future__ import annotations

import gzip
import json
import re
from io import StringIO
from pathlib import Path

import jsonschema
import pytest
from django.core.management import CommandError, call_command
from hypothesis import given, settings

from budgets.charging import LedgerFaults, differences, read_ledger, work_out
from tests.ledger.ledgers import ledgers, recorded

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA = json.loads((DOCS / "ledger.schema.json").read_text(encoding="utf-8"))


def example() -> dict:
    page = (DOCS / "ledger-format.md").read_text(encoding="utf-8")
    return json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])


def wrong(name: str = "wrong") -> dict:
    record = example()
    record["name"] = name
    record["expect"] = {**record["expect"], "platform_funding": "9.00"}
    return record


def replay(path: Path, *arguments: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines on stdout, lines on stderr."""
    out, err, code = StringIO(), StringIO(), 0
    try:
        call_command("replay_ledger", str(path), *arguments, stdout=out, stderr=err)
    except SystemExit as end:
        code = int(end.code or 0)
    except CommandError as error:
        code = error.returncode
        err.write(str(error))
    return code, out.getvalue().splitlines(), err.getvalue().splitlines()


def written(folder: Path, text: str, name: str = "ledger.json") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_recorded_ledgers_all_match():
    code, out, _ = replay(recorded())
    assert (code, out) == (0, ["400 of 400 ledgers match"])


def test_recorded_ledgers_keep_to_the_schema():
    validator = jsonschema.Draft202012Validator(SCHEMA)
    with gzip.open(recorded(), "rt", encoding="utf-8") as lines:
        for line in list(lines)[::10]:
            validator.validate(json.loads(line))


@settings(max_examples=20, database=None)
@given(record=ledgers(longest=4000))
def test_results_keep_to_the_schema(record):
    result = work_out(read_ledger(record))
    jsonschema.validate({**record, "expect": result}, SCHEMA)


def test_example_of_the_page_comes_to_what_it_says(tmp_path):
    record = example()
    jsonschema.validate(record, SCHEMA)
    path = written(tmp_path, json.dumps(record, indent=2))
    assert replay(path) == (0, ["1 of 1 ledgers match"], [])


@pytest.mark.parametrize("is_gzip", [False, True])
def test_json_lines_are_read_plain_and_gzipped(tmp_path, is_gzip):
    text = "\n\n".join([json.dumps(example()), json.dumps(wrong())]).encode()
    path = tmp_path / "ledgers"
    path.write_bytes(gzip.compress(text) if is_gzip else text)
    code, out, _ = replay(path)
    assert code == 1
    assert out == [
        "wrong differs",
        "  platform_funding",
        '    wanted  "9.00"',
        '    got     "2.00"',
        "1 of 2 ledgers match",
    ]


def test_first_difference_stops_there(tmp_path):
    rows = [wrong("first"), wrong("second"), example()]
    rows[0]["expect"]["totals"] = []
    path = written(tmp_path, "\n".join(json.dumps(row) for row in rows))
    code, out, _ = replay(path, "--first-difference")
    assert code == 1
    assert [line for line in out if line.endswith("differs")] == ["first differs"]
    assert sum(line.startswith("    wanted") for line in out) == 1
    assert out[-1] == "0 of 1 ledgers match"


def test_json_prints_what_each_comes_to_and_nothing_else(tmp_path):
    record = example()
    del record["expect"]
    code, out, err = replay(written(tmp_path, json.dumps(record)), "--json")
    (printed,) = [json.loads(line) for line in out]
    assert code == 0
    assert printed.pop("name") == record["name"]
    assert printed == work_out(read_ledger(record))
    assert err == ["0 of 0 ledgers match"]


def test_faults_of_a_record_are_told_at_once_and_the_others_go_on(tmp_path):
    bad = example()
    bad["currency"] = "Taler"
    bad["period"]["start"] = "2026-05-04T10:00:00"
    bad["rates"][0]["from"] = "2026-05-01T00:30:00Z"
    bad["intervals"][0]["gpus"] = 1.5
    del bad["workspaces"][0]["account"]
    text = "\n".join(json.dumps(row) for row in (bad, example()))
    code, out, err = replay(written(tmp_path, text))
    assert code == 2
    assert out == ["1 of 1 ledgers match"]
    assert [line.split(": ")[1] for line in err] == [
        "currency",
        "period.start",
        "workspaces.0.account",
        "rates.0.from",
        "intervals.0.gpus",
    ]
    assert all(line.startswith("line 1: ") for line in err)


@pytest.mark.parametrize(
    ("place", "value", "want"),
    [
        pytest.param(("period", "end"), "2026-05-04T10:00:00Z", "not_after_start", id="empty"),
        pytest.param(("period", "end"), "2026-05-04T10:00:00.5Z", "not_whole", id="half second"),
        pytest.param(("period", "end"), 5, "not_a_time", id="a number for a time"),
        pytest.param(("period", "end"), "9999-01-01T00:00:00Z", "out_of_range", id="too late"),
        pytest.param(("accounts", 0, "name"), "", "not_a_text", id="empty name"),
        pytest.param(("accounts", 0, "shared_pool"), {"h100": -1}, "not_a_count", id="negative"),
        pytest.param(("workspaces", 1, "name"), "vision", "repeated", id="twice"),
        pytest.param(("revisions", 0, "workspace"), "x", "unknown", id="unknown workspace"),
        pytest.param(("revisions", 0, "lines"), {}, "not_a_list", id="no list"),
        pytest.param(("rates", 0, "burst"), 2.5, "not_an_amount", id="a number for a price"),
        pytest.param(("rates", 0, "burst"), "NaN", "not_an_amount", id="not a number"),
        pytest.param(("rates", 0, "burst"), "0.123456789", "too_precise", id="nine decimals"),
        pytest.param(("rates", 0, "burst"), "-1", "out_of_range", id="negative price"),
        pytest.param(("rates", 0, "lending_credit"), "1.1", "out_of_range", id="more than all"),
        pytest.param(("intervals", 0, "gpus"), True, "not_a_count", id="a truth for a count"),
        pytest.param(("intervals", 0), [], "not_an_object", id="no object"),
        pytest.param(
            ("platform_pools",),
            [{"accounts": ["acme"], "gpus": {}}] * 2,
            "in_two_pools",
            id="two pools",
        ),
        pytest.param(
            ("intervals", 0, "end"), "2026-05-04T09:00:00Z", "before_start", id="negative"
        ),
    ],
)
def test_fault_names_its_field_and_reason(place, value, want):
    record = example()
    spot = record
    for key in place[:-1]:
        spot = spot[key]
    spot[place[-1]] = value
    with pytest.raises(LedgerFaults) as refused:
        read_ledger(record)
    assert want in {fault.code for fault in refused.value.faults}
    path = ".".join(str(part) for part in place)
    assert any(fault.field.startswith(path) for fault in refused.value.faults)


@pytest.mark.parametrize("text", ["{}", "[]", "3", "null", '{"period": NaN}', "{", "[" * 100_000])
def test_text_that_is_no_ledger_is_told_without_a_traceback(tmp_path, text):
    code, out, err = replay(written(tmp_path, text))
    assert code == 2
    assert out == ["0 of 0 ledgers match"]
    assert err


@pytest.mark.parametrize("raw", [b"", b"\n", b"\xff\xfe{", b"\x1f\x8bno gzip", b"\x1f\x8b\x08\x00"])
def test_file_that_cannot_be_read_is_told_without_a_traceback(tmp_path, raw):
    path = tmp_path / "ledger"
    path.write_bytes(raw)
    code, _, err = replay(path)
    assert code == 2
    assert str(path) in err[0]
    assert replay(tmp_path / "none")[0] == 2


def test_database_is_not_touched(tmp_path):
    # No database mark: a query would raise.
    assert replay(written(tmp_path, json.dumps(example())))[0] == 0


def test_differences_name_rows_that_are_missing_or_too_many():
    got = work_out(read_ledger(example()))
    want = {**got, "totals": [got["totals"][0], {**got["totals"][1], "workspace": "x"}]}
    assert {found.place for found in differences(got, want)} == {"totals vision", "totals x"}
    repeated = {"totals": [got["totals"][0]] * 2}
    assert [found.place for found in differences(got, repeated)] == ["totals", "totals vision"]
    assert differences(got, "nothing")[0].place == "expect"
    assert differences(got, {"hours": 3})[0].place == "hours"
