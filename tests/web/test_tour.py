"""The story that the demo is seeded with, and the tour that leads through it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.management import call_command
from django.db import transaction
from django.test import Client, override_settings

from budgets.models import (
    BillingPeriod,
    BudgetRevision,
    Correction,
    Discrepancy,
    Interval,
    SpendEffect,
    Statement,
    User,
)
from budgets.selectors.billing.job_costs import job_costs, job_groups
from budgets.selectors.usage.scope import UsageFilter
from clusters.reconcile.usage.unwatched import ASKED
from clusters.selectors import newest_preempted, preemptions_of, workload_detail
from portal.demo_history import TEAM, TEAMS, history_begins
from portal.management.commands.seed_demo import Command
from tests.reconcile.fleet_rows import register

NOON = datetime(2026, 11, 23, 12, 30, tzinfo=UTC)
OWN = {"owner": "owner", "admin": "admin", "finance": "finance", "controller": "controller"}


def rows_alone(self: Command, folder: Path, rows: Any) -> None:
    """Clusters without servers: what the seed writes into the books asks none."""
    for slug, role, _ in rows:
        register(slug, "apiVersion: v1", role=role)


def seed(monkeypatch: pytest.MonkeyPatch, folder: Path, *, is_one: bool = False) -> None:
    monkeypatch.setattr(Command, "clusters", rows_alone)
    (folder / ("cluster.kubeconfig" if is_one else "manager.kubeconfig")).touch()
    call_command("seed_demo", kubeconfigs=folder, verbosity=0)


@pytest.fixture(scope="module")
def story(
    django_db_setup: Any, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The demo's books on a day of November, made once; nothing of it stays."""
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        django_db_blocker.unblock(),
        time_machine.travel(NOON, tick=False),
        transaction.atomic(),
    ):
        seed(monkeypatch, tmp_path_factory.mktemp("kubeconfigs"))
        yield
        transaction.set_rollback(True)


@pytest.fixture
def told(story: None, db: None) -> Iterator[None]:
    with time_machine.travel(NOON, tick=False):
        yield


def visitor(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.get(username=name))
    return client


def test_last_month_is_closed_with_statements_and_their_files(told: None) -> None:
    month = BillingPeriod.objects.get(name="2026-10")
    papers = list(Statement.objects.filter(period=month))
    assert month.closed_at is not None
    assert {paper.account.slug for paper in papers if paper.account} == {"acme", "globex"}
    assert all(paper.state == Statement.State.ISSUED and paper.number for paper in papers)
    assert all(paper.payable > 0 for paper in papers if paper.account)
    file = visitor("finance").get(f"/billing/statements/{papers[0].pk}/pdf/")
    assert b"".join(file).startswith(b"%PDF") if file.streaming else file.content[:4] == b"%PDF"


def test_what_was_told_late_is_corrected_in_the_month_that_runs(told: None) -> None:
    late = Correction.objects.filter(booked_in__name="2026-11")
    assert late.exists()
    assert {row.start.month for row in late} == {10}
    drafts = Statement.objects.filter(period__name="2026-11", lines__kind="correction")
    assert drafts.exists()


def test_a_job_was_stopped_for_another_and_ran_again(told: None) -> None:
    admin = User.objects.get(username="admin")
    place = newest_preempted(admin)
    assert place is not None
    detail = workload_detail(admin, *place)
    (row,) = preemptions_of(admin, detail)
    assert row.preemptor.namespace != row.victim.namespace
    assert row.preemptor.namespace.split("-")[0] == row.victim.namespace.split("-")[0]
    assert row.why.startswith("It was preempted: it ran on borrowed GPUs") and row.lost
    uids = {copy.uid for copy in detail.copies}
    spans = Interval.objects.filter(uid__in=uids, kind=Interval.Kind.BILLABLE).order_by("start")
    first, second = spans
    assert first.end == row.at < second.start and first.uid != second.uid


def test_a_worker_was_out_of_sight_in_the_month_that_runs(told: None) -> None:
    lost = Discrepancy.objects.get(kind=Discrepancy.Kind.UNWATCHED)
    assert lost.state == Discrepancy.State.OPEN
    assert (lost.start.month, lost.end.month) == (11, 11)
    assert not Interval.objects.filter(
        cluster=lost.cluster, admitted_at__gt=lost.start, end__lt=lost.end
    ).exists()


def test_unwatched_time_has_its_page_once_the_manager_was_asked(told: None) -> None:
    lost = Discrepancy.objects.get(kind=Discrepancy.Kind.UNWATCHED)
    lost.samples = [*lost.samples, ASKED]
    lost.save()
    assert visitor("finance").get(f"/billing/reconciliation/{lost.pk}/").status_code == 200


def test_a_request_waits_and_a_cap_holds_back(told: None) -> None:
    waiting = BudgetRevision.objects.get(state=BudgetRevision.State.REQUESTED)
    assert waiting.budget.workspace.namespace == "acme-research"
    held = {row.budget.workspace.namespace for row in SpendEffect.objects.all()}
    assert "globex-folding" in held


def test_costs_by_team_add_up(told: None) -> None:
    month = BillingPeriod.objects.get(name="2026-11")
    costs = job_costs(User.objects.get(username="finance"), UsageFilter(month.start, month.end))
    groups = job_groups(costs, TEAM)
    assert {group.value for group in groups} == set(TEAMS)
    assert sum(group.sums.cost for group in groups) + costs.unused == costs.charged


STEPS = {
    "owner": {"A job that waits", "A request that waits", "Change a budget", "Costs by team"},
    "admin": {
        *("A request that waits", "A job that was stopped for another", "A cap that was reached"),
        *("A worker that was lost and came back", "The fleet at one glance"),
    },
    "finance": {
        *("A month that is closed: 2026-10", "The statement of 2026-10"),
        *("The month that runs, with a correction: 2026-11", "Two people for what moves money"),
        *("A worker that was lost and came back", "A cap that was reached", "Costs by team"),
    },
    "controller": {"Two people for what moves money", "The statement of 2026-10"},
}


@pytest.mark.parametrize("name", STEPS)
@override_settings(PORTAL_DEMO=True)
def test_every_step_of_the_tour_leads_somewhere(told: None, name: str) -> None:
    client = visitor(name)
    page = client.get("/tour/")
    steps = page.context["steps"]
    assert {step.title for step in steps} >= STEPS[name]
    for step in steps:
        address = re.sub("#.*", "", step.url)
        assert client.get(address).status_code == 200, step
    assert 'href="/tour/"' in client.get("/jobs/").content.decode(), "the menu leads to it"


def test_a_real_installation_has_no_tour(told: None) -> None:
    client = visitor("admin")
    assert client.get("/tour/").status_code == 404
    assert "/tour/" not in client.get("/jobs/").content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("now", "want"),
    [
        (datetime(2026, 11, 1, 0, 5, tzinfo=UTC), datetime(2026, 10, 27, 0, 5, tzinfo=UTC)),
        (datetime(2026, 11, 30, 12, tzinfo=UTC), datetime(2026, 10, 30, 12, tzinfo=UTC)),
        (datetime(2027, 1, 3, tzinfo=UTC), datetime(2026, 12, 29, tzinfo=UTC)),
    ],
)
def test_the_past_begins_before_the_month(now: datetime, want: datetime) -> None:
    assert history_begins(now, 5) == want
