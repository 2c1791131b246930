"""Forecasts that were told are noted with what became of them, and a cluster's page says how often
they held."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine

from budgets.models import PendingSpan
from clusters.models import Cluster, ForecastMade, WorkloadState
from clusters.selectors.forecasts import forecasts_held
from clusters.services import forecasts, note_forecasts
from clusters.services.forecasts import LATE, settle_forecasts
from portal.celery import BEAT
from tests.builders import SmallFleet
from tests.explained.evidence import holder
from tests.explained.test_selectors import clusters as clusters  # a fixture
from tests.explained.test_selectors import job, reason, recorded, why
from tests.web.conftest import Visitors  # a fixture
from tests.web.conftest import visitors as visitors

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(autouse=True)
def _at_that_moment() -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


def told(state: WorkloadState, **facts: Any) -> ForecastMade:
    """One that was made two hours ago, for the hour before now."""
    return ForecastMade.objects.create(
        **{
            "cluster": state.cluster.slug,
            "uid": state.uid,
            "made_at": NOW - timedelta(hours=2),
            "low_s": 1800,
            "high_s": 3600,
            "earliest": NOW - timedelta(minutes=90),
            "latest": NOW - timedelta(hours=1),
            "coverage_percent": 80,
            **facts,
        }
    )


def waited(state: WorkloadState, end: datetime | None) -> None:
    PendingSpan.objects.create(
        cluster=state.cluster.slug,
        uid=state.uid,
        namespace=state.namespace,
        workload=state.name,
        gpus=8,
        start=NOW - timedelta(hours=3),
        end=end,
    )


def past(cluster: str, count: int, *, times: float = 1.0, has_held: bool = True) -> None:
    """Forecasts of an hour whose jobs waited ``times`` as long."""
    ForecastMade.objects.bulk_create(
        ForecastMade(
            cluster=cluster,
            uid=f"past-{cluster}-{number}",
            made_at=NOW - timedelta(hours=9),
            low_s=3600,
            high_s=3600,
            earliest=NOW - timedelta(hours=8),
            latest=NOW - timedelta(hours=8) + timedelta(seconds=number),
            coverage_percent=80,
            waited_s=round(3600 * times),
            has_held=has_held,
        )
        for number in range(count)
    )


def waiting(fleet: SmallFleet, cluster: Cluster, name: str = "eval-1") -> WorkloadState:
    """A job that waits for one of which twenty runs are known."""
    state = job(cluster, name)
    reason(state, holders=[holder("acme-vision/train-1", since=NOW.isoformat())])
    recorded(fleet.vision, 20)
    return state


def test_what_is_told_of_a_waiting_job_is_noted_once(fleet: SmallFleet, clusters):
    state = waiting(fleet, clusters["hub"])
    assert note_forecasts(now=NOW) == {"settled": 0, "noted": 1}
    [row] = ForecastMade.objects.all()
    found = why(fleet, state).forecast
    assert found is not None and found.latest is not None
    assert (row.cluster, row.uid, row.made_at) == ("hub", state.uid, NOW)
    assert abs(row.latest - found.latest) <= timedelta(minutes=2)
    assert row.coverage_percent == 80
    assert 0 <= row.low_s < row.high_s
    assert (row.waited_s, row.has_held) == (None, None)
    assert note_forecasts(now=NOW + timedelta(minutes=5)) == {"settled": 0, "noted": 0}


def test_each_turn_draws_one_job_of_each_cluster(fleet: SmallFleet, clusters):
    for name in ("eval-1", "eval-2", "eval-3"):
        waiting(fleet, clusters["hub"], name)
    waiting(fleet, clusters["gpu-east"], "local-1")
    assert note_forecasts(now=NOW)["noted"] == 2
    assert note_forecasts(now=NOW)["noted"] == 1
    assert note_forecasts(now=NOW)["noted"] == 1
    assert ForecastMade.objects.filter(cluster="hub").count() == 3


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"phase": "running"}, id="it runs"),
        pytest.param({"is_remote_copy": True}, id="it is a copy"),
        pytest.param({"evictions": 1}, id="it ran before"),
    ],
)
def test_of_a_job_that_does_not_wait_for_its_first_start_nothing_is_noted(
    fleet: SmallFleet, clusters, facts: dict[str, Any]
):
    state = waiting(fleet, clusters["hub"])
    WorkloadState.objects.filter(pk=state.pk).update(**facts)
    assert note_forecasts(now=NOW)["noted"] == 0


def test_where_nothing_is_told_nothing_is_noted(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1")
    reason(state, holders=[holder("acme-vision/train-1", since=NOW.isoformat())])
    assert note_forecasts(now=NOW)["noted"] == 0
    assert not ForecastMade.objects.exists()


@pytest.mark.parametrize(
    ("minutes", "held"),
    [
        pytest.param(-91, False, id="before its range"),
        pytest.param(-90, True, id="with its beginning"),
        pytest.param(-75, True, id="in it"),
        pytest.param(-60, True, id="with its end"),
        pytest.param(-30, False, id="after it"),
    ],
)
def test_a_range_holds_when_the_job_started_in_it(
    fleet: SmallFleet, clusters, minutes: int, held: bool
):
    end = NOW + timedelta(minutes=minutes)
    state = job(clusters["hub"], "eval-1", "running", admitted_at=end)
    row = told(state)
    waited(state, end)
    assert settle_forecasts(now=NOW) == 1
    row.refresh_from_db()
    assert row.has_held is held
    assert row.waited_s == (120 + minutes) * 60
    assert settle_forecasts(now=NOW) == 0


def test_a_job_that_still_waits_has_missed_its_range_and_is_looked_at_again(
    fleet: SmallFleet, clusters
):
    state = job(clusters["hub"], "eval-1")
    row = told(state)
    waited(state, None)
    settle_forecasts(now=NOW)
    row.refresh_from_db()
    assert (row.has_held, row.waited_s) == (False, None)
    PendingSpan.objects.update(end=NOW)
    WorkloadState.objects.update(phase="running", admitted_at=NOW)
    settle_forecasts(now=NOW)
    row.refresh_from_db()
    assert (row.has_held, row.waited_s) == (False, 7200)


def test_a_range_that_is_just_over_waits_for_the_ledger(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1")
    told(state, latest=NOW - LATE)
    waited(state, None)
    assert settle_forecasts(now=NOW) == 0
    assert settle_forecasts(now=NOW + timedelta(seconds=1)) == 1


@pytest.mark.parametrize("phase", ["gone", "pending"])
def test_a_job_that_left_its_queue_without_starting_is_forgotten(
    fleet: SmallFleet, clusters, phase: str
):
    state = job(clusters["hub"], "eval-1", phase)
    told(state)
    waited(state, NOW - timedelta(minutes=75))
    settle_forecasts(now=NOW)
    assert not ForecastMade.objects.exists()


def test_a_job_of_which_the_ledger_knows_nothing_is_forgotten(fleet: SmallFleet, clusters):
    told(job(clusters["hub"], "eval-1"))
    settle_forecasts(now=NOW)
    assert not ForecastMade.objects.exists()


def test_a_job_that_was_preempted_meanwhile_did_start(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1", evictions=1)
    row = told(state)
    waited(state, NOW - timedelta(minutes=75))
    PendingSpan.objects.create(
        cluster="hub", uid=state.uid, namespace=state.namespace, workload=state.name, gpus=8,
        start=NOW - timedelta(minutes=40), requeued=True,
    )  # fmt: skip
    settle_forecasts(now=NOW)
    row.refresh_from_db()
    assert (row.has_held, row.waited_s) == (True, 45 * 60)


def test_what_is_told_follows_what_became_of_earlier_forecasts(fleet: SmallFleet, clusters):
    state = waiting(fleet, clusters["hub"])
    before = why(fleet, state).forecast
    past("gpu-east", 40, times=3.0)
    assert why(fleet, state).forecast == before, "another cluster's count there alone"
    past("hub", 40, times=3.0)
    after = why(fleet, state).forecast
    assert before is not None and before.latest is not None and before.earliest is not None
    assert after is not None and after.latest is not None and after.earliest is not None
    assert after.latest - NOW == pytest.approx(3 * (before.latest - NOW), abs=timedelta(minutes=4))
    assert after.coverage == before.coverage


def test_old_forecasts_of_a_cluster_go(fleet: SmallFleet, clusters, monkeypatch):
    monkeypatch.setattr(forecasts, "KEPT", 5)
    past("hub", 7)
    past("gpu-east", 7)
    waiting(fleet, clusters["hub"])
    note_forecasts(now=NOW)
    assert ForecastMade.objects.filter(cluster="hub").count() == 5
    assert ForecastMade.objects.filter(cluster="hub", made_at=NOW).count() == 1
    assert ForecastMade.objects.filter(cluster="gpu-east").count() == 7


def test_the_page_of_a_cluster_says_how_often_forecasts_held(visitors: Visitors, clusters):
    page, api = "/clusters/hub/", "/api/v1/clusters/hub"
    assert "forecast" not in visitors.text("admin", page)
    assert visitors["admin"].get(api).json()["forecasts"] is None
    past("hub", 30)
    past("gpu-west", 9, has_held=False)
    for row in ForecastMade.objects.filter(cluster="hub")[:7]:
        row.has_held = False
        row.save(update_fields=["has_held"])
    told(job(clusters["hub"], "eval-1"))
    text = " ".join(visitors.text("admin", page).split())
    assert "Of the last 30 forecasts of when a job starts, 77 % held (stated: 80 %)." in text
    found = visitors["auditor"].get(api).json()["forecasts"]
    assert found == {"count": 30, "held_percent": 77, "stated_percent": 80}
    assert forecasts_held("gpu-east") is None


def test_beat_has_forecasts_noted():
    [row] = [row for row in BEAT if row[1] == "clusters.tasks.note_forecasts"]
    assert row[3] <= 600, "long waits are drawn from, not only jobs that just came"
