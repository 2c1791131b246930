"""The search: everything with a name, of what the reader may see, and nothing else."""

from __future__ import annotations

import re

import pytest

from budgets.models import BillingPeriod, Statement
from clusters import selectors as seen
from tests.builders import hours
from tests.web.conftest import Visitors
from tests.web.test_query_counts import busy, cost_of  # noqa: F401  a fixture


@pytest.fixture
def stated(busy: Visitors) -> Visitors:  # noqa: F811
    """Two statements of acme: one issued, one a draft."""
    for name, state in (("2026-01", "issued"), ("2026-02", "draft")):
        period = BillingPeriod.objects.create(name=name, start=hours(0), end=hours(24))
        Statement.objects.create(
            account=busy.fleet.acme, period=period, state=state, currency="EUR",
            priced_in="EUR", payable=1, number="S-1" if state == "issued" else "",
        )  # fmt: skip
    return busy


def kinds(visitors: Visitors, role: str, text: str) -> set[str]:
    return {found.kind for found in seen.search(visitors.users[role], text)}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("vision", {"workspace"}, id="a workspace by its name"),
        pytest.param("acme-VISION", {"workspace"}, id="by its namespace, in any case"),
        pytest.param("train-7", {"job"}, id="a job by its name"),
        pytest.param("uid-7", {"job"}, id="a job by its UID"),
        pytest.param("olga@example", {"person"}, id="a person by address"),
        pytest.param("gpu-east", {"cluster"}, id="a cluster"),
        pytest.param("spot", {"flavor"}, id="a flavor"),
        pytest.param("acme 2026-01", {"statement"}, id="a statement: every word has to fit"),
        pytest.param("a", set(), id="one character finds nothing"),
        pytest.param("% _", set(), id="no pattern"),
        pytest.param("no such thing", set(), id="nothing"),
    ],
)
def test_an_admin_finds_everything(stated: Visitors, text: str, want: set[str]):
    assert kinds(stated, "admin", text) == want


@pytest.mark.parametrize(
    ("role", "want"),
    [
        ("finance", {"workspace", "job", "cluster", "flavor", "statement"}),
        ("auditor", {"workspace", "job", "cluster", "flavor", "statement"}),
        ("owner", {"workspace", "job", "flavor", "statement"}),
        ("viewer", {"workspace", "job", "flavor", "statement"}),
        ("stranger", {"flavor"}),
        ("nobody", {"flavor"}),
    ],
)
def test_nobody_finds_what_they_do_not_see(stated: Visitors, role: str, want: set[str]):
    found = set()
    for text in ("vision", "train-7", "olga", "gpu-east", "spot", "acme 2026"):
        found |= kinds(stated, role, text)
    assert found == want


def test_owners_find_issued_statements_alone(stated: Visitors):
    def states(role: str) -> set[str]:
        (found,) = seen.search(stated.users[role], "acme 2026")
        return {row.state for row in found.rows}

    assert states("owner") == {"issued"}
    assert states("finance") == {"issued", "draft"}


def test_only_the_beginning_of_many_is_read_and_the_rest_is_a_link_away(stated: Visitors):
    text = stated.text("owner", "/search/?q=train")
    assert text.count('href="/jobs/manager/') == 8
    assert 'href="/jobs/?text=train"' in text
    queries, _ = cost_of(stated, "/search/?q=train")
    assert queries < 15


@pytest.mark.parametrize("role", ["admin", "finance", "owner", "viewer"])
def test_every_hit_leads_to_a_page_of_the_reader(stated: Visitors, role: str):
    addresses = set()
    for words in ("vision", "train-7", "olga", "gpu-east", "spot", "acme"):
        text = stated.text(role, f"/search/?q={words}")
        main = text[text.index("<main") : text.index("</main>")]
        addresses |= set(re.findall(r'<th scope="row"><a href="([^"]+)"', main))
    assert len(addresses) > 3
    for address in addresses:
        assert stated[role].get(address.replace("&amp;", "&")).status_code == 200, address


@pytest.mark.parametrize("asked", ["", "?q=", "?q=x", "?other=1"])
def test_a_search_for_nothing_says_what_to_type(visitors: Visitors, asked: str):
    assert "Type 2 or more characters" in visitors.text("owner", f"/search/{asked}")


def test_words_that_are_no_name_are_answered_in_words(visitors: Visitors):
    for asked in ("%00abc", "x" * 101):
        answer = visitors["owner"].get(f"/search/?q={asked}")
        assert answer.status_code == 422
    assert "<script>" not in visitors.text("owner", "/search/?q=<script>alert(1)</script>")


def test_the_box_is_on_every_page_and_needs_no_script(visitors: Visitors):
    text = visitors.text("owner", "/jobs/")
    assert '<form class="search" method="get" action="/search/" role="search">' in text
    assert 'aria-keyshortcuts="/"' in text
    assert 'role="search"' not in visitors.text("anonymous", "/login/")
