"""Pages and API of exports: ask, watch, fetch and go on fetching."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import time_machine
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from budgets import services
from budgets.models import Export, User
from budgets.services.exports import runs as exports
from budgets.services.exports.plans import request_export
from tests.exports.conftest import NOW, Billed

pytestmark = pytest.mark.django_db
HTMX = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture(autouse=True)
def quiet_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusters.broker.send", lambda *_: True)


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def api(user: User) -> APIClient:
    client = APIClient()
    _, text = services.create_api_token(
        None,
        user=user,
        name="t",
        scope="write",
        expires_at=services.utc_now() + timedelta(days=1),
    )
    client.credentials(HTTP_AUTHORIZATION=f"Token {text}")
    return client


def body(answer) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


@pytest.fixture
def ready(billed: Billed) -> Export:
    return billed.export(billed.fleet.finance, dataset="focus-1.2", account="acme")


def test_file_has_type_name_length_and_digest(billed: Billed, ready: Export):
    answer = browser(billed.fleet.finance).get(reverse("export_file", args=[ready.pk]))

    content = body(answer)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="focus-1.2-2026-03-acme.csv"'
    assert answer["ETag"] == f'"{ready.sha256}"'
    assert answer["Accept-Ranges"] == "bytes"
    assert int(answer["Content-Length"]) == len(content) == ready.size
    assert content == billed.path(ready).read_bytes()


@pytest.mark.parametrize(
    ("header", "want"),
    [
        ("bytes=0-9", (0, 10)),
        ("bytes=100-", (100, None)),
        ("bytes=-7", (-7, None)),
        ("bytes=5-999999999", (5, None)),
    ],
)
def test_download_goes_on_where_it_stopped(billed: Billed, ready: Export, header, want):
    content = billed.path(ready).read_bytes()

    answer = browser(billed.fleet.finance).get(
        reverse("export_file", args=[ready.pk]), HTTP_RANGE=header
    )

    part = content[slice(*want)]
    start = content.index(part)
    assert answer.status_code == 206
    assert body(answer) == part
    assert answer["Content-Range"] == f"bytes {start}-{start + len(part) - 1}/{len(content)}"


@pytest.mark.parametrize("header", ["bytes=999999999-", "bytes=-0"])
def test_range_outside_of_the_file_is_a_416(billed: Billed, ready: Export, header):
    answer = browser(billed.fleet.finance).get(
        reverse("export_file", args=[ready.pk]), HTTP_RANGE=header
    )

    assert answer.status_code == 416
    assert answer["Content-Range"] == f"bytes */{ready.size}"


@pytest.mark.parametrize("header", ["lines=1-2", "bytes=9-3", "bytes=0-1,4-5", "bytes=-", "x"])
def test_range_that_is_none_gets_the_whole_file(billed: Billed, ready: Export, header):
    answer = browser(billed.fleet.finance).get(
        reverse("export_file", args=[ready.pk]), HTTP_RANGE=header
    )

    assert (answer.status_code, len(body(answer))) == (200, ready.size)


def test_part_of_another_file_is_not_appended(billed: Billed, ready: Export):
    client, address = browser(billed.fleet.finance), reverse("export_file", args=[ready.pk])

    same = client.get(address, HTTP_RANGE="bytes=5-9", HTTP_IF_RANGE=f'"{ready.sha256}"')
    other = client.get(address, HTTP_RANGE="bytes=5-9", HTTP_IF_RANGE='"another"')
    known = client.get(address, HTTP_IF_NONE_MATCH=f'"{ready.sha256}"')

    assert (same.status_code, len(body(same))) == (206, 5)
    assert (other.status_code, len(body(other))) == (200, ready.size)
    assert known.status_code == 304


def test_head_of_a_file_has_no_body(billed: Billed, ready: Export):
    answer = browser(billed.fleet.finance).head(reverse("export_file", args=[ready.pk]))

    assert (answer.status_code, answer["Content-Length"]) == (200, str(ready.size))


@pytest.mark.parametrize("name", ["export", "export_file", "export_about"])
def test_export_of_another_is_not_there(billed: Billed, ready: Export, name: str):
    answer = browser(billed.fleet.owner).get(reverse(name, args=[ready.pk]))

    assert answer.status_code == 404


def test_label_is_beside_the_file(billed: Billed, ready: Export):
    answer = browser(billed.fleet.finance).get(reverse("export_about", args=[ready.pk]))

    label = json.loads(answer.content)
    assert answer["Content-Disposition"].endswith('"focus-1.2-2026-03-acme.csv.about.json"')
    assert label["filter"]["account"] == "acme"
    assert label["sha256"] == ready.sha256


def test_page_asks_and_shows_the_way_to_the_file(billed: Billed):
    client = browser(billed.fleet.owner)
    asked = {"dataset": "charges", "format": "xlsx", "period": "2026-03", "zone": "UTC"}
    with time_machine.travel(NOW, tick=True):
        answer = client.post(reverse("exports"), {**asked, "columns": ["workspace", "amount"]})
        waiting = client.get(answer["Location"])
        exports.run_exports()
        done = client.get(answer["Location"])
        listed = client.get(reverse("exports"))

    export = Export.objects.get()
    assert answer["Location"] == reverse("export", args=[export.pk])
    assert "Waits for a worker" in waiting.content.decode()
    assert reverse("export_file", args=[export.pk]) in done.content.decode()
    assert "charges-2026-03.xlsx" in listed.content.decode()
    assert export.columns == ["workspace", "amount"]


def test_page_shows_what_is_wrong_beside_its_field(billed: Billed):
    asked = {"dataset": "charges", "format": "csv", "period": "2026-99", "zone": "UTC"}

    answer = browser(billed.fleet.owner).post(reverse("exports"), asked)

    assert answer.status_code == 422
    assert "is not a month" in answer.context["form"].errors["period"][0]


def test_columns_follow_the_data_set(billed: Billed):
    client = browser(billed.fleet.owner)

    part = client.get(reverse("exports"), {"dataset": "focus-1.4", "period": "2026-03"}, **HTMX)

    text = part.content.decode()
    assert "<html" not in text
    assert 'value="HostProviderName"' in text and 'value="gpu_seconds"' not in text


def test_progress_part_is_304_while_nothing_changed(billed: Billed):
    with time_machine.travel(NOW, tick=False):
        export = request_export(billed.fleet.owner, dataset="usage", format="csv", period="2026-03")
        client, address = browser(billed.fleet.owner), reverse("export", args=[export.pk])
        first = client.get(address, **HTMX)
        second = client.get(address, HTTP_IF_NONE_MATCH=first["ETag"], **HTMX)

    assert 'hx-trigger="every 1s"' in first.content.decode()
    assert second.status_code == 304


def test_failed_and_expired_exports_say_so(billed: Billed, ready: Export):
    client, address = browser(billed.fleet.finance), reverse("export", args=[ready.pk])
    Export.objects.filter(pk=ready.pk).update(removed_at=NOW)

    assert "expired" in client.get(address).content.decode()

    services.finish_operation(ready.operation_id, failed=True)
    type(ready.operation).objects.update(state="failed", message="No room.")
    assert "No room." in client.get(address).content.decode()


def test_api_asks_watches_and_fetches(billed: Billed):
    client = api(billed.fleet.owner)
    asked = {"dataset": "charges", "format": "jsonl", "period": "2026-03"}
    with time_machine.travel(NOW, tick=True):
        made = client.post("/api/v1/exports", asked, format="json")
        assert made.status_code == 202
        early = client.get(f"{made['Location']}/file")
        exports.run_exports()
    shown = client.get(made["Location"]).json()
    part = client.get(f"{made['Location']}/file", HTTP_RANGE="bytes=0-3")

    assert early.status_code == 404
    assert (shown["state"], shown["is_ready"]) == ("done", True)
    assert shown["about"]["filter"]["period"] == "2026-03"
    assert (part.status_code, body(part)) == (206, b'{"ac')
    assert client.get("/api/v1/exports").json()["results"][0]["id"] == shown["id"]


def test_api_rejects_with_all_faults(billed: Billed):
    asked = {"dataset": "charges", "format": "csv", "period": "2026-99", "columns": ["x"]}

    answer = api(billed.fleet.owner).post("/api/v1/exports", asked, format="json")

    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["faults"]] == ["period", "columns"]


def test_api_hides_the_export_of_another(billed: Billed, ready: Export):
    client = api(billed.fleet.admin)

    assert client.get(f"/api/v1/exports/{ready.pk}").status_code == 404
    assert client.get(f"/api/v1/exports/{ready.pk}/file").status_code == 404
    assert client.get("/api/v1/exports").json()["results"] == []


@pytest.mark.parametrize(("name", "most"), [("exports", 13), ("export", 9)])
def test_pages_cost_few_queries_however_many_exports(
    billed: Billed, ready: Export, name: str, most: int, django_assert_max_num_queries
):
    client = browser(billed.fleet.finance)
    for _ in range(3):
        billed.export(billed.fleet.finance, dataset="usage")
    address = reverse(name, args=[ready.pk] if name == "export" else [])

    with django_assert_max_num_queries(most):
        assert client.get(address).status_code == 200
