"""Saved views: what is kept of an address, whose it is, and how many."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict

from budgets.models import AuditEntry, SavedView
from budgets.services.saved_views import MOST_VIEWS
from tests.web.conftest import Visitors


def save(visitors: Visitors, role: str = "owner", **given: str) -> Any:
    return visitors[role].post("/views/", {"page": "jobs", "name": "mine", **given})


def stored(query: str) -> dict[str, list[str]]:
    return dict(QueryDict(query).lists())


def test_a_view_is_found_on_its_page_and_leads_to_the_same_list(visitors: Visitors) -> None:
    query = "workspace=acme-vision&phase=pending&sort=-gpus"
    before = AuditEntry.objects.count()
    done = save(visitors, name="  my <b>waiting</b> jobs ", query=query)

    assert done.status_code == 302 and done["Location"] == f"/jobs/?{query}"
    text = visitors.text("owner", done["Location"])
    assert "my &lt;b&gt;waiting&lt;/b&gt; jobs" in text and "<b>waiting" not in text
    assert f'href="/jobs/?{query.replace("&", "&amp;")}"' in text
    assert "my &lt;b&gt;" not in visitors.text("owner", "/usage/"), "of its own page alone"
    assert "my &lt;b&gt;" in visitors.text("owner", "/views/")
    assert AuditEntry.objects.count() == before, "a private view is nobody else's business"


def test_only_parameters_of_the_page_are_kept(visitors: Visitors) -> None:
    query = "text=train&cursor=x&select=on&format=csv&next=//evil.example&workspace="
    save(visitors, query=query)
    assert stored(SavedView.objects.get().query) == {"text": ["train"]}


@pytest.mark.parametrize(
    ("page", "query"),
    [
        pytest.param("jobs", "workspace=globex-search", id="a workspace of others"),
        pytest.param("jobs", "phase=nonsense", id="no state of a job"),
        pytest.param("jobs", "text=%00", id="no text"),
        pytest.param("jobs", "sort=password", id="no order"),
        pytest.param("usage", "split=label:nobody-named", id="no label that is kept"),
        pytest.param("usage", "start=2026-03-09&until=2026-03-01", id="a range backwards"),
        pytest.param("workspaces", "", id="no page that keeps views"),
    ],
)
def test_what_the_page_itself_would_refuse_is_not_saved(
    visitors: Visitors, page: str, query: str
) -> None:
    assert save(visitors, page=page, query=query).status_code == 422
    assert not SavedView.objects.exists()


def test_behind_a_good_value_no_other_one_is_kept(visitors: Visitors) -> None:
    save(visitors, query="workspace=globex-search&workspace=acme-vision")
    assert stored(SavedView.objects.get().query) == {"workspace": ["acme-vision"]}
    many = "workspace=globex-search&workspace=acme-vision"
    assert save(visitors, page="usage", query=many).status_code == 422


def test_a_filter_that_is_too_long_is_not_saved(visitors: Visitors) -> None:
    answer = save(visitors, page="usage", query="workspace=acme-vision&" * 100)
    assert answer.status_code == 422 and not SavedView.objects.exists()
    assert "The filter is too long" in answer.content.decode()


def test_the_last_days_move_on_and_days_of_the_calendar_stay(visitors: Visitors) -> None:
    # As the page has it: the days, and what they come to today.
    relative = "days=30&start=2026-03-01&until=2026-03-30&split=flavor&sort=-burst"
    save(visitors, page="usage", name="last month", query=relative)
    save(visitors, page="usage", name="March", query="start=2026-03-01&until=2026-03-31")
    found = {view.name: stored(view.query) for view in SavedView.objects.all()}
    want = {"days": ["30"], "split": ["flavor"], "sort": ["-burst"]}
    assert found["last month"] == want
    assert found["March"] == {"start": ["2026-03-01"], "until": ["2026-03-31"]}


def test_a_range_that_was_chosen_elsewhere_is_part_of_what_one_sees(visitors: Visitors) -> None:
    visitors["owner"].get("/usage/lending/?start=2026-03-01&until=2026-03-31")
    text = visitors.text("owner", "/usage/")
    assert 'name="query" value="start=2026-03-01&amp;until=2026-03-31"' in text


@pytest.mark.parametrize("name", ["", "   ", "two\nlines", "n" * 61, "a\u2028b"])
def test_a_name_is_one_line_that_says_something(visitors: Visitors, name: str) -> None:
    answer = save(visitors, name=name)
    assert answer.status_code == 422 and not SavedView.objects.exists()
    assert 'name="name"' in answer.content.decode(), "it can be typed anew"


def test_a_name_is_there_once_on_a_page_and_for_each_person(visitors: Visitors) -> None:
    save(visitors)
    again = save(visitors)
    assert again.status_code == 422
    assert "view of this page with that name" in again.content.decode()
    assert save(visitors, page="usage").status_code == 302
    assert save(visitors, "viewer").status_code == 302


def test_a_person_keeps_so_many_and_no_more(visitors: Visitors) -> None:
    owner = visitors.users["owner"]
    SavedView.objects.bulk_create(
        SavedView(user=owner, page="jobs", name=f"view {at}") for at in range(MOST_VIEWS)
    )
    full = save(visitors)
    assert full.status_code == 422 and f"You have {MOST_VIEWS} saved views" in full.content.decode()
    one = SavedView.objects.get(name="view 0")
    visitors["owner"].post(f"/views/{one.pk}/delete/")
    assert save(visitors).status_code == 302


def test_a_view_is_deleted_by_its_owner(visitors: Visitors) -> None:
    save(visitors)
    save(visitors, name="other")
    view = SavedView.objects.get(name="mine")
    assert visitors["owner"].get(f"/views/{view.pk}/delete/").status_code == 405
    done = visitors["owner"].post(f"/views/{view.pk}/delete/", follow=True)
    assert "“mine” is deleted" in done.content.decode()
    assert [view.name for view in SavedView.objects.all()] == ["other"]
    assert visitors["owner"].post(f"/views/{view.pk}/delete/").status_code == 404


def test_nobody_else_sees_or_deletes_it_not_even_an_admin(visitors: Visitors) -> None:
    save(visitors, name="a secret plan")
    view = SavedView.objects.get()
    for role in ("admin", "finance", "viewer", "stranger"):
        assert "a secret plan" not in visitors.text(role, "/views/")
        assert "a secret plan" not in visitors.text(role, "/jobs/")
        assert visitors[role].post(f"/views/{view.pk}/delete/").status_code == 404
    assert SavedView.objects.filter(pk=view.pk).exists()
