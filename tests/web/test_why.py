"""Why a job waits, on its page, in the lists and in the API; and when it is likely to start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from budgets.models import Interval
from clusters.models import Cluster, ShiftRun
from tests.explained.evidence import H100, holder, quota, waiting
from tests.factories import IntervalFactory, PendingReasonFactory
from tests.web.conftest import HTMX, Visitors
from tests.web.test_query_counts import add_job

pytestmark = pytest.mark.usefixtures("at_one_moment")
NOW = datetime.now(UTC)
PAGE = "/jobs/hub/uid-0/"
API = "/api/v1/workloads/hub/uid-0/why"


@pytest.fixture
def hub(visitors: Visitors) -> Cluster:
    """A manager with one waiting job, uid-0 of acme-vision, and a shift at work."""
    row = Cluster.objects.create(
        slug="hub",
        name="Hub",
        role="manager",
        mode="kueue",
        server="https://x",
        context="x",
        user_kind="token",
        kubeconfig_sealed=b"x",
    )
    now = datetime.now(UTC)
    ShiftRun.objects.create(
        cluster=row, role="shadow", holder="h", started_at=now, heartbeat_at=now
    )
    add_job(row, 0, now)
    return row


@pytest.fixture
def reason(hub: Cluster):
    return PendingReasonFactory(
        uid="uid-0",
        name="job-0",
        evidence=waiting(
            position=2,
            waiting=5,
            own=quota(nominal=16, used=8, potential=16, lent=8),
            holders=[
                holder("acme-vision/job-running", since=(NOW - timedelta(hours=1)).isoformat()),
                holder("globex-search/secret"),
            ],
            borrowers=[{"clusterQueue": "globex-search", "amounts": {H100: 8}}],
        ),
    )


def test_job_page_tells_why_it_waits(visitors: Visitors, reason):
    text = visitors.text("owner", PAGE)
    assert "Starts when committed H100 lent to others come back" in text
    assert "its priority, or its age, protects it" in text
    assert "acme-vision/job-running" in text
    assert "What would change it" in text
    assert "2 of 5" in text
    assert "globex" not in text and "secret" not in text
    assert "not running" not in text
    assert "globex-search/secret" in visitors.text("admin", PAGE)


def test_poll_of_the_job_page_has_the_reason(visitors: Visitors, reason):
    assert "Why it waits" in visitors.text("owner", PAGE, **HTMX)


def test_list_and_workspace_tell_the_sentence(visitors: Visitors, reason):
    for address in ("/jobs/", "/workspaces/acme-vision/"):
        assert "Starts when committed H100 lent to others come back" in visitors.text(
            "owner", address
        )


def test_stranger_finds_no_such_job(visitors: Visitors, reason):
    assert visitors["stranger"].get(PAGE).status_code == 404
    assert visitors["stranger"].get(API).status_code == 404


def test_reason_without_a_shift_at_work_says_so(visitors: Visitors, reason):
    ShiftRun.objects.all().delete()
    assert "may be out of date, because the portal is not at work on Hub now" in visitors.text(
        "owner", PAGE
    )


def test_job_without_a_reason_yet_says_so(visitors: Visitors, hub: Cluster):
    assert "The reason appears here within seconds" in visitors.text("owner", PAGE)
    ShiftRun.objects.all().delete()
    assert "The reason is not known yet" in visitors.text("owner", PAGE)


def test_page_tells_when_it_is_likely_to_start(visitors: Visitors, reason):
    assert "The portal cannot say when it starts" in visitors.text("owner", PAGE)
    for number in range(12):
        start = NOW - timedelta(days=2)
        IntervalFactory(
            workspace=visitors.fleet.vision,
            job_name="job-running",
            start=start,
            end=start + timedelta(minutes=90 + number),
            state=Interval.State.CLOSED,
        )
    text = visitors.text("owner", PAGE)
    assert "Likely to start between" in text
    assert "from 12 earlier runs" not in text, "a job of another account is among the holders"


def test_api_tells_why_with_the_evidence(visitors: Visitors, reason):
    answer = visitors["owner"].get(API)
    assert answer.status_code == 200
    found = answer.json()
    assert found["is_waiting"] is True
    assert found["sentence"].startswith("Starts when committed H100")
    assert found["detail"]["position"] == 2
    assert [row["name"] for row in found["detail"]["holders"]] == ["acme-vision/job-running"]
    assert found["forecast"]["confidence"] == "unknown"
    assert "globex" not in answer.content.decode()
    rows = visitors["owner"].get("/api/v1/workloads").json()["results"]
    assert rows[0]["why"] == found["sentence"]


def test_api_of_a_job_that_does_not_wait(visitors: Visitors, hub: Cluster):
    add_job(hub, 1, NOW)
    found = visitors["owner"].get("/api/v1/workloads/hub/uid-1/why").json()
    assert found["is_waiting"] is False
    assert (found["sentence"], found["detail"], found["forecast"]) == ("", None, None)


def test_owner_goes_on_to_what_if_and_a_viewer_does_not(visitors: Visitors, reason):
    link = "/what-if/?change=raise&amp;workspace=acme-vision&amp;flavor=h100&amp;by=8"
    assert link in visitors.text("owner", PAGE)
    assert link not in visitors.text("viewer", PAGE)
