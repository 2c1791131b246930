"""The OpenAPI document is complete, valid and says what the API does."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.urls import URLResolver

import portal.urls
from portal.api.urls import urlpatterns
from tests.api.conftest import API
from tests.golden import assert_golden


@pytest.fixture
def openapi(db, tmp_path) -> dict:
    target = tmp_path / "openapi.json"
    call_command(
        "spectacular",
        validate=True,
        fail_on_warn=True,
        format="openapi-json",
        file=str(target),
        stdout=StringIO(),
    )
    return json.loads(target.read_text())


def operations(openapi: dict) -> list[tuple[str, str, dict]]:
    return [
        (method, path, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_in_the_document_without_a_warning(openapi):
    assert len(openapi["paths"]) == len(urlpatterns) - 2  # the document itself and "nowhere"


def test_operation_ids_are_unique_and_every_operation_is_described(openapi):
    ids = [operation["operationId"] for _, _, operation in operations(openapi)]
    assert len(ids) == len(set(ids))
    for method, path, operation in operations(openapi):
        assert {"401", "403"} <= operation["responses"].keys(), path
        assert operation.get("description"), (method, path)


def test_versioned_writes_say_so(openapi):
    for _, path, operation in operations(openapi):
        headers = [p["name"] for p in operation.get("parameters", []) if p["in"] == "header"]
        assert ("If-Match" in headers) == ("412" in operation["responses"]), path


def test_budget_answer_has_the_shape_of_the_document(people, openapi):
    """Every key that is sent is in the document, and the other way round."""
    body = {"short": {"committed": 8, "burst": 16}}
    path = "workspaces/acme-vision/budget"
    made = people.send("owner", "POST", f"{path}/revisions", body, HTTP_IF_MATCH=people.etag())
    shapes = openapi["components"]["schemas"]
    assert made.json().keys() == shapes["Revision"]["properties"].keys()
    seen = people.send("owner", "GET", path).json()
    assert seen.keys() == shapes["Budget"]["properties"].keys()
    fleet = people.send("admin", "GET", "fleet").json()
    assert fleet["cells"][0].keys() == shapes["FleetCell"]["properties"].keys()
    assert fleet["totals"][0].keys() == shapes["FleetTotal"]["properties"].keys()
    usage = people.send("admin", "GET", "usage").json()
    assert usage.keys() == shapes["Usage"]["properties"].keys()
    assert usage["totals"].keys() == shapes["UsageRow"]["properties"].keys()


def test_document_is_served_to_people_who_are_logged_in(people):
    answer = people.send("viewer", "GET", "schema")
    assert answer.status_code == 200
    assert f"{API}workspaces/{{namespace}}/budget" in json.loads(answer.content)["paths"]
    assert people.send("anonymous", "GET", "schema").status_code == 401


def test_portal_serves_the_api():
    included = [
        row.urlconf_module.__name__
        for row in portal.urls.urlpatterns
        if isinstance(row, URLResolver) and str(row.pattern) == API.lstrip("/")
    ]
    assert included == ["portal.api.urls"]


@pytest.mark.sqlite  # each database has bounds of its own for integers
def test_document_is_the_one_that_clients_were_written_for(openapi):
    """What differs on purpose is listed in the changelog and written anew by the switch."""
    assert_golden(
        "openapi.json", json.dumps(openapi, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    )
