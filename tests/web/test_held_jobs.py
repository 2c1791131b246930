"""A job whose queue stands still: page, list, API and command name what holds it, and until when.

The evidence is the engine's, on the objects that the portal would apply at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
import time_machine
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from budgets import services
from budgets.models import Budget, SpendRule, Workspace
from budgets.services.spending import break_glass, settle_spending
from clusters.explaining.stops import Stop
from clusters.kueue.explanation.why import explain
from clusters.models import Cluster, MaintenanceWindow, PendingReason, WorkloadState
from clusters.reconcile.explained.reporter import evidence_of
from clusters.selectors.reasons import read_reasons
from tests.builders import SmallFleet, hours
from tests.explained.engines import engine_of, job
from tests.factories import PendingReasonFactory
from tests.spending.conftest import ruled, running, unpriced
from tests.web.conftest import Visitors

__all__ = ["unpriced"]  # a fixture

PAGE = "/jobs/gpu-east/uid-0/"
RELEASE = "until an owner of the workspace or an admin releases it"
CAP = "2 GPU-hours of burst a day"


@pytest.fixture
def fleet(unpriced: SmallFleet) -> SmallFleet:
    """acme-vision with 8 of 24 H100 committed; it is March 1st, midnight, from now on."""
    return unpriced


@pytest.fixture
def worker(fleet: SmallFleet) -> Cluster:
    """The only worker of a manager."""
    rows = [
        Cluster.objects.create(
            slug=slug, name=slug, role=role, mode="kueue", server="https://x", context="x",
            user_kind="token", kubeconfig_sealed=b"x",
        )
        for slug, role in (("hub", "manager"), ("gpu-east", "worker"))
    ]  # fmt: skip
    return rows[-1]


def hold(fleet: SmallFleet) -> None:
    budget = Workspace.objects.get(pk=fleet.vision.pk).budget
    services.set_stop_policy(
        fleet.owner, budget=budget, policy=Budget.StopPolicy.HOLD, reason="benchmark week"
    )


def reach_cap(fleet: SmallFleet, **terms: object) -> None:
    """A rule made yesterday would count yesterday; this one is reached in the first two hours."""
    ruled(fleet, 2, **terms)
    running(fleet, 0)
    with time_machine.travel(hours(2), tick=False):
        settle_spending()


def close_worker(fleet: SmallFleet, flavor: str = "") -> None:
    MaintenanceWindow.objects.create(
        cluster=Cluster.objects.get(slug="gpu-east"),
        flavor=fleet.flavors[flavor] if flavor else None,
        starts_at=hours(-1),
        ends_at=hours(6),
        reason="globex moves its racks",
        state=MaintenanceWindow.State.ACTIVE,
    )


def waiting_job(fleet: SmallFleet, cluster: Cluster, gpus: int = 8) -> PendingReason:
    """A job of acme-vision as the cluster's shift would store it, by what is applied now."""
    engine = engine_of(cluster, job("job-0", "acme-vision", gpus))
    found = explain(engine, "acme-vision/job-0", now=hours(0))
    assert found is not None
    WorkloadState.objects.create(
        cluster=cluster, uid="uid-0", namespace="acme-vision", name="job-0", phase="pending",
        gpus={"": gpus}, gpu_total=gpus, created_at=hours(0), resource_version="1",
    )  # fmt: skip
    return PendingReasonFactory(
        cluster=cluster.slug, uid="uid-0", name="job-0", evidence=evidence_of(found, {})
    )


@pytest.mark.parametrize(
    ("cause", "want", "want_remedy"),
    [
        pytest.param(
            hold,
            f'Olga put its budget on hold at 2026-03-01 00:00 UTC ("benchmark week"): nothing '
            f"starts {RELEASE}.",
            "An owner of the workspace or an admin releases the hold.",
            id="a person's hold",
        ),
        pytest.param(
            reach_cap,
            f"The spend cap of {CAP} was reached at 2026-03-01 02:00 UTC: nothing starts until "
            "2026-03-02 00:00 UTC, or until an owner of the workspace, finance or an admin raises "
            "it.",
            "The cap starts over at 2026-03-02 00:00 UTC, or an owner of the workspace, finance "
            f"or an admin raises, removes or suspends the cap of {CAP}.",
            id="an owner's cap",
        ),
        pytest.param(
            lambda fleet: reach_cap(fleet, actor=fleet.finance),
            f"The spend cap of {CAP} was reached at 2026-03-01 02:00 UTC: nothing starts until "
            "2026-03-02 00:00 UTC, or until finance or an admin raises it.",
            "The cap starts over at 2026-03-02 00:00 UTC, or finance or an admin raises, removes "
            f"or suspends the cap of {CAP}.",
            id="the platform's cap",
        ),
        pytest.param(
            close_worker,
            "Worker gpu-east is closed for maintenance since 2026-02-28 23:00 UTC: nothing starts "
            "there until 2026-03-01 06:00 UTC.",
            "Maintenance of worker gpu-east ends at 2026-03-01 06:00 UTC, or an admin ends it "
            "earlier.",
            id="maintenance of the worker",
        ),
        pytest.param(
            lambda fleet: close_worker(fleet, "h100"),
            "No flavor of its budget suits it (H100: it is closed for maintenance until 2026-03-01 "
            "06:00 UTC).",
            "Maintenance of H100 on worker gpu-east ends at 2026-03-01 06:00 UTC, or an admin "
            "ends it earlier.",
            id="maintenance of the flavor",
        ),
    ],
)
def test_every_face_names_what_holds_the_queue(
    visitors: Visitors,
    worker: Cluster,
    cause: Callable[[SmallFleet], None],
    want: str,
    want_remedy: str,
):
    cause(visitors.fleet)
    with time_machine.travel(hours(2), tick=False):
        waiting_job(visitors.fleet, worker)
        shown = want.replace('"', "&quot;")
        for role in ("owner", "viewer", "admin"):
            text = visitors.text(role, PAGE)
            assert shown in text and want_remedy in text
            assert "globex" not in text, "the reason of a window is not for everybody"
        assert shown in visitors.text("owner", "/jobs/")
        answer = visitors["owner"].get("/api/v1/workloads/gpu-east/uid-0/why").json()
        assert answer["sentence"] == want
        assert answer["detail"]["remedies"] == [want_remedy]
        out = StringIO()
        call_command("why", "acme-vision/job-0", stdout=out)
        assert want in out.getvalue() and want_remedy in out.getvalue()


