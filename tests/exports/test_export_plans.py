"""Exports that are made again and again, and the first rows before anything is written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.core import mail
from django.test import Client
from rest_framework.test import APIClient

from budgets import tasks
from budgets.errors import Rejected
from budgets.models import BillingPeriod, Delivery, Export, ExportPlan, Membership
from budgets.services import alerts
from budgets.services.alerts.deliver import word_of
from budgets.services.exports import runs as exports
from budgets.services.exports.plans import MOST_PLANS, run_plans, save_export_plan
from tests.exports.conftest import NOW, Billed

pytestmark = pytest.mark.django_db
DAILY = {"name": "Nightly", "every": "day", "dataset": "charges", "format": "csv"}
DAY = timedelta(days=1)


def plan(billed: Billed, **more) -> ExportPlan:
    with time_machine.travel(NOW - DAY, tick=False):
        made = save_export_plan(billed.fleet.finance, **{**DAILY, **more})
        ExportPlan.objects.filter(pk=made.pk).update(created_at=NOW - DAY)
    return made


def ran(at: datetime = NOW) -> list[str]:
    """The keys of the runs that are there after a worker looked."""
    with time_machine.travel(at, tick=True):
        run_plans()
        exports.run_exports()
    return list(Export.objects.order_by("pk").values_list("run_key", flat=True))


def closed(month: str, start: datetime, end: datetime, *, at: datetime = NOW) -> None:
    BillingPeriod.objects.create(
        name=month,
        start=start,
        end=end,
        closed_at=at,
        close_number=BillingPeriod.objects.filter(close_number__gt=0).count() + 1,
        head="x",
    )


def test_a_daily_plan_makes_one_file_a_day_of_yesterdays_month(billed: Billed):
    plan(billed)
    assert ran(NOW - timedelta(hours=13)) == []  # the day on which it was saved
    assert ran() == ran(NOW + timedelta(hours=3)) == ["day:2026-03-03"]
    first = Export.objects.get()
    assert (first.period, first.requested_by, first.rows > 0) == (
        "2026-03",
        billed.fleet.finance,
        True,
    )
    assert ran(datetime(2026, 4, 1, 1, tzinfo=UTC)) == ["day:2026-03-03", "day:2026-04-01"]
    assert Export.objects.order_by("pk").last().period == "2026-03"


def test_a_plan_after_a_close_makes_one_file_of_each_month_closed_since(billed: Billed):
    begun, ended = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    closed("2026-01", begun, ended, at=NOW - 3 * DAY)
    plan(billed, every="close", dataset="focus-1.4")
    assert ran() == []
    closed("2026-02", ended, datetime(2026, 3, 1, tzinfo=UTC))
    assert ran() == ran() == ["close:2026-02"]
    assert Export.objects.get().dataset == "focus-1.4"


def test_its_maker_and_webhooks_are_told_of_the_file_with_its_digest(
    billed: Billed, settings, monkeypatch
):
    sent = []
    monkeypatch.setattr(
        "budgets.services.alerts.deliver.send",
        lambda hook, body, *, delivery, now: sent.append((hook.name, body, delivery)),
    )
    finance, owner = billed.fleet.finance, billed.fleet.owner
    settings.PORTAL_WEBHOOK_PRIVATE = True
    for name, account in (
        ("all", None),
        ("acme", billed.fleet.acme),
        ("other", billed.fleet.globex),
    ):
        alerts.create_webhook(finance, name=name, url="http://127.0.0.1:9/", account=account)
    plan(billed, account="acme")
    ran()
    with time_machine.travel(NOW, tick=True):
        assert alerts.deliver_alerts().sent == 3
        assert alerts.deliver_alerts().sent == 0

    export = Export.objects.get()
    assert {(name, key) for name, _, key in sent} == {
        ("acme", f"export-{export.pk}"),
        ("all", f"export-{export.pk}"),
    }
    assert all(body["sha256"] == export.sha256 for _, body, _ in sent)
    assert json.dumps(sent[0][1])
    (letter,) = mail.outbox
    assert letter.to == [finance.email]
    assert export.sha256 in letter.body
    assert f"/exports/{export.pk}/" in letter.body
    assert owner.email not in letter.to


def test_an_export_that_was_asked_for_by_hand_is_not_told(billed: Billed):
    billed.export(billed.fleet.finance)
    assert not Delivery.objects.exists()


def test_a_file_that_cannot_be_written_is_told_too(billed: Billed, monkeypatch):
    def broken(*_args, **_more):
        raise OSError(28, "No space left on device")

    plan(billed)
    monkeypatch.setattr(exports, "_write", broken)
    ran()
    row = Delivery.objects.get()
    assert "could not be written" in word_of(row)[0]["text"]
    assert word_of(row)[0]["state"] == "failed"


def test_a_plan_whose_maker_lost_the_right_makes_nothing_and_says_why(billed: Billed):
    made = plan(billed)
    Membership.objects.filter(user=billed.fleet.finance).delete()
    assert ran() == []
    made.refresh_from_db()
    assert "You see no workspace" in made.problem


def test_everything_wrong_with_a_plan_is_said_at_once(billed: Billed):
    with pytest.raises(Rejected) as refused:
        save_export_plan(
            billed.fleet.finance,
            name=" ",
            every="hour",
            dataset="charges",
            format="doc",
            columns=["no"],
        )
    assert {fault.field for fault in refused.value.faults} >= {"name", "every", "format", "columns"}
    ExportPlan.objects.bulk_create(
        ExportPlan(name="x", made_by=billed.fleet.finance, every="day") for _ in range(MOST_PLANS)
    )
    with pytest.raises(Rejected, match="already made for you"):
        save_export_plan(billed.fleet.finance, **DAILY)


def page_of(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


FORM = {"dataset": "charges", "format": "csv", "period": "2026-03", "zone": "UTC"}


@pytest.mark.usefixtures("billed")
def test_the_page_saves_and_removes_a_plan(billed: Billed):
    finance = page_of(billed.fleet.finance)
    with time_machine.travel(NOW, tick=True):
        answer = finance.post("/exports/", FORM | {"every": "day", "name": "Nightly"})
        assert answer.status_code == 302
        assert "Nightly" in finance.get("/exports/").content.decode()
        made = ExportPlan.objects.get()
        address = f"/exports/plans/{made.pk}/remove/"
        assert page_of(billed.fleet.owner).post(address).status_code == 404
        assert finance.post(address).status_code == 302
        assert finance.post("/exports/", FORM | {"every": "day", "name": ""}).status_code == 422
    assert ran(NOW + 2 * DAY) == []


def test_the_page_shows_the_first_rows_as_the_file_has_them(billed: Billed):
    finance = billed.fleet.finance
    wanted = FORM | {"columns": ["workspace", "amount"], "preview": "1"}
    with time_machine.travel(NOW, tick=True):
        page = page_of(finance).post("/exports/", wanted).content.decode()
    assert not Export.objects.exists()
    lines = billed.path(billed.export(finance, columns=["workspace", "amount"])).read_text()
    for line in lines.splitlines()[1:11]:
        workspace, amount = line.split(",")
        assert f'<td class="nowrap">{amount}</td>' in page
        assert workspace in page
    with time_machine.travel(NOW, tick=True):
        wrong = page_of(finance).post("/exports/", wanted | {"period": "2099-01"})
    assert wrong.status_code == 422


def test_the_workers_task_looks_at_plans(billed: Billed):
    plan(billed)
    with time_machine.travel(NOW, tick=True):
        assert tasks.run_exports()["planned"] == 1


def test_plans_and_previews_through_the_api(billed: Billed):
    client = APIClient()
    client.force_authenticate(billed.fleet.finance)
    address = "/api/v1/export-plans"
    with time_machine.travel(NOW, tick=True):
        made = client.post(address, DAILY | {"account": "acme"}, format="json")
        assert made.status_code == 201
        assert client.post(address, DAILY | {"every": "hour"}, format="json").status_code == 422
        shown = client.get(f"{address}/{made.json()['id']}").json()
        assert (shown["every"], shown["account"], shown["problem"]) == ("day", "acme", "")
        wish = {**FORM, "columns": ["amount"]}
        found = client.post("/api/v1/exports/preview", wish, format="json").json()
        assert found["names"] == ["amount"]
        assert 0 < len(found["rows"]) <= 10
        other = APIClient()
        other.force_authenticate(billed.fleet.owner)
        assert other.get(address).json()["results"] == []
        assert other.delete(f"{address}/{made.json()['id']}").status_code == 404
        assert client.delete(f"{address}/{made.json()['id']}").status_code == 204
    assert ExportPlan.objects.get().removed_at is not None
