"""Probes, error pages, partials, 304, the audit log, operations, static files."""

from __future__ import annotations

import json

import pytest
from django.contrib.staticfiles import finders
from django.db import DatabaseError, connection
from django.template import TemplateDoesNotExist
from django.test import Client, RequestFactory, override_settings
from django_htmx.middleware import HtmxDetails
from kombu.exceptions import OperationalError

from budgets import services
from budgets.announcements import Work
from clusters import broker
from portal.web import errors
from portal.web.htmx import render
from tests.builders import line
from tests.web.conftest import HTMX, Visitors


def test_alive_asks_neither_login_nor_database():
    answer = Client().get("/healthz")

    assert (answer.status_code, answer.json()) == (200, {"alive": True})


def test_ready_follows_the_database(db, monkeypatch):
    assert Client().get("/readyz").json() == {"ready": True, "database": True}

    def broken(*args):
        raise DatabaseError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(connection, "cursor", broken)
        answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)


def test_ready_asks_for_the_broker_only_when_told(db, monkeypatch):
    monkeypatch.setattr(broker, "is_broker_reachable", lambda: False)

    assert Client().get("/readyz").status_code == 200
    assert Client().get("/readyz?broker=1").status_code == 503


def test_a_broker_that_is_down_stops_no_change(
    visitors: Visitors, monkeypatch, django_capture_on_commit_callbacks
):
    sent = []

    def send(*args, **kwargs):
        sent.append(args)
        raise OperationalError("not the address of a broker")

    monkeypatch.setattr(broker.current_app, "send_task", send)
    with django_capture_on_commit_callbacks(execute=True):
        values = {"section": "new", "slug": "edge", "name": "Edge", "account": "acme"}
        answer = visitors["admin"].post("/setup/workspaces/", {**values, "home_flavor": "h100"})

    assert answer.status_code == 302
    assert sent == [(broker.TASKS[Work.SYNC],)]


def test_a_rejected_change_sends_no_nudge(
    visitors: Visitors, monkeypatch, django_capture_on_commit_callbacks
):
    monkeypatch.setattr(broker.current_app, "send_task", lambda *a, **k: pytest.fail("sent"))
    with django_capture_on_commit_callbacks(execute=True):
        values = {"section": "new", "slug": "BAD", "name": "x", "account": "acme"}
        answer = visitors["admin"].post("/setup/workspaces/", {**values, "home_flavor": "h100"})

    assert answer.status_code == 422


@pytest.mark.parametrize("address", ["/", "/jobs/", "/fleet/", "/clusters/"])
def test_a_poll_that_finds_nothing_new_is_304(visitors: Visitors, address: str):
    client = visitors["admin"]
    first = client.get(address, **HTMX)

    again = client.get(address, HTTP_IF_NONE_MATCH=first["ETag"], **HTMX)

    assert first.status_code == 200 and "<html" not in first.content.decode()
    assert (again.status_code, again.content) == (304, b"")
    assert "HX-Request" in first["Vary"]


def test_a_poll_sees_a_change(visitors: Visitors):
    more = {**HTMX, "HTTP_HX_TARGET": "now"}
    first = visitors["owner"].get("/workspaces/acme-vision/", **more)
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))

    again = visitors["owner"].get(
        "/workspaces/acme-vision/", HTTP_IF_NONE_MATCH=first["ETag"], **more
    )

    assert again.status_code == 200
    assert "0 of 16 committed" in again.content.decode()


def test_a_boosted_link_gets_the_whole_page(visitors: Visitors):
    assert "<html" in visitors.text("admin", "/fleet/", HTTP_HX_BOOSTED="true", **HTMX)


def test_an_unknown_partial_is_an_error():
    request = RequestFactory().get("/", **HTMX)
    request.htmx = HtmxDetails(request)
    with pytest.raises(TemplateDoesNotExist, match="nothing"):
        render(request, "fleet/fleet.html", partial="nothing")


def test_error_pages_say_what_to_do_and_parts_get_a_sentence(visitors: Visitors):
    page = visitors["owner"].get("/nothing/")
    part = visitors["owner"].get("/nothing/", **HTMX)

    assert page.status_code == part.status_code == 404
    assert "<html" in page.content.decode()
    assert "<html" not in part.content.decode() and 'role="alert"' in part.content.decode()


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("/jobs/?cursor=typed-by-hand", 400),
        ("/jobs/?text=%00", 422),
        ("/audit/?before=99999999999999999999999", 200),
        ("/workspaces/acme-vision/history/99999999999999999999999/", 404),
        ("/usage/?days=99999999999", 200),
        ("/usage/?start=0001-01-01&until=0001-01-02", 422),
        ("/setup/people/99999999999999999999999/", 404),
        ("/billing/months/2026-03/?zone=%00", 404),
        ("/billing/reconciliation/?day=0001-01-01", 404),
        ("/workspaces/acme-vision/history/1/?with=%C2%B2", 404),
    ],
)
def test_a_mistyped_address_is_no_failure(visitors: Visitors, address: str, want: int):
    assert visitors["admin"].get(address).status_code == want


