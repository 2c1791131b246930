"""Pages, cursors, limits and parameters."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from budgets import services
from budgets.models import Account
from tests.api.conftest import API, People
from tests.builders import line


def walk(people: People, path: str, role: str = "admin") -> list[list]:
    """All pages of a list, following ``next``."""
    pages = []
    address = API + path
    while address:
        answer = people.send(role, "GET", address)
        assert answer.status_code == 200
        pages.append(answer.json()["results"])
        address = answer.json()["next"]
        assert len(pages) < 50
    return pages


@pytest.fixture
def many(people: People) -> People:
    Account.objects.bulk_create(
        [Account(slug=f"tenant{index}", name=f"T{index}") for index in range(7)]
    )
    for index in range(4):
        people.fleet.revise(people.fleet.vision, line("h100", index))
    people.fleet.revise(people.fleet.search, line("h100", 1), actor=people.users["stranger"])
    people.fleet.revise(people.fleet.vision, line("h100", 33), actor=people.users["owner"])
    return people


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("accounts", "slug"),
        ("flavors", "slug"),
        ("workspaces", "namespace"),
        ("users", "username"),
        ("members", "id"),
        ("capacities", "id"),
        ("audit", "id"),
        ("requests", "id"),
        ("workspaces/acme-vision/budget/revisions", "number"),
        ("tokens", "id"),
    ],
)
def test_pages_together_are_the_whole_list_once(many, path, key):
    whole = [row[key] for page in walk(many, path) for row in page]
    assert len(whole) == len(set(whole)) > 0
    for limit in (1, 2, 3):
        pages = walk(many, f"{path}?limit={limit}")
        assert [row[key] for page in pages for row in page] == whole
        assert all(len(page) == limit for page in pages[:-1])
        assert pages[-1] or not whole


def test_filter_stays_on_the_address_of_the_next_page(many):
    pages = walk(many, "workspaces?account=acme&limit=1")
    assert [row["namespace"] for page in pages for row in page] == ["acme-speech", "acme-vision"]


def test_row_that_is_gone_does_not_break_its_cursor(many):
    following = many.send("admin", "GET", "requests?limit=1").json()["next"]
    first = many.fleet.search.budget.revisions.get()
    services.decide_request(
        many.fleet.admin,
        revision=first,
        accept=False,
        reason="no",
        expected_version=type(many.fleet.search.budget)
        .objects.get(pk=many.fleet.search.budget.pk)
        .version,
    )
    rest = many.send("admin", "GET", following).json()["results"]
    assert [row["workspace"] for row in rest] == ["acme-vision"]


@pytest.mark.parametrize(
    ("query", "want_field"),
    [
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=1001", "limit"),
        ("limit=abc", "limit"),
        ("limit=²", "limit"),
        ("cursor=%00", "cursor"),
        ("cursor=A%20b", "cursor"),
        ("cursor=" + "a" * 64, "cursor"),
        ("archived=maybe", "archived"),
        ("acount=acme", "acount"),
        ("page=2", "page"),
    ],
)
def test_nonsense_in_the_query_is_a_fault_beside_its_name(people, query, want_field):
    answer = people.send("admin", "GET", "workspaces?" + quote(query, safe="=%"))
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["faults"]] == [want_field]


@pytest.mark.parametrize("cursor", ["abc", "-1", "1.5", "9" * 19, "²", "1;drop", "٣"])
@pytest.mark.parametrize("path", ["members", "audit", "requests", "usage/workloads"])
def test_nonsense_in_a_numeric_cursor_is_a_fault(people, path, cursor):
    answer = people.send("admin", "GET", f"{path}?cursor={quote(cursor)}")
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["faults"]] == ["cursor"]


@pytest.mark.parametrize(
    ("query", "want_fields"),
    [
        ("start=yesterday&end=2026-13-01T00:00:00Z", ["end", "start"]),
        ("start=2026-03-01T00:00:00", ["start"]),
        ("start=0001-01-01T00:00:00%2B14:00&end=9999-12-31T23:59:59-14:00", ["end", "start"]),
        ("start=2026-03-02T00:00:00Z&end=2026-03-01T00:00:00Z", ["end"]),
        ("start=2020-01-01T00:00:00Z&end=2026-03-01T00:00:00Z", ["start"]),
        ("step=week&split_by=colour", ["step", "split_by"]),
    ],
)
def test_nonsense_in_a_usage_filter_is_told_at_once(people, query, want_fields):
    answer = people.send("admin", "GET", f"usage?{query}")
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["faults"]] == want_fields
