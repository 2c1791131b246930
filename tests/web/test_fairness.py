"""What costs much is limited per person, for pages and API together, and says when to come back."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from portal import fairness
from tests.builders import SmallFleet

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("at_one_moment")]
# Whoever comes to one of these, by its name in the code of a page or of the API, opens a door of
# the kind. A file is also what is sent as one.
COSTLY = {
    fairness.WHAT_IF: {"ask", "questions"},
    fairness.WHY: {"why_pending"},
    fairness.EXPORT: {"csv_answer", "documents_answer", "send_file", "Content-Disposition"},
    fairness.PREVIEW: {
        *("preview_revision", "preview_reallocation", "preview_maintenance", "preview_costs"),
        *("propose_dating_back", "restore_revision", "try_card", "with_weight", "job_groups"),
    },
    fairness.UPLOAD: {
        *("inspect_kubeconfig", "register_cluster", "CHANGES", "SETTINGS"),
        *("propose_rate_card", "record_spot_prices"),
    },
    fairness.CHECK: {"start_preflight", "start_look"},
}
CHEAP = {
    ("api:cluster-deregister", fairness.UPLOAD): "takes a slug and a reason",
    ("api:cluster-resolve", fairness.UPLOAD): "takes a word and a reason",
    ("usage", fairness.PREVIEW): "the page itself is for looking at; its files are counted",
    ("usage_capacity", fairness.EXPORT): "of these pages the tables alone are sent as files",
    ("usage_idle", fairness.EXPORT): "likewise",
    ("usage_lending", fairness.EXPORT): "likewise",
    ("what_if", fairness.PREVIEW): "of what was counted as a question, or shown before",
}
"""Addresses that come to one of them and are not counted as that, and why."""


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {kind: (2, words) for kind, (_, words) in fairness.MOST.items()}
    monkeypatch.setattr(fairness, "MOST", few)


@pytest.fixture
def admin(fleet: SmallFleet) -> Client:
    client = Client()
    client.force_login(fleet.admin)
    return client


def routes(resolver: Any = None, above: str = "") -> Iterator[tuple[str, Any]]:
    """Name and view of every address of the portal's own."""
    for item in (resolver or get_resolver()).url_patterns:
        if isinstance(item, URLResolver) and item.namespace != "admin":
            yield from routes(item, above + (f"{item.namespace}:" if item.namespace else ""))
        elif isinstance(item, URLPattern) and item.name:
            yield above + item.name, item.callback


def handlers(view: Any) -> Iterator[Any]:
    """What answers at an address: the function of a page, or the methods of a class."""
    found = getattr(view, "cls", None) or getattr(view, "view_class", None)
    if found is None:
        yield view
        return
    for name in getattr(view, "actions", None) or {way: way for way in found.http_method_names}:
        method = (getattr(view, "actions", None) or {}).get(name, name)
        if callable(handler := getattr(found, method, None)):
            yield handler


def words(function: Any, seen: set[Any]) -> Iterator[str]:
    """Every name and text in the code of a function, and of what it calls in the portal's faces."""
    if isinstance(function, partial):
        function = function.func
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    yield function.__name__
    if not function.__module__.startswith("portal."):
        return
    codes = [function.__code__]
    for code in codes:
        codes += (const for const in code.co_consts if isinstance(const, CodeType))
        yield from (const for const in code.co_consts if isinstance(const, str))
        yield from code.co_names
        for step in dis.get_instructions(code):
            if step.opname == "LOAD_GLOBAL":
                yield from words(function.__globals__.get(step.argval), seen)
    held = [getattr(function, "__wrapped__", None)]
    for cell in function.__closure__ or ():
        held.append(cell.cell_contents)
    for each in held:
        yield from words(each, seen)


def test_no_costly_door_is_left_out():
    known = dict(routes())
    assert {name for name, _ in fairness.DOORS} <= known.keys()
    left_out = {
        (name, kind): sorted(found)
        for name, view in known.items()
        for reached in [{word for each in handlers(view) for word in words(each, set())}]
        for kind, costly in COSTLY.items()
        if (found := costly & reached) and (name, kind) not in CHEAP
        if kind not in {of for (door, _), of in fairness.DOORS.items() if door == name}
    }
    assert left_out == {}


def test_every_costly_thing_is_still_called_so():
    """Or its door would not be missed."""
    reached = {
        word for _, view in routes() for each in handlers(view) for word in words(each, set())
    }
    assert set().union(*COSTLY.values()) <= reached


@pytest.mark.parametrize(
    "address",
    [
        *("/usage/?format=csv", "/usage/?format=jobs", "/jobs/?format=csv", "/audit/?format=csv"),
        *("/audit/?format=jsonl", "/api/v1/audit/file"),
    ],
)
def test_a_file_that_a_query_asks_for_is_counted_as_one(admin: Client, address: str):
    assert [admin.get(address).status_code for _ in range(3)] == [200, 200, 429]
    assert admin.get("/jobs/?format=csv").status_code == 429, "one allowance for all files"
    page = address.partition("?")[0]
    assert admin.get("/audit/" if "api" in page else page).status_code == 200


def test_pages_and_api_share_an_allowance_and_say_when_there_is_another(admin: Client):
    for _ in range(2):
        assert admin.post("/what-if/", {"change": "none"}).status_code == 403
    refused = admin.post("/what-if/", {"change": "none"})
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= fairness.WINDOW_S
    assert "You have asked for 2 what-if questions within a minute" in refused.content.decode()
    told = admin.post("/api/v1/what-if", {}, content_type="application/json")
    assert told.status_code == 429
    assert told.json()["code"] == "throttled"
    assert "the most that one person can have" in told.json()["message"]
    assert 0 < int(told["Retry-After"]) <= fairness.WINDOW_S


def test_part_of_a_page_is_told_in_a_sentence(admin: Client, fleet: SmallFleet):
    address = f"/workspaces/{fleet.vision.namespace}/budget/check/"
    for _ in range(2):
        admin.post(address, headers={"HX-Request": "true"})
    refused = admin.post(address, headers={"HX-Request": "true"})
    assert refused.status_code == 429
    assert refused.content.decode().startswith('<p class="note trouble" role="alert">You have')


def test_others_and_other_things_go_on(admin: Client, fleet: SmallFleet):
    for _ in range(3):
        admin.post("/what-if/", {"change": "none"})
    assert admin.get("/what-if/").status_code == 200
    assert admin.post("/exports/", {}).status_code != 429
    owner = Client()
    owner.force_login(fleet.owner)
    assert owner.post("/what-if/", {"change": "none"}).status_code == 403


def test_next_minute_has_an_allowance_of_its_own(admin: Client, monkeypatch: pytest.MonkeyPatch):
    for _ in range(3):
        admin.post("/what-if/", {"change": "none"})
    later = fairness.time.time() + fairness.WINDOW_S
    monkeypatch.setattr(fairness.time, "time", lambda: later)
    assert admin.post("/what-if/", {"change": "none"}).status_code == 403
