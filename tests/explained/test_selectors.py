"""Stored reasons as a person may read them: on the list, on the job's page, with the forecast."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from budgets import services
from budgets.models import Interval, PendingSpan, Workspace
from clusters import selectors
from clusters.forecasting import Confidence
from clusters.models import (
    Cluster,
    ClusterHealth,
    NodeSight,
    PendingReason,
    ShiftRun,
    WorkloadEvent,
    WorkloadState,
)
from clusters.selectors import WorkloadFilter
from tests.builders import SmallFleet
from tests.explained.evidence import H100, attempt, holder, quota, waiting
from tests.factories import IntervalFactory, PendingReasonFactory
from tests.reconcile.racks import BLOCK, HOST, RACK

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("at_one_moment")]
NOW = datetime.now(UTC)
ROOM = quota(nominal=16, used=8, potential=32)
CHECK = {"name": "budget", "state": "Pending", "message": "the cap is reached"}


@pytest.fixture
def clusters(fleet: SmallFleet) -> dict[str, Cluster]:
    rows = {}
    for slug, role in (("hub", "manager"), ("gpu-east", "worker"), ("gpu-west", "worker")):
        rows[slug] = Cluster.objects.create(
            slug=slug,
            name=slug.title(),
            role=role,
            mode="kueue",
            server="https://example.invalid",
            context=slug,
            user_kind="bearer token",
            kubeconfig_sealed=b"sealed",
        )
    return rows


def job(cluster: Cluster, name: str, phase: str = "pending", **facts: Any) -> WorkloadState:
    return WorkloadState.objects.create(
        **{
            "cluster": cluster,
            "uid": f"uid-{name}-{cluster.slug}",
            "namespace": "acme-vision",
            "name": name,
            "job_name": name,
            "phase": phase,
            "gpus": {"": 8},
            "gpu_total": 8,
            "created_at": NOW,
            "resource_version": "1",
            **facts,
        }
    )


def reason(state: WorkloadState, **evidence: Any) -> PendingReason:
    return PendingReasonFactory(
        cluster=state.cluster.slug,
        uid=state.uid,
        namespace=state.namespace,
        name=state.name,
        evidence=waiting(**evidence),
    )


def why(fleet: SmallFleet, state: WorkloadState, user: str = "owner") -> selectors.WhyPending:
    found = selectors.why_pending(getattr(fleet, user), state.cluster.slug, state.uid)
    assert found is not None
    return found


def test_list_has_the_sentence_of_every_waiting_job(fleet: SmallFleet, clusters):
    waits, runs = job(clusters["hub"], "a"), job(clusters["hub"], "b", "running", worker="gpu-east")
    reason(waits)
    reason(runs)
    page = selectors.workloads(fleet.owner, WorkloadFilter())
    told = {row.name: row.why for row in page.rows}
    assert told["a"].startswith("Waits for 8 H100")
    assert told["b"] == ""


def test_reason_of_an_older_workload_of_that_name_is_not_told(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a")
    PendingReasonFactory(cluster="hub", uid="older", name="a")
    assert selectors.workloads(fleet.owner, WorkloadFilter()).rows[0].why == ""
    assert why(fleet, state).sentence == ""


def test_owner_reads_no_foreign_name_in_what_the_cluster_told(fleet: SmallFleet, clusters):
    told = (
        "Preempted to accommodate a workload (UID: 12, JobUID: 34) due to reclamation within the "
        "cohort; preemptor path: /acme/acme-speech; preemptee path: /acme/acme-vision"
    )
    job(clusters["hub"], "a", "evicted", message=told)
    job(clusters["hub"], "b", message="waits for globex-search/crawl of globex")
    for name in ("a", "b"):
        row = selectors.workloads(fleet.owner, WorkloadFilter(text=name)).rows[0]
        detail = selectors.workload_detail(fleet.owner, "hub", row.uid)
        for text in (row.message, row.why, detail.sentence, detail.row.message):
            assert not {"speech", "globex", "search", "12", "34"} & set(
                text.replace("/", " ").replace("-", " ").split()
            )
    admin = selectors.workloads(fleet.admin, WorkloadFilter(text="b")).rows[0]
    assert admin.message == "waits for globex-search/crawl of globex"


def test_owner_reads_no_foreign_name_in_the_time_line(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a")
    stopped = {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "Preempted; preemptor path: /acme/acme-speech; preemptee path: /acme/x",
        "lastTransitionTime": "2026-03-02T12:00:00Z",
    }
    WorkloadEvent.objects.create(
        cluster="hub",
        uid=state.uid,
        resource_version="1",
        type="SEEN",
        namespace=state.namespace,
        name=state.name,
        observed_at=NOW,
        digest="x",
        payload={"status": {"conditions": [stopped]}},
    )
    for user, want in ((fleet.owner, False), (fleet.admin, True)):
        timeline = selectors.workload_detail(user, "hub", state.uid).timeline
        [entry] = [entry for entry in timeline if entry.told]
        assert entry.detail == "It was preempted: another job needed its GPUs."
        assert entry.told.startswith("Preempted: Preempted")
        assert ("preemptor path: /acme/acme-speech" in entry.told) is want
        assert want or entry.told == "Preempted: Preempted"


def test_owner_of_one_workspace_reads_siblings_without_their_name(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a")
    own = quota(nominal=16, used=8, potential=16, lent=8)
    reason(
        state,
        own=own,
        borrowers=[{"clusterQueue": "acme-speech", "amounts": {H100: 8}}],
        holders=[holder("acme-speech/asr")],
    )
    found = why(fleet, state)
    assert (
        found.sentence == "Starts when committed H100 lent to another workspace of Acme come back."
    )
    assert found.detail is not None
    assert [item.name for item in found.detail.holders] == ["another workspace of Acme"]
    admins = why(fleet, state, "admin")
    assert admins.sentence == "Starts when the 8 H100 lent to workspace Speech of Acme come back."


def test_job_without_a_worker_is_explained_worker_by_worker(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a", "reserved")
    copy = job(clusters["gpu-east"], "a", is_remote_copy=True)
    reason(copy)
    ClusterHealth.objects.create(cluster=clusters["gpu-west"], reachable=False)
    found = why(fleet, state, "admin")
    assert [place.cluster for place in found.places] == ["gpu-east", "gpu-west"]
    assert found.sentence == (
        "It has its quota and waits for a worker. Gpu-East: waits for 8 H100: 8 more are needed; "
        "16 of its 16 committed are in use and none may be borrowed; Gpu-West: it cannot be "
        "reached."
    )
    row = selectors.workloads(fleet.admin, WorkloadFilter()).rows[0]
    assert row.why == found.sentence


def test_owner_of_a_job_without_a_worker_reads_of_none_by_name(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a", "reserved")
    reason(job(clusters["gpu-east"], "a", is_remote_copy=True))
    reason(job(clusters["gpu-west"], "a", is_remote_copy=True))
    found = why(fleet, state)
    assert [place.cluster for place in found.places] == [""]
    assert found.sentence == (
        "It has its quota and waits for a worker. On workers: waits for 8 H100: 8 more are needed; "
        "16 of its 16 committed are in use and none may be borrowed."
    )
    ClusterHealth.objects.create(cluster=clusters["gpu-east"], reachable=False)
    ClusterHealth.objects.create(cluster=clusters["gpu-west"], reachable=False)
    found = why(fleet, state)
    assert (found.sentence, found.places) == (
        "It has its quota and waits for a worker to take it.",
        (),
    )


def test_job_of_somebody_else_is_not_there(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a", namespace="globex-search")
    with pytest.raises(WorkloadState.DoesNotExist):
        selectors.why_pending(fleet.owner, "hub", state.uid)


def test_running_job_has_no_why(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a", "running", worker="gpu-east")
    assert selectors.why_pending(fleet.owner, "hub", state.uid) is None


def test_reason_is_stale_without_a_shift(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a")
    reason(state)
    assert why(fleet, state).is_stale
    now = datetime.now(UTC)
    ShiftRun.objects.create(
        cluster=clusters["hub"], role="shadow", holder="h", started_at=now, heartbeat_at=now
    )
    assert not why(fleet, state).is_stale


def recorded(
    workspace: Workspace, count: int, *, name: str = "train", minutes: int = 60, **facts: Any
) -> None:
    """So many runs, ten minutes apart in length."""
    for number in range(count):
        start = NOW - timedelta(days=1)
        IntervalFactory(
            **{
                "workspace": workspace,
                "flavor": "h100",
                "job_name": f"{name}-{number}",
                "start": start,
                "end": start + timedelta(minutes=minutes + number),
                "state": Interval.State.CLOSED,
                **facts,
            }
        )


def test_forecast_comes_from_runs_of_the_same_kind(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1")
    job(clusters["gpu-east"], "w1", "running", job_name="train-77", worker="gpu-east")
    since = (NOW - timedelta(minutes=30)).isoformat()
    reason(state, holders=[holder("acme-vision/w1", since=since)])
    recorded(fleet.vision, 20)
    recorded(fleet.vision, 20, name="other", minutes=6000)
    found = why(fleet, state).forecast
    assert found is not None and found.earliest is not None and found.latest is not None
    assert found.confidence is Confidence.GOOD
    assert found.runs == 20
    assert NOW + timedelta(minutes=28) <= found.earliest
    assert found.latest <= NOW + timedelta(minutes=53)


def test_forecast_is_unknown_without_records(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1")
    reason(state, holders=[holder("acme-vision/w1", since=NOW.isoformat())])
    found = why(fleet, state).forecast
    assert found is not None and found.confidence is Confidence.UNKNOWN
    assert "no run" in found.why_unknown


def test_forecast_does_not_tell_how_many_runs_others_have(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1")
    held = [holder("globex-search/train-1", since=NOW.isoformat(), protection="PRIORITY")]
    reason(state, holders=held, own=quota(nominal=16, used=8, available=0, potential=32))
    recorded(fleet.search, 20)
    found = why(fleet, state).forecast
    assert found is not None and found.earliest is not None
    assert found.runs == 0
    admins = why(fleet, state, "admin").forecast
    assert admins is not None and admins.runs == 20


def test_forecast_is_silent_where_few_runs_of_that_kind_are_known(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1")
    reason(state, holders=[holder("acme-vision/train-1", since=NOW.isoformat())])
    recorded(fleet.vision, 9)
    recorded(fleet.vision, 20, name="other")
    found = why(fleet, state).forecast
    assert found is not None and found.confidence is Confidence.UNKNOWN


def test_forecast_is_silent_where_recent_jobs_started_much_sooner(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1")
    reason(state, holders=[holder("acme-vision/train-1", since=NOW.isoformat())])
    recorded(fleet.vision, 20)
    assert why(fleet, state).forecast.earliest is not None
    for number in range(5):
        PendingSpan.objects.create(
            cluster="hub",
            uid=f"waited-{number}",
            namespace="acme-vision",
            workload=f"waited-{number}",
            gpus=8,
            start=NOW - timedelta(hours=number, seconds=38),
            end=NOW - timedelta(hours=number),
        )
    found = why(fleet, state).forecast
    assert (found.earliest, found.runs) == (None, 0)
    assert "lately started much sooner" in found.why_unknown


def test_those_ahead_in_the_queue_make_it_later(fleet: SmallFleet, clusters):
    first, second = job(clusters["hub"], "train-21"), job(clusters["hub"], "train-22")
    since = NOW.isoformat()
    for position, state in ((1, first), (2, second)):
        held = [holder("acme-vision/train-1", since=since)]
        reason(state, holders=held, position=position, clusterQueue="acme-vision")
    recorded(fleet.vision, 20)
    sooner, later = (why(fleet, state).forecast for state in (first, second))
    assert sooner is not None and later is not None
    assert sooner.latest is not None and later.earliest is not None
    assert later.earliest > sooner.latest


def test_run_that_went_on_later_counts_as_cut_off(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "eval-1")
    reason(state, holders=[holder("acme-vision/train-1", since=NOW.isoformat())])
    for number in range(10):
        recorded(fleet.vision, 1, uid=f"cut-{number}", epoch=1, minutes=5)
        recorded(fleet.vision, 1, uid=f"cut-{number}", epoch=2, minutes=90 + number)
    found = why(fleet, state).forecast
    assert found is not None and found.earliest is not None
    assert found.runs == 10
    assert found.earliest >= NOW + timedelta(minutes=80)


def test_operator_finds_reasons_by_workload_or_job(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "job-train-x1", job_name="train")
    reason(state, own=ROOM, holders=[holder("globex-search/w1", since=NOW.isoformat())])
    for name in ("job-train-x1", "train"):
        [found] = selectors.stored_why("acme-vision", name)
        assert (found.cluster, found.key) == ("hub", "acme-vision/job-train-x1")
        assert found.detail.holders[0].name == "globex-search/w1"
        assert found.forecast is not None
    assert selectors.stored_why("globex-search", "train") == []


def test_job_that_no_worker_was_offered_yet_says_so(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a", "reserved")
    reason(state, reason="CheckPending", attempts=[], lacking={}, checks=[CHECK])
    assert why(fleet, state).sentence == "It has its quota and waits for a worker to take it."


def test_job_on_a_worker_that_waits_for_a_check_is_explained(fleet: SmallFleet, clusters):
    state = job(clusters["gpu-east"], "a", "reserved")
    reason(state, reason="CheckPending", attempts=[], lacking={}, checks=[CHECK])
    want = "It has its quota and waits for the check budget: the cap is reached."
    assert why(fleet, state).sentence == want


def test_job_that_a_worker_has_taken_does_not_wait(fleet: SmallFleet, clusters):
    state = job(clusters["hub"], "a", "reserved", worker="gpu-east")
    assert selectors.why_pending(fleet.owner, "hub", state.uid) is None


NO_PLACE = 'topology "racks" allows to fit only 2 out of 8 pod(s)'


def racked(fleet: SmallFleet) -> None:
    """Five racks of two nodes of 8 GPUs, all in use in each but one node of every rack."""
    topology = services.create_topology(
        None, slug="racks", name="Racks", levels=[BLOCK, RACK, HOST]
    )
    services.give_topology(None, flavor=fleet.flavors["h100"], topology=topology)
    for number in range(10):
        labels = {BLOCK: "b0", RACK: f"r{number // 2}", HOST: f"n{number}"}
        used = 20 * (number % 2)
        NodeSight.objects.create(
            cluster="gpu-east", name=f"n{number}", flavor="h100", labels=labels, gpus=8, used=used
        )
    for name, labels in (("loose", {HOST: "loose"}), ("else", {BLOCK: "b0", RACK: "r9"})):
        cluster = "gpu-east" if name == "loose" else "gpu-west"
        NodeSight.objects.create(
            cluster=cluster, name=name, flavor="h100", labels=labels, gpus=64, used=0
        )


def test_what_racks_have_free_is_told_of_a_job_that_none_holds(
    fleet: SmallFleet, clusters, django_assert_max_num_queries: Any
):
    racked(fleet)
    waits = job(clusters["gpu-east"], "a")
    free = quota(nominal=96, used=16, available=80, potential=96)
    found = reason(waits, own=free, gpus=64, lacking=0, message=NO_PLACE, within=RACK)
    found.evidence |= {"attempts": [attempt(mode="FIT")], "lacking": {}}
    found.save()
    with django_assert_max_num_queries(16):
        told = why(fleet, waits, "admin").sentence
    assert told == (
        "Its pods with 64 H100 cannot be placed together in topology Racks, as the job asks: 2 of "
        "8 pods would fit, though 80 H100 are free in the quota; the rack with most room has 8 "
        "free, and 40 are free on all nodes."
    )
    assert "free" not in why(fleet, waits).sentence
    found.evidence["within"] = BLOCK
    found.save()
    assert "the block with most room has 40 free" in why(fleet, waits, "admin").sentence
    for within in ("example.com/row", ""):
        found.evidence["within"] = within
        found.save()
        assert "most room" not in why(fleet, waits, "admin").sentence
