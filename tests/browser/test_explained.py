"""Why a job waits, read by its owner; what a change would lead to, asked by an admin."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError
from playwright.sync_api import expect

from budgets.models import Interval
from clusters.models import Cluster, PendingReason, Question, ShiftRun, WorkloadState
from tests.builders import SmallFleet, line
from tests.explained.engines import answer, engine_of, held, job
from tests.explained.evidence import H100, holder, quota, waiting
from tests.factories import IntervalFactory, PendingReasonFactory
from tests.waiting import eventually

NOW = datetime.now(UTC)


@pytest.fixture
def explained(fleet: SmallFleet) -> dict[str, Cluster]:
    """A manager and two workers with shifts at work; one job of vision waits for lent GPUs."""
    fleet.revise(fleet.vision, line("h100", 16))
    fleet.revise(fleet.search, line("h100", 8))
    rows = {}
    for slug, role in (("hub", "manager"), ("gpu-east", "worker"), ("gpu-west", "worker")):
        rows[slug] = Cluster.objects.create(
            slug=slug,
            name=slug.title(),
            role=role,
            mode="kueue",
            server="https://cluster.invalid",
            context="x",
            user_kind="bearer token",
            kubeconfig_sealed=b"x",
        )
        ShiftRun.objects.create(
            cluster=rows[slug],
            role="shadow",
            holder="h",
            started_at=NOW,
            heartbeat_at=NOW + timedelta(minutes=10),
        )
    WorkloadState.objects.create(
        cluster=rows["hub"],
        uid="uid-1",
        namespace="acme-vision",
        name="job-train-1",
        job_name="train-1",
        job_kind="Job",
        phase="pending",
        gpus={"": 8},
        gpu_total=8,
        created_at=NOW - timedelta(minutes=20),
        resource_version="1",
    )
    for number in range(12):
        start = NOW - timedelta(days=2)
        IntervalFactory(
            workspace=fleet.vision,
            job_name="job-eval",
            start=start,
            end=start + timedelta(minutes=90 + 5 * number),
            state=Interval.State.CLOSED,
        )
    PendingReasonFactory(
        uid="uid-1",
        name="job-train-1",
        since=NOW - timedelta(minutes=19),
        evidence=waiting(
            4,
            position=2,
            waiting=3,
            own=quota(nominal=16, used=8, available=4, potential=24, lent=4),
            holders=[
                holder("acme-vision/job-eval-9", since=(NOW - timedelta(minutes=60)).isoformat()),
            ],
            borrowers=[{"clusterQueue": "acme-speech", "amounts": {H100: 4}}],
        ),
    )
    return rows


def test_owner_reads_why_a_job_waits(visit, explained):
    watched = visit()
    page = watched.sign_in("olga")
    page.get_by_role("link", name="Jobs").first.click()
    sentence = "Starts when committed H100 lent to another workspace of Acme come back"
    expect(page.get_by_text(sentence)).to_be_visible()
    watched.check()
    page.get_by_role("link", name="train-1").click()
    expect(page.get_by_text(sentence)).to_be_visible()
    why = page.get_by_role("region", name="Why it waits")
    expect(why.get_by_text("2 of 3")).to_be_visible()
    expect(why.get_by_text("acme-vision/job-eval-9")).to_be_visible()
    expect(why.get_by_text("What would change it")).to_be_visible()
    expect(page.get_by_text("Likely to start between")).to_be_visible()
    watched.check()
    watched.keep("owner-why")

    # The next poll brings what the shift has found out in the meantime.
    row = PendingReason.objects.get()
    row.evidence = waiting(hold="Hold", holdKind="ClusterQueue")
    row.save()
    expect(page.get_by_text("Its budget is still on hold on the cluster")).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_admin_asks_what_if(visit, explained, scripts: bool):
    watched = visit(scripts=scripts)
    page = watched.sign_in("ada")
    page.get_by_role("link", name="Workspaces", exact=True).click()
    page.get_by_role("link", name="Vision").click()
    page.get_by_role("link", name="What if …").click()
    form = page.get_by_role("form", name="Change a budget")
    expect(form.get_by_label("Workspace")).to_have_value("acme-vision")
    expect(form.get_by_label("GPUs")).to_have_value("8")
    if scripts:
        watched.check()

    form.get_by_role("button", name="Show what would happen").click()
    panel = page.get_by_role("complementary", name="Answer")
    expect(panel.get_by_text("The cluster is calculating").first).to_be_visible()
    answer_everything(explained)
    if not scripts:
        panel.get_by_role("link", name="Look again").first.click()
    expect(panel.get_by_text("1 waiting job starts as soon as a worker has room")).to_be_visible()
    panel.get_by_text("What each cluster answered").click()
    expect(panel.get_by_text("1 job starts").first).to_be_visible()
    expect(panel.get_by_text("acme-vision/second").first).to_be_visible()
    expect(panel.get_by_text("gains 8 H100").first).to_be_visible()
    assert re.search(r"by=8.*q=", page.url)
    if scripts:
        watched.check()
        watched.keep("admin-what-if")
        page.reload()
        expect(panel.get_by_text("1 waiting job starts")).to_be_visible()

    drain = page.get_by_role("form", name="Drain a worker")
    drain.get_by_label("Worker").select_option("gpu-east")
    drain.get_by_role("button", name="Show what would happen").click()
    expect(panel.get_by_text("The cluster is calculating").first).to_be_visible()
    answer_everything(explained)
    if not scripts:
        panel.get_by_role("link", name="Look again").first.click()
    expect(panel.get_by_text("stopped").first).to_be_visible()
    if scripts:
        watched.open("/clusters/hub/shadow/")
        watched.check()


def answer_everything(clusters: dict[str, Cluster]) -> None:
    """Answer the open questions as the clusters' shifts would."""

    def is_answered() -> bool:
        for row in Question.objects.filter(answered_at=None):
            workloads = (held("first", "acme-vision", 16), job("second", "acme-vision", 8))
            try:
                answer(engine_of(clusters[row.cluster], *workloads), row)
            except OperationalError:
                return False  # the server writes at this moment; SQLite has one writer
        return not Question.objects.filter(answered_at=None).exists()

    eventually(is_answered, why="questions stay open")