def test_api_has_each_of_several_that_hold_it_in_fields(visitors: Visitors, worker: Cluster):
    close_worker(visitors.fleet)
    reach_cap(visitors.fleet)
    with time_machine.travel(hours(2), tick=False):
        hold(visitors.fleet)
        waiting_job(visitors.fleet, worker)
        answer = visitors["owner"].get("/api/v1/workloads/gpu-east/uid-0/why").json()
    assert [
        (row["kind"], row["what"], row["since"], row["until"]) for row in answer["detail"]["stops"]
    ] == [
        ("person", "olga", "2026-03-01T02:00:00Z", None),
        ("cap", CAP, "2026-03-01T02:00:00Z", "2026-03-02T00:00:00Z"),
        ("maintenance", "worker gpu-east", "2026-02-28T23:00:00Z", "2026-03-01T06:00:00Z"),
    ]
    assert len(answer["detail"]["remedies"]) == 3


def test_manager_is_held_while_every_worker_is_closed(visitors: Visitors, worker: Cluster):
    close_worker(visitors.fleet)
    waiting_job(visitors.fleet, Cluster.objects.get(slug="hub"))
    assert "Every worker is closed for maintenance" in visitors.text("owner", "/jobs/hub/uid-0/")


def test_soft_cap_is_told_as_the_end_of_borrowing(visitors: Visitors, worker: Cluster):
    reach_cap(visitors.fleet, action="drop_to_floor")
    with time_machine.travel(hours(2), tick=False):
        waiting_job(visitors.fleet, Cluster.objects.get(slug="hub"), gpus=16)
        text = visitors.text("owner", "/jobs/hub/uid-0/")
    assert (
        "It asks for 16 H100, and its budget has no more than 8 H100 under the spend cap of "
        f"{CAP} (until 2026-03-02 00:00 UTC)" in text
    )


def stops() -> tuple[Stop, ...] | None:
    """Of the only job."""
    [found] = read_reasons(PendingReason.objects.all())
    return found.evidence.stops


def test_cap_whose_glass_is_broken_or_whose_window_has_turned_holds_nothing(
    visitors: Visitors, worker: Cluster
):
    reach_cap(visitors.fleet)
    with time_machine.travel(hours(2), tick=False):
        waiting_job(visitors.fleet, worker)
        assert stops()
        break_glass(
            visitors.fleet.owner,
            rule=SpendRule.objects.get(),
            until=hours(3),
            reason="the paper is due",
        )
        assert stops() == ()
    with time_machine.travel(hours(4), tick=False):
        assert stops(), "the glass is whole again"
    with time_machine.travel(hours(25), tick=False):
        assert stops() == ()


def test_archived_workspace_is_told_and_not_its_hold(visitors: Visitors, worker: Cluster):
    fleet = visitors.fleet
    row = waiting_job(fleet, worker)
    hold(fleet)
    Workspace.objects.filter(pk=fleet.vision.pk).update(archived_at=hours(0))
    PendingReason.objects.filter(pk=row.pk).update(
        evidence=row.evidence | {"hold": "Hold", "holdKind": "ClusterQueue"}
    )
    out = StringIO()
    call_command("why", "acme-vision/job-0", stdout=out)
    assert "Its workspace was archived at 2026-03-01 00:00 UTC" in out.getvalue()
    assert "put its budget on hold" not in out.getvalue()


def test_records_are_read_once_for_many_jobs_and_not_at_all_without_need(
    visitors: Visitors, worker: Cluster
):
    reach_cap(visitors.fleet)
    with time_machine.travel(hours(2), tick=False):
        row = waiting_job(visitors.fleet, worker)
        for number in range(20):
            PendingReasonFactory(cluster=row.cluster, uid=f"more-{number}", evidence=row.evidence)
        with CaptureQueriesContext(connection) as many:
            assert len(read_reasons(PendingReason.objects.all())) == 21
        assert len(many) <= 7
    free = row.evidence | {"hold": "", "reason": "WaitingForQuota"}
    PendingReason.objects.update(evidence=free)
    with CaptureQueriesContext(connection) as none:
        read_reasons(PendingReason.objects.all())
    assert len(none) == 1


def test_window_ends_and_the_job_is_told_so(visitors: Visitors, worker: Cluster):
    """The records are asked when somebody reads, not when the evidence was stored."""
    close_worker(visitors.fleet)
    waiting_job(visitors.fleet, worker)
    MaintenanceWindow.objects.update(
        state=MaintenanceWindow.State.OVER, ended_at=hours(0) + timedelta(minutes=1)
    )
    assert "nothing asks for it any more" in visitors.text("owner", PAGE)
