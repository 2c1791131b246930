"""Exports as long work: what is in the files, who gets them, what happens when work goes wrong."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from datetime import timedelta
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
import time_machine
from django.db import OperationalError
from django.test import Client

from budgets import services, tasks
from budgets.charging import RowKind
from budgets.errors import Rejected
from budgets.exports.focus import Version
from budgets.exports.focus.check import check_file
from budgets.exports.focus.reading import open_focus
from budgets.models import (
    AuditEntry,
    Export,
    JobLabel,
    Membership,
    Operation,
    RateCard,
    Role,
    UsageLabel,
)
from budgets.selectors.billing import charge_lines, month_of
from budgets.selectors.exports import listing as reads
from budgets.services.exports import runs as exports
from budgets.services.exports.plans import MOST_WAITING, request_export
from tests.exports.conftest import HOURS, NOW, USED, Billed
from tests.exports.xlsx_reading import sheets_of

pytestmark = pytest.mark.django_db


def rows_of(billed: Billed, export: Export) -> list[dict[str, str]]:
    with billed.path(export).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_charges_file_has_the_rows_and_sums_of_the_statement(billed: Billed):
    export = billed.export(billed.fleet.finance)

    rows = rows_of(billed, export)
    want = list(charge_lines(billed.fleet.finance, period=month_of("2026-03")))
    assert export.operation.state == Operation.State.DONE
    assert export.rows == len(rows) == len(want)
    assert [row["amount"] for row in rows] == [f"{row.amount:f}" for row in want]
    assert [row["exact_amount"] for row in rows] == [str(row.exact) for row in want]
    assert sum(Decimal(row["amount"]) for row in rows) == sum(row.amount for row in want)


@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("shape", ["csv", "parquet", "jsonl"])
def test_focus_file_passes_our_checker_and_sums_to_the_payables(billed: Billed, version, shape):
    finance = billed.fleet.finance
    payables: dict[str, Decimal] = defaultdict(Decimal)
    for row in charge_lines(finance, period=month_of("2026-03")):
        payables[f"PROVISIONAL-{row.account or 'platform'}-2026-03"] += row.amount

    export = billed.export(finance, dataset=f"focus-{version}", format=shape)

    with open_focus(billed.path(export)) as opened:
        assert list(check_file(opened, version, payables=payables)) == []
    assert export.rows > 2 * HOURS * 4


def test_focus_rows_name_revision_workload_and_completeness(billed: Billed):
    export = billed.export(billed.fleet.finance, dataset="focus-1.4")

    rows = rows_of(billed, export)
    used = [row for row in rows if row["CommitmentDiscountStatus"] == "Used"]
    assert {row["CommitmentDiscountId"] for row in used} == {
        "budget/acme-vision/1/h100",
        "budget/globex-search/1/h100",
    }
    assert {row["ResourceName"] for row in used} == {"'=train"}
    assert {row["ResourceId"] for row in used} == {
        "workload/gpu-east/uid-vision",
        "workload/gpu-east/uid-search",
    }
    assert [row["x_MeterCompleteness"] for row in used[:HOURS]] == [
        *["complete"] * 3,
        *["partial"] * 2,
    ]
    funding = [row for row in rows if row["BillingAccountId"] == "platform"]
    assert sum(Decimal(row["BilledCost"]) for row in funding) > 0


def test_every_format_has_the_same_figures(billed: Billed):
    made = {
        shape: billed.export(billed.fleet.finance, format=shape)
        for shape in ("csv", "jsonl", "parquet", "xlsx")
    }

    want = [row["amount"] for row in rows_of(billed, made["csv"])]
    lines = billed.path(made["jsonl"]).read_text().splitlines()
    assert [json.loads(line)["amount"] for line in lines] == want
    table = pq.read_table(billed.path(made["parquet"]))
    assert table["amount"].to_pylist() == [Decimal(text) for text in want]
    sheet = sheets_of(billed.path(made["xlsx"]))["charges"]
    at = sheet[0].index("amount")
    assert sheet[0][at + 1] == "amount (exact)"
    assert [row[at + 1] for row in sheet[1:]] == want
    assert [f"{row[at]:.2f}" for row in sheet[1:]] == want


def test_usage_file_has_whole_gpu_seconds(billed: Billed):
    export = billed.export(billed.fleet.finance, dataset="usage")

    rows = rows_of(billed, export)
    assert len(rows) == 2 * HOURS
    assert rows[0] == {
        "account": "acme",
        "workspace": "acme-vision",
        "flavor": "h100",
        "start": "2026-03-01T00:00:00Z",
        "end": "2026-03-01T01:00:00Z",
        "committed": "57600",
        "committed_used": "36001",
        "lent": "7200",
        "idle": "14399",
        "burst": "5003",
        "borrowed": "0",
        "pending": "0",
    }


def test_charges_by_job_add_up_to_those_by_hour_and_names_are_no_formulas(billed: Billed):
    by_hour = rows_of(billed, billed.export(billed.fleet.finance))
    export = billed.export(billed.fleet.finance, dataset="jobs")
    by_job = rows_of(billed, export)

    def sums(rows: list[dict[str, str]]) -> dict[str, Decimal]:
        found: dict[str, Decimal] = {}
        for row in rows:
            key = f"{row['workspace']} {row['flavor']} {row['kind']}"
            found[key] = found.get(key, Decimal(0)) + Decimal(row["amount"])
        return found

    assert sums(by_job) == sums(by_hour)
    jobs = [row for row in by_job if row["uid"]]
    assert {row["uid"] for row in jobs} == {"uid-vision", "uid-search"}
    assert {row["job"] for row in jobs} == {"'=train"}
    (floor,) = [row for row in jobs if (row["uid"], row["kind"]) == ("uid-vision", "floor")]
    assert floor["gpu_seconds"] == str(HOURS * USED)
    assert (floor["start"], floor["end"]) == ("2026-03-01T00:00:00Z", "2026-03-01T05:00:00Z")
    assert export.about["notes"][0].startswith("The amounts of a statement's rows add up")


def test_an_owner_gets_charges_by_job_of_own_workspaces(billed: Billed):
    export = billed.export(billed.fleet.owner, dataset="jobs")

    assert {row["workspace"] for row in rows_of(billed, export)} == {"acme-vision"}


def name_team(billed: Billed, value: str = "red") -> UsageLabel:
    """The label *team*, of which the job of acme-vision says something."""
    label = services.name_label(billed.fleet.admin, key="team", reason="asked for by research")
    JobLabel.objects.create(label=label, cluster="gpu-east", uid="uid-vision", value=value)
    return label


def test_charges_by_job_have_a_column_for_each_label_in_every_format(billed: Billed):
    name_team(billed)
    services.name_label(billed.fleet.admin, key="example.org/cost-centre", reason="asked for")
    made = {
        shape: billed.export(billed.fleet.finance, dataset="jobs", format=shape)
        for shape in ("csv", "jsonl", "parquet", "xlsx")
    }

    rows = rows_of(billed, made["csv"])
    assert list(rows[0])[-2:] == ["label:team", "label:example.org/cost-centre"]
    want = [row["label:team"] for row in rows]
    assert {row["uid"]: row["label:team"] for row in rows} == {
        "uid-vision": "red", "uid-search": "", "": ""
    }  # fmt: skip
    assert {row["label:example.org/cost-centre"] for row in rows} == {""}
    lines = map(json.loads, billed.path(made["jsonl"]).read_text().splitlines())
    assert [row["label:team"] or "" for row in lines] == want
    column = pq.read_table(billed.path(made["parquet"]))["label:team"].to_pylist()
    assert [value or "" for value in column] == want
    head, *sheet = sheets_of(billed.path(made["xlsx"]))["jobs"]
    at = head.index("label:team")
    assert [(row[at] if len(row) > at else None) or "" for row in sheet] == want


def test_what_jobs_say_by_a_label_is_no_formula_in_a_file(billed: Billed):
    name_team(billed, value="=1+1")  # which the portal does not keep: the file guards itself
    csv_file = billed.export(billed.fleet.finance, dataset="jobs")
    told = {row["uid"]: row["label:team"] for row in rows_of(billed, csv_file)}
    assert told["uid-vision"] == "'=1+1"
    book = billed.export(billed.fleet.finance, dataset="jobs", format="xlsx")
    assert any("=1+1" in row for row in sheets_of(billed.path(book))["jobs"]), "as a text"


def test_a_label_is_chosen_like_any_column_until_it_is_dropped(billed: Billed):
    label = name_team(billed)
    wanted = {"dataset": "jobs", "columns": ["label:team", "amount"]}
    rows = rows_of(billed, billed.export(billed.fleet.owner, **wanted))
    assert {row["label:team"] for row in rows} == {"red", ""} and len(rows[0]) == 2

    client = Client()
    client.force_login(billed.fleet.owner)
    assert "label:team" in client.get("/exports/?dataset=jobs").content.decode()
    assert "label:team" not in client.get("/exports/?dataset=charges").content.decode()
    asked = {"format": "csv", "period": "2026-03", **wanted}
    told = client.post("/api/v1/exports/preview", asked, content_type="application/json").json()
    assert told["names"] == ["label:team", "amount"]
    assert {row[0] for row in told["rows"]} == {"red", ""}

    services.drop_label(billed.fleet.admin, label=label)
    with pytest.raises(Rejected, match="'label:team' is not a column of jobs"):
        billed.export(billed.fleet.owner, **wanted)


def test_label_names_filter_zone_completeness_and_rate_cards(billed: Billed):
    export = billed.export(billed.fleet.finance, account="acme", columns=["workspace", "amount"])

    assert export.about["filter"] == {
        "period": "2026-03",
        "account": "acme",
        "workspace": "all visible",
        "columns": "workspace, amount",
        "seen by": "fin",
    }
    assert export.about["time_zone"] == "UTC"
    assert export.about["complete_until"] == "2026-03-01T03:00:00Z"
    assert export.about["late_clusters"] == ["gpu-east"]
    assert export.about["rate_cards"] == [str(RateCard.objects.get().pk)]
    assert export.about["rows"] == export.rows
    assert list(rows_of(billed, export)[0]) == ["workspace", "amount"]


def test_parquet_and_xlsx_hold_the_label(billed: Billed):
    parquet = billed.export(billed.fleet.finance, format="parquet")
    xlsx = billed.export(billed.fleet.finance, format="xlsx")

    metadata = pq.read_metadata(billed.path(parquet)).metadata
    assert json.loads(metadata[b"gpu_budget_portal.about"])["rows"] == parquet.rows
    about = dict(sheets_of(billed.path(xlsx))["About"])
    assert about["Filter: period"] == "2026-03"
    assert about["Rows"] == str(xlsx.rows)


def test_owner_gets_own_workspaces_and_finance_everything(billed: Billed):
    owner = billed.export(billed.fleet.owner)
    finance = billed.export(billed.fleet.finance)

    assert {row["workspace"] for row in rows_of(billed, owner)} == {"acme-vision"}
    assert {row["account"] for row in rows_of(billed, finance)} == {"", "acme", "globex"}
    assert owner.scope == [billed.fleet.vision.pk]
    assert finance.scope is None


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"dataset": "invoices"}, "dataset"),
        ({"format": "pdf"}, "format"),
        ({"period": "2026-13"}, "period"),
        ({"period": "March"}, "period"),
        ({"period": "2026-04"}, "period"),
        ({"zone": "Mars/Olympus"}, "period"),
        ({"account": "globex"}, "account"),
        ({"workspace": "globex-search"}, "workspace"),
        ({"columns": ["amount", "secret"]}, "columns"),
        ({"columns": ["amount", "amount"]}, "columns"),
    ],
)
def test_request_that_cannot_be_met_is_rejected_at_its_field(billed: Billed, wanted, field):
    asked = {"dataset": "charges", "format": "csv", "period": "2026-03", **wanted}

    with time_machine.travel(NOW, tick=False), pytest.raises(Rejected) as rejected:
        request_export(billed.fleet.owner, **asked)

    assert [fault.field for fault in rejected.value.faults] == [field]
    assert not Export.objects.exists()


def test_request_names_everything_that_is_wrong_at_once(billed: Billed):
    with time_machine.travel(NOW, tick=False), pytest.raises(Rejected) as rejected:
        request_export(billed.fleet.owner, dataset="x", format="y", period="z")

    assert [fault.field for fault in rejected.value.faults] == ["dataset", "format", "period"]


def test_person_without_a_workspace_has_nothing_to_export(billed: Billed):
    stranger = billed.person("nina", Role.VIEWER, workspace=billed.fleet.search)
    Membership.objects.filter(user=stranger).delete()

    with pytest.raises(Rejected, match="nothing to export"):
        request_export(stranger, dataset="usage", format="csv", period="2026-03")


def test_one_person_has_at_most_five_waiting(billed: Billed):
    asked = {"dataset": "usage", "format": "csv", "period": "2026-03"}
    with time_machine.travel(NOW, tick=False):
        for _ in range(MOST_WAITING):
            request_export(billed.fleet.owner, **asked)
        with pytest.raises(Rejected, match="still being written"):
            request_export(billed.fleet.owner, **asked)


def test_request_is_audited(billed: Billed):
    export = billed.export(billed.fleet.finance)

    entry = AuditEntry.objects.get(action="export.request")
    assert entry.subject == f"export:{export.pk}"
    assert entry.after["dataset"] == "charges"


def test_file_is_gone_for_who_lost_the_role(billed: Billed):
    export = billed.export(billed.fleet.owner)
    assert reads.export_file_for(billed.fleet.owner, export.pk) == export

    Membership.objects.filter(user=billed.fleet.owner).delete()

    with pytest.raises(Export.DoesNotExist):
        reads.export_file_for(billed.fleet.owner, export.pk)


def test_file_of_a_platform_role_is_gone_without_the_role(billed: Billed):
    export = billed.export(billed.fleet.finance)
    Membership.objects.filter(user=billed.fleet.finance).delete()

    with pytest.raises(Export.DoesNotExist):
        reads.export_file_for(billed.fleet.finance, export.pk)


def test_nobody_sees_the_export_of_another(billed: Billed):
    export = billed.export(billed.fleet.owner)

    with pytest.raises(Export.DoesNotExist):
        reads.export_for(billed.fleet.admin, export.pk)


def test_file_expires_and_is_removed(billed: Billed, settings):
    settings.PORTAL_EXPORT_DAYS = 2
    export = billed.export(billed.fleet.finance)
    path = billed.path(export)

    with time_machine.travel(NOW + timedelta(days=1), tick=False):
        assert exports.remove_expired() == 0
    assert path.exists()
    with time_machine.travel(NOW + timedelta(days=2, minutes=1), tick=False):
        assert tasks.run_exports() == {"planned": 0, "written": 0, "removed": 1}
        assert exports.remove_expired() == 0

    assert not path.exists()
    with pytest.raises(Export.DoesNotExist):
        reads.export_file_for(billed.fleet.finance, export.pk)


def waiting(billed: Billed) -> Export:
    with time_machine.travel(NOW, tick=False):
        return request_export(billed.fleet.finance, dataset="usage", format="csv", period="2026-03")


def test_export_of_a_dead_worker_is_taken_over(billed: Billed):
    export = waiting(billed)
    Export.objects.filter(pk=export.pk).update(attempt=1, alive_at=NOW)

    with time_machine.travel(NOW + timedelta(minutes=4), tick=False):
        assert exports.run_exports()["written"] == 0
    with time_machine.travel(NOW + timedelta(minutes=6), tick=False):
        assert exports.run_exports()["written"] == 1

    export.refresh_from_db()
    assert (export.attempt, export.is_ready) == (2, True)


def test_worker_thought_dead_does_not_replace_the_file(billed: Billed, monkeypatch):
    export = waiting(billed)
    digest = exports._sha256

    def taken_over_meanwhile(path):
        Export.objects.filter(pk=export.pk).update(attempt=9)
        return digest(path)

    monkeypatch.setattr(exports, "_sha256", taken_over_meanwhile)
    with time_machine.travel(NOW, tick=True):
        exports.run_exports()

    export.refresh_from_db()
    assert not export.is_ready
    assert list(billed.spool.iterdir()) == []


def test_export_that_never_ends_is_given_up(billed: Billed):
    export = waiting(billed)
    Export.objects.filter(pk=export.pk).update(attempt=exports.MOST_ATTEMPTS)

    with time_machine.travel(NOW, tick=False):
        exports.run_exports()

    export.operation.refresh_from_db()
    assert export.operation.state == Operation.State.FAILED
    assert "3 times" in export.operation.message


def test_export_without_room_fails_with_the_reason_and_leaves_nothing(billed: Billed, settings):
    export = waiting(billed)
    billed.spool.parent.mkdir(exist_ok=True)
    billed.spool.write_text("a file where the folder should be")

    with time_machine.travel(NOW, tick=False):
        exports.run_exports()

    export.operation.refresh_from_db()
    assert export.operation.state == Operation.State.FAILED
    assert "could not be written" in export.operation.message


def test_lost_database_leaves_the_export_waiting(billed: Billed, monkeypatch):
    export = waiting(billed)

    def away(*args, **kwargs):
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(exports, "export_rows", away)
    with time_machine.travel(NOW, tick=False), pytest.raises(OperationalError):
        exports.run_exports()

    export.operation.refresh_from_db()
    assert export.operation.state == Operation.State.RUNNING


def test_progress_is_told_while_it_is_written(billed: Billed, monkeypatch):
    monkeypatch.setattr(exports, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(exports, "TELL_EVERY_FACTS", 1)
    told = []
    advance = exports.advance_operation

    def listen(*args, **kwargs):
        told.append(kwargs.get("done"))
        advance(*args, **kwargs)

    monkeypatch.setattr(exports, "advance_operation", listen)
    export = billed.export(billed.fleet.finance, dataset="charges")

    assert told == [None, *range(1, 2 * HOURS + 1)]
    assert export.operation.total == 2 * HOURS


def test_focus_reads_a_bounded_number_of_queries(billed: Billed, django_assert_max_num_queries):
    export = waiting(billed)
    Export.objects.filter(pk=export.pk).update(dataset="focus-1.2")

    with time_machine.travel(NOW, tick=False), django_assert_max_num_queries(70):
        exports.run_exports()

    export.refresh_from_db()
    assert export.is_ready


def test_kinds_of_the_month_are_all_there(billed: Billed):
    rows = rows_of(billed, billed.export(billed.fleet.finance))

    assert {row["kind"] for row in rows} >= {
        RowKind.FLOOR,
        RowKind.BURST,
        RowKind.LENDING_CREDIT,
        RowKind.LENDING_FUNDING,
    }
