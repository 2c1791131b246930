"""The audit log by API: the filters of the page, and its files."""

from __future__ import annotations

import csv
import io
import json

import pytest

from budgets import services
from tests.api.conftest import People

FILTERS = {
    "actor_name=fin": "x:finance",
    "subject=X:OBJ": "x:object",
    "account=globex": "x:account",
    "workspace=acme-speech": "x:workspace",
    "cluster=gpu-west": "x:cluster",
    "action=test.other": "x:action",
}


@pytest.fixture
def log(people: People) -> People:
    fleet = people.fleet
    services.audit(fleet.finance, "test.x", "x:finance")
    services.audit(None, "test.x", "x:object")
    services.audit(None, "test.x", "x:account", account=fleet.globex)
    services.audit(None, "test.x", "x:workspace", workspace=fleet.speech)
    services.audit(None, "test.x", "x:cluster", cluster="gpu-west")
    services.audit(None, "test.other", "x:action")
    return people


def ours(rows: list[dict]) -> list[str]:
    return [row["subject"] for row in rows if row["subject"].startswith("x:")]


def test_each_filter_of_the_page_is_there(log: People):
    for query, want in FILTERS.items():
        found = log.send("admin", "GET", f"audit?{query}").json()["results"]
        assert ours(found) == [want], query


def test_times_are_half_open(log: People):
    rows = log.send("admin", "GET", "audit?subject=x:").json()["results"]
    at = rows[0]["at"]
    assert log.send("admin", "GET", f"audit?subject=x:&end={at}").json()["results"] == []
    wrong = log.send("admin", "GET", "audit?start=yesterday&end=2026-03-01")
    assert [fault["field"] for fault in wrong.json()["faults"]] == ["start", "end"]


@pytest.mark.parametrize("role", ["admin", "owner"])
@pytest.mark.parametrize("query", ["", "account=globex", "action=test.other"])
def test_files_have_the_rows_of_the_list_in_its_order(log: People, role: str, query: str):
    listed = log.send(role, "GET", f"audit?limit=1000&{query}")
    answer = log.send(role, "GET", f"audit/file?{query}")
    assert answer.status_code == listed.status_code
    if answer.status_code == 422:
        return
    rows = listed.json()["results"]
    lines = b"".join(answer).decode().splitlines()
    told = [json.loads(line) for line in lines]
    assert [row["id"] for row in told] == [row["id"] for row in rows]
    assert [sorted(row) for row in told] == [sorted(row) for row in rows]
    text = b"".join(log.send(role, "GET", f"audit/file?form=csv&{query}")).decode()
    assert [int(row["id"]) for row in csv.DictReader(io.StringIO(text))] == [
        row["id"] for row in rows
    ]


def test_another_form_is_refused(log: People):
    assert log.send("admin", "GET", "audit/file?form=xml").status_code == 422
    assert log.send("admin", "GET", "audit/file?who=fin").status_code == 422
