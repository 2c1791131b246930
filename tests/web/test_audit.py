"""The audit log: its filters, and its files with the rows of the page."""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Iterator

import pytest
import time_machine

from budgets import services
from budgets.models import AuditEntry
from budgets.services.alerts import stream_audit
from tests.web.conftest import Visitors

LOG = importlib.import_module("budgets.selectors.audit")
FILTERS = {
    "actor_name=fin": "x:finance",
    "subject=X%3AOBJ": "x:object",
    "account=globex": "x:account",
    "workspace=acme-speech": "x:workspace",
    "cluster=gpu-west": "x:cluster",
    "action=pool.": "x:action",
    "start=2026-03-30&until=2026-03-30": "x:day",
}
BROKEN = ("account=nobody", "start=yesterday", "until=0001-01-01", "workspace=no", "before=x")


@pytest.fixture
def log(visitors: Visitors) -> Iterator[Visitors]:
    """One entry that each filter finds alone, all of one afternoon but that of its day."""
    fleet = visitors.fleet
    with time_machine.travel("2026-03-25T12:00:00Z", tick=False):
        services.audit(None, "test.x", "x:none")
        services.audit(fleet.finance, "test.x", "x:finance")
        services.audit(None, "test.x", "x:object")
        services.audit(None, "test.x", "x:account", account=fleet.globex)
        services.audit(None, "test.x", "x:workspace", workspace=fleet.speech)
        services.audit(None, "test.x", "x:cluster", cluster="gpu-west")
        services.audit(None, "pool.x", "x:action")
    with time_machine.travel("2026-03-30T23:59:59Z", tick=False):
        services.audit(None, "test.x", "x:day")
        yield visitors


def subjects(visitors: Visitors, query: str, role: str = "admin") -> list[str]:
    rows = visitors[role].get(f"/audit/?{query}").context["entries"]
    return [row["entry"].subject for row in rows if row["entry"].subject.startswith("x:")]


def in_file(visitors: Visitors, query: str, role: str = "admin") -> list[dict]:
    answer = visitors[role].get(f"/audit/?{query}&format=jsonl")
    assert answer["Content-Type"] == "application/x-ndjson"
    return [json.loads(line) for line in b"".join(answer).decode().splitlines()]


@pytest.mark.parametrize("query", FILTERS)
def test_each_filter_finds_what_is_asked_for_and_nothing_else(log: Visitors, query: str):
    assert len(subjects(log, "")) == 8
    assert subjects(log, query) == [FILTERS[query]]


@pytest.mark.parametrize("role", ["admin", "auditor", "owner", "stranger", "nobody"])
def test_files_have_the_rows_of_the_page_in_its_order(log: Visitors, role: str):
    for query in ("", *FILTERS):
        page = log[role].get(f"/audit/?{query}")
        if page.status_code == 422:  # an account or a workspace that is not theirs
            assert log[role].get(f"/audit/?{query}&format=csv").status_code == 422
            continue
        want = [row["entry"].pk for row in page.context["entries"]]
        assert len(want) < 50, "all are on one page"
        assert [row["id"] for row in in_file(log, query, role)] == want
        text = b"".join(log[role].get(f"/audit/?{query}&format=csv")).decode()
        [head, *rows] = csv.reader(io.StringIO(text))
        assert head == list(LOG.AUDIT_KEYS)
        assert [int(row[0]) for row in rows] == want


def test_a_file_has_all_pages(log: Visitors, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(LOG, "_CHUNK", 3)
    found = [row["id"] for row in in_file(log, "")]
    assert found == list(AuditEntry.objects.order_by("-pk").values_list("pk", flat=True))


def test_an_owners_file_has_what_they_see_alone(log: Visitors):
    services.audit(None, "test.x", "x:vision", workspace=log.fleet.vision)
    found = in_file(log, "", "owner")
    assert {row["workspace"] for row in found} == {"acme-vision"}
    assert "x:account" not in {row["subject"] for row in found}


def test_more_than_a_file_holds_is_refused_before_its_first_row(
    log: Visitors, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(LOG, "_CHUNK", 2)
    monkeypatch.setattr(LOG, "FILE_MOST", 6)
    for form in ("csv", "jsonl"):
        answer = log["admin"].get(f"/audit/?format={form}")
        assert answer.status_code == 400 and b"More than 6 entries fit" in answer.content
    assert len(in_file(log, "actor_name=fin")) >= 1


def test_no_cell_of_a_file_is_a_formula(log: Visitors):
    services.audit(None, "test.x", "=cmd|' /C calc'!A0", reason="@SUM(1)", after={"x": "=1"})
    text = b"".join(log["admin"].get("/audit/?format=csv")).decode()
    row = next(csv.DictReader(io.StringIO(text)))
    assert (row["subject"][:2], row["reason"][:2]) == ("'=", "'@")
    assert all(not cell or cell[0] not in "=@+\t" for cell in row.values())
    assert in_file(log, "subject=cmd")[0]["subject"] == "=cmd|' /C calc'!A0"


@pytest.mark.parametrize("query", BROKEN)
def test_a_filter_that_cannot_be_read_hands_out_nothing(log: Visitors, query: str):
    for form in ("", "&format=csv", "&format=jsonl"):
        answer = log["admin"].get(f"/audit/?{query}{form}")
        assert answer.status_code == 422
        assert "entries" not in answer.context


def test_days_are_those_of_the_reader(log: Visitors):
    log.users["admin"].time_zone = "Asia/Tokyo"
    log.users["admin"].save()
    assert subjects(log, "start=2026-03-30&until=2026-03-30") == []
    assert subjects(log, "start=2026-03-31&until=2026-03-31") == ["x:day"]


def test_older_entries_are_shown_to_nobody_and_stay(log: Visitors, settings):
    settings.PORTAL_AUDIT_DAYS = 400
    with time_machine.travel("2027-05-01T00:00:00Z", tick=False):
        for role in ("admin", "auditor", "owner"):
            log.clients.clear()
            assert subjects(log, "", role) in (["x:day"], [])
            found = {row["subject"] for row in in_file(log, "", role)}
            assert not found & {*FILTERS.values(), "x:none"} - {"x:day"}
    assert AuditEntry.objects.filter(subject="x:none").exists()


def test_platform_roles_read_how_far_receivers_have_the_log(log: Visitors, settings):
    settings.PORTAL_AUDIT_SYSLOG = "tcp://127.0.0.1:1"
    stream_audit()
    for role, want in (("admin", True), ("auditor", True), ("owner", False)):
        text = log.text(role, "/audit/")
        assert ("syslog lacks every entry after 0: no syslog at 127.0.0.1:1" in text) is want


def test_times_of_a_file_are_in_utc(log: Visitors):
    [row] = in_file(log, "subject=x:day")
    assert row["at"] == "2026-03-30T23:59:59Z"