def test_what_cannot_be_taken_away_is_not_found(visitors: Visitors):
    address = f"/setup/people/{visitors.fleet.owner.pk}/"
    for removed in ("", "x", "\u00b2", "0001-01-01", "9" * 30):
        answer = visitors["admin"].post(address, {"section": "roles", "remove": removed})
        assert answer.status_code == 404, removed


def test_a_failure_is_a_page_with_a_reference(visitors: Visitors, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("portal.web.workspaces.seen.bars_now", broken)
    client = visitors["owner"]
    client.raise_request_exception = False

    answer = client.get("/")

    text = answer.content.decode()
    reference = next(r.msg["reference"] for r in caplog.records if r.name == errors.__name__)
    assert answer.status_code == 500
    assert reference in text and "secret detail" not in text


def test_a_form_without_its_token_is_refused_in_words(visitors: Visitors):
    client = Client(enforce_csrf_checks=True)
    client.force_login(visitors.fleet.owner)

    answer = client.post("/profile/", {"time_zone": "UTC"})

    assert answer.status_code == 403
    text = answer.content.decode()
    assert "This form is out of date" in text
    assert "Ask a platform admin" not in text


def test_audit_log_pages_by_keyset_and_filters(visitors: Visitors):
    for number in range(55):
        services.audit(None, action="test.count", subject=f"n:{number}")

    first = visitors["admin"].get("/audit/?action=")
    cursor = first.context["next_before"]
    second = visitors["admin"].get(f"/audit/?before={cursor}")
    ids = [row["entry"].pk for page in (first, second) for row in page.context["entries"]]

    assert len(first.context["entries"]) == 50
    assert ids == sorted(set(ids), reverse=True)
    roles = visitors["admin"].get("/audit/?action=role.").context["entries"]
    assert {row["entry"].action for row in roles} == {"role.grant"}


def test_audit_csv_holds_no_formula(visitors: Visitors):
    services.audit(None, action="test.x", subject="=cmd|' /C calc'!A0")

    text = b"".join(visitors["admin"].get("/audit/?format=csv")).decode()

    assert "'=cmd" in text


def test_operation_is_shown_to_who_started_it_and_asks_again_until_it_ends(visitors: Visitors):
    operation = services.start_operation(visitors.fleet.owner, kind="export", total=4)
    services.advance_operation(operation.pk, step="hour 2", done=2)
    address = f"/operations/{operation.pk}/"

    running = visitors.text("owner", address, **HTMX)
    assert 'hx-trigger="every 1s"' in running and 'value="2" max="4"' in running
    assert visitors["stranger"].get(address).status_code == 404
    services.finish_operation(operation.pk, message="42 rows")
    done = visitors.text("owner", address, **HTMX)
    assert "42 rows" in done and "hx-trigger" not in done


def test_browser_code_comes_out_of_the_wheels():
    plotly, htmx = finders.find("plotly/plotly.min.js"), finders.find("django_htmx/htmx-2.min.js")

    assert "site-packages" in plotly and "site-packages" in htmx
    assert finders.find("plotly/other.js") is None
    with open(plotly, encoding="utf-8") as bundle:
        assert "plotly.js v" in bundle.read(300)


def test_plotly_is_only_asked_for_where_a_chart_is(visitors: Visitors):
    for address in ("/", "/fleet/", "/jobs/", "/audit/", "/workspaces/acme-vision/"):
        assert "plotly.min.js" not in visitors.text("admin", address), address


@override_settings(DEBUG=False)
def test_htmx_is_told_to_evaluate_and_store_nothing(visitors: Visitors):
    text = visitors.text("owner", "/")
    start = text.index("content='", text.index("htmx-config")) + len("content='")
    config = json.loads(text[start : text.index("'", start)])

    assert config["allowEval"] is False
    assert config["includeIndicatorStyles"] is False
    assert config["selfRequestsOnly"] is True
    assert config["historyCacheSize"] == 0
