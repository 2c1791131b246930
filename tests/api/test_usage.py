"""Borrowed and lent, idle floors and the capacity through the API: the figures of the pages."""

from __future__ import annotations

import pytest

from tests.api.conftest import People
from tests.builders import START, hours
from tests.factories import MeterStateFactory, UsageRecordFactory, WorkloadUsageFactory

RANGE = f"start={START:%Y-%m-%dT%H:%M:%SZ}&end={hours(24):%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture
def used(people: People) -> People:
    fleet = people.fleet
    terms = {"flavor": fleet.flavors["h100"], "hour": hours(1)}
    zero = {"committed_used": 0, "idle": 0}
    UsageRecordFactory(workspace=fleet.speech, committed=7_200, lent=7_200, **zero, **terms)
    UsageRecordFactory(
        workspace=fleet.vision, committed=0, lent=0, burst=7_200, borrowed=7_200, **zero, **terms
    )
    UsageRecordFactory(workspace=fleet.search, lent=0, idle=21_600, **terms)
    WorkloadUsageFactory(workspace=fleet.vision, uid="u", hour=hours(1), burst=7_200)
    MeterStateFactory(cluster="gpu-east", complete_until=hours(20))
    return people


def test_lending_adds_up_and_hides_the_other_side(used: People):
    every = used.send("finance", "GET", f"usage/lending?{RANGE}").json()
    assert every["total"]["lent"] == every["total"]["borrowed"] == every["pairs_total"] == 7_200
    assert every["pairs"] == [
        {
            "account": "acme",
            "lender": "acme-speech",
            "borrower": "acme-vision",
            "flavor": "h100",
            "lent": 7_200,
        }
    ]
    own = used.send("owner", "GET", f"usage/lending?{RANGE}").json()
    assert [row["namespace"] for row in own["rows"]] == ["acme-vision"]
    assert [pair["lender"] for pair in own["pairs"]] == [""]
    assert own["covers"] == []


def test_idle_floors_of_the_viewer(used: People):
    every = used.send("finance", "GET", f"usage/idle?{RANGE}").json()
    assert {row["namespace"] for row in every["rows"]} == {"acme-speech", "globex-search"}
    assert every["totals"]["committed"] == sum(row["committed"] for row in every["rows"])
    assert every["rows"][0]["advice"] is None
    assert used.send("owner", "GET", f"usage/idle?{RANGE}").json()["rows"] == []


def test_capacity_adds_up_and_is_for_platform_roles(used: People):
    found = used.send("auditor", "GET", f"usage/capacity?{RANGE}").json()
    total = found["total"]
    assert found["end"] == f"{hours(20):%Y-%m-%dT%H:%M:%SZ}"
    assert total["burst"] == total["held"] == 7_200
    assert total["capacity"] == total["held"] + total["not_held"]
    assert total["capacity"] == sum(row["capacity"] for row in found["rows"])
    assert used.send("owner", "GET", f"usage/capacity?{RANGE}").status_code == 403
    empty = used.send("auditor", "GET", "usage/capacity?start=2020-01-01T00:00:00Z"
                      "&end=2020-01-01T00:10:00Z").json()  # fmt: skip
    assert (empty["rows"], empty["total"]) == ([], None)


def test_usage_can_be_split_by_account(used: People):
    rows = used.send("finance", "GET", f"usage?{RANGE}&split_by=account").json()["rows"]
    assert {row["key"] for row in rows} == {"acme", "globex"}


def test_more_rows_than_an_answer_holds_are_refused(used: People, monkeypatch):
    monkeypatch.setattr("portal.api.usage.MOST_ROWS", 71)
    answer = used.send("finance", "GET", f"usage?{RANGE}&split_by=workspace")
    assert answer.status_code == 422
    (fault,) = answer.json()["faults"]
    assert (fault["field"], fault["code"]) == ("start", "too_many_rows")
    assert "up to 72 rows, more than 71" in fault["message"]
    assert used.send("finance", "GET", f"usage?{RANGE}&split_by=flavor").status_code == 200
    assert used.send("owner", "GET", f"usage?{RANGE}&split_by=workspace").status_code == 200
