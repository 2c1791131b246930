"""Values that nobody means: years and amounts are bounded at every door by the same rule."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from rest_framework import serializers

from budgets.models import AlertRule, BillingPeriod
from budgets.selectors.billing.months import month_of
from budgets.services import alerts
from portal.api import urls as _urls  # noqa: F401  every shape is known once its address is
from portal.api.shapes import DayField, InstantField, Strict
from portal.bounds import MONEY
from tests.api.conftest import People

YEARS = ("0001", "1999", "2200", "9999")
SHORT: dict[str, Any] = {"short": {"committed": 8, "burst": 16}, "reason": "x"}
GRANT = {"unit": "gpu_hours", "amount": "10", "window": "grant", "reason": "x"}
LARGE = {"workspace": "acme-vision", "measure": "spend", "limit": "9999999999999999.99"}


@pytest.mark.parametrize("year", YEARS)
@pytest.mark.parametrize(
    ("role", "path", "name", "body"),
    [
        ("finance", "workspaces/acme-vision/budget/dating-back", "valid_from", SHORT),
        ("owner", "workspaces/acme-vision/budget/revisions", "valid_until", SHORT),
        ("owner", "workspaces/acme-vision/budget/spend-rules", "grant_start", GRANT),
        ("admin", "maintenance/preview", "starts_at", {"flavor": "h100", "ends_at": None}),
        ("admin", "maintenance/preview", "ends_at", {"flavor": "h100"}),
        ("admin", "capacities", "valid_from", {"flavor": "h100", "gpus": 8}),
    ],
)
def test_a_year_without_books_is_refused_in_a_body(
    people: People, role: str, path: str, name: str, body: dict[str, Any], year: str
):
    given = {**body, name: f"{year}-06-01T00:00:00Z"}
    answer = people.send(role, "POST", path, given, HTTP_IF_MATCH=people.etag())
    assert answer.status_code == 422
    (fault,) = [row for row in answer.json()["faults"] if row["field"] == name]
    words = f"The year {year} is out of range. Give one from 2000 to 2199."
    assert (fault["code"], fault["message"]) == ("year", words)


def test_a_year_without_books_is_refused_for_a_day(people: People):
    rate = {"base": "EUR", "quote": "USD", "day": "0001-01-01", "rate": "1"}
    answer = people.send("finance", "POST", "exchange-rates", rate)
    assert [(row["field"], row["code"]) for row in answer.json()["faults"]] == [("day", "year")]


@pytest.mark.parametrize("year", YEARS)
@pytest.mark.parametrize("path", ["usage", "usage/idle", "usage/lending", "usage/groups", "audit"])
def test_a_year_without_books_is_refused_in_a_query(people: People, path: str, year: str):
    query = f"start={year}-06-01T00:00:00Z&end={year}-06-02T00:00:00Z"
    answer = people.send("owner", "GET", f"{path}?{query}")
    assert answer.status_code == 422
    told = {(row["field"], row["code"]) for row in answer.json()["faults"]}
    assert told >= {("start", "year"), ("end", "year")}


def test_a_year_without_books_is_refused_for_a_reconciled_day(people: People):
    answer = people.send("auditor", "GET", "reconciliation?cluster=gpu-east&day=0001-01-01")
    assert [(row["field"], row["code"]) for row in answer.json()["faults"]] == [("day", "year")]


@pytest.mark.parametrize("name", ["0001-01", "1999-12", "2200-01"])
def test_a_year_without_books_has_no_months(people: People, name: str):
    answer = people.send("finance", "GET", f"months/{name}")
    assert answer.status_code == 404
    with pytest.raises(BillingPeriod.DoesNotExist):
        month_of(name)


def test_every_time_and_day_of_a_body_is_bounded():
    loose = [
        f"{shape.__name__}.{name}"
        for shape in _shapes(Strict)
        for name, field in shape().fields.items()
        if isinstance(field, serializers.DateTimeField | serializers.DateField)
        and not isinstance(field, InstantField | DayField)
        and not field.read_only
    ]
    assert loose == []


def _shapes(base: type[Strict]) -> Iterator[type[Strict]]:
    for shape in base.__subclasses__():
        yield shape
        yield from _shapes(shape)


def test_an_amount_that_no_database_keeps_to_the_cent_is_refused(people: People):
    answer = people.send("owner", "POST", "alert-rules", LARGE)
    assert [row["field"] for row in answer.json()["faults"]] == ["limit"]
    largest = MONEY["max_value"] - Decimal("0.01")
    rule = alerts.create_rule(None, workspace=people.fleet.vision, measure="spend", limit=largest)
    assert AlertRule.objects.get(pk=rule.pk).limit == largest
    cap = {"unit": "gpu_hours", "amount": LARGE["limit"], "reason": "x"}
    refused = people.send("owner", "POST", "workspaces/acme-vision/budget/spend-rules", cap)
    assert [row["field"] for row in refused.json()["faults"]] == ["amount"]
    rules = people.send("owner", "GET", "alert-rules").json()["results"]
    assert [row["limit"] for row in rules] == [str(largest)]
