"""Bars, the list of jobs and one job, as a person may see them."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from budgets.errors import Rejected
from budgets.models import Flavor, WorkloadUsage, Workspace
from budgets.services import create_pool, set_pool_amount
from clusters import selectors
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.selectors import WorkloadFilter
from tests.builders import START, SmallFleet, hours, line

pytestmark = pytest.mark.django_db
_numbers = count(1)


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


def seen(cluster: Cluster, namespace: str, name: str, phase: str, **facts: Any) -> WorkloadState:
    number = next(_numbers)
    gpus = facts.pop("gpus", {"h100": 8} if phase != "pending" else {"": 8})
    return WorkloadState.objects.create(
        **{
            "cluster": cluster,
            "uid": f"uid-{number}",
            "namespace": namespace,
            "name": name,
            "phase": phase,
            "gpus": gpus,
            "gpu_total": sum(gpus.values()),
            "created_at": START + timedelta(minutes=number),
            "resource_version": "1",
            **facts,
        }
    )


def dispatched(
    clusters: dict[str, Cluster],
    namespace: str,
    name: str,
    *,
    worker: str = "gpu-east",
    **gpus: int,
) -> tuple[WorkloadState, WorkloadState]:
    """A running job as manager and worker show it; the flavors are the worker's."""
    own = seen(clusters["hub"], namespace, name, "running", worker=worker)
    copy = seen(
        clusters[worker],
        namespace,
        name,
        "running",
        gpus=gpus or {"h100": 8},
        is_remote_copy=True,
        admitted_at=hours(1),
    )
    return own, copy


def bars(workspace: Workspace) -> dict[str, selectors.BudgetBar]:
    found = selectors.bars_now([workspace])[workspace.pk]
    return {bar.flavor: bar for bar in found}


def test_bars_split_use_into_committed_and_burst(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    fleet.revise(fleet.vision, line("h100", 8, 16), line("l4", 4))
    dispatched(clusters, "acme-vision", "one", h100=8)
    dispatched(clusters, "acme-vision", "two", worker="gpu-west", h100=4, l4=2)
    found = bars(fleet.vision)
    assert list(found) == ["h100", "l4"]
    h100 = found["h100"]
    assert (h100.committed, h100.ceiling, h100.used) == (8, 16, 12)
    assert (h100.committed_used, h100.burst) == (8, 4)
    assert h100.on_workers == {"gpu-east": 8, "gpu-west": 4}
    assert (found["l4"].committed_used, found["l4"].burst) == (2, 0)


def test_bars_waiting_stands_under_the_home_flavor(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    fleet.revise(fleet.vision, line("h100", 8), line("l4", 4))
    seen(clusters["hub"], "acme-vision", "waits", "pending")
    seen(clusters["gpu-east"], "acme-vision", "waits", "pending", is_remote_copy=True)
    seen(clusters["hub"], "acme-vision", "off", "pending", reason="Deactivated")
    seen(clusters["hub"], "acme-vision", "undispatched", "reserved", gpus={"h100": 2})
    found = bars(fleet.vision)
    assert {flavor: bar.pending for flavor, bar in found.items()} == {"h100": 10, "l4": 0}
    assert found["h100"].used == 0


def test_bars_race_counts_only_the_copy_that_the_manager_named(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    fleet.revise(fleet.vision, line("h100", 16))
    dispatched(clusters, "acme-vision", "raced", worker="gpu-west")
    seen(clusters["gpu-east"], "acme-vision", "raced", "running", is_remote_copy=True)
    assert bars(fleet.vision)["h100"].on_workers == {"gpu-west": 8}


def test_bars_lend_what_others_take_beyond_the_pool(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    fleet.revise(fleet.vision, line("h100", 0, 16))
    fleet.revise(fleet.speech, line("h100", 8, 8, 6))
    dispatched(clusters, "acme-vision", "burst", h100=4)
    assert bars(fleet.speech)["h100"].lent == 4
    pool = create_pool(None, slug="extra", name="Extra", account=fleet.acme)
    set_pool_amount(None, pool=pool, flavor=Flavor.objects.get(slug="h100"), gpus=3)
    pool.refresh_from_db()
    assert pool.in_force == {"h100": 3}
    assert bars(fleet.speech)["h100"].lent == 1
    assert bars(fleet.vision)["h100"].burst == 4


def test_bars_flavor_without_a_line_is_shown_while_it_is_held(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    dispatched(clusters, "acme-vision", "late", a100=4)
    (bar,) = selectors.bars_now([fleet.vision])[fleet.vision.pk]
    assert (bar.flavor, bar.committed, bar.ceiling, bar.burst) == ("a100", 0, 0, 4)


def test_bars_and_counts_take_a_fixed_number_of_queries(
    fleet: SmallFleet, clusters: dict[str, Cluster], django_assert_num_queries: Any
) -> None:
    for number in range(12):
        dispatched(clusters, "acme-vision", f"job-{number}")
    with django_assert_num_queries(5):
        selectors.bars_now([fleet.vision, fleet.speech, fleet.search])
    with django_assert_num_queries(1):
        found = selectors.workload_counts([fleet.vision, fleet.speech])
    assert found == {"acme-vision": (0, 12)}


def test_workloads_one_row_per_job_with_what_the_worker_knows(
    fleet: SmallFleet, clusters: dict[str, Cluster], django_assert_num_queries: Any
) -> None:
    own, _ = dispatched(clusters, "acme-vision", "train", h100=6, l4=2)
    local = seen(clusters["gpu-west"], "acme-vision", "local", "running")
    seen(clusters["hub"], "globex-search", "waits", "pending", message="no room")
    with django_assert_num_queries(6):
        page = selectors.workloads(fleet.admin, WorkloadFilter())
    rows = {row.name: row for row in page.rows}
    assert list(rows) == ["waits", "local", "train"]
    assert (rows["train"].uid, rows["train"].cluster) == (own.uid, "hub")
    assert (rows["train"].flavors, rows["train"].worker) == ("6 H100, 2 L4", "gpu-east")
    assert (rows["train"].phase_label, rows["train"].admitted_at) == ("Running", hours(1))
    assert (rows["local"].worker, rows["local"].uid) == ("gpu-west", local.uid)
    assert (rows["waits"].message, rows["waits"].flavors) == ("no room", "")


def test_workloads_undispatched_job_says_what_its_copies_wait_for(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    seen(clusters["hub"], "acme-vision", "train", "reserved")
    seen(
        clusters["gpu-west"], "acme-vision", "train", "pending", is_remote_copy=True, message="full"
    )
    (row,) = selectors.workloads(fleet.admin, WorkloadFilter()).rows
    assert (row.phase, row.phase_label) == ("reserved", "Waiting for a worker")
    assert row.message == "Gpu-West: full"


def test_workloads_are_limited_to_what_a_person_sees(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    mine = seen(clusters["hub"], "acme-vision", "mine", "running")
    other = seen(clusters["hub"], "acme-speech", "other", "running")
    seen(clusters["hub"], "elsewhere", "foreign", "running")
    names = [row.name for row in selectors.workloads(fleet.owner, WorkloadFilter()).rows]
    assert names == ["mine"]
    asked = WorkloadFilter(namespaces=("acme-speech",))
    assert selectors.workloads(fleet.owner, asked).rows == ()
    assert selectors.workload_detail(fleet.owner, "hub", mine.uid).row.name == "mine"
    with pytest.raises(WorkloadState.DoesNotExist):
        selectors.workload_detail(fleet.owner, "hub", other.uid)


@pytest.mark.parametrize(
    ("wanted", "want"),
    [
        pytest.param(WorkloadFilter(phases=("running",)), {"big", "small"}, id="phase"),
        pytest.param(WorkloadFilter(text="bi"), {"big"}, id="name"),
        pytest.param(WorkloadFilter(text="nightly"), {"waits"}, id="name of the job"),
        pytest.param(WorkloadFilter(cluster="gpu-west"), {"small"}, id="worker"),
        pytest.param(WorkloadFilter(flavor="l4"), {"small"}, id="flavor of the worker"),
        pytest.param(WorkloadFilter(namespaces=("acme-vision",)), {"big", "waits"}, id="workspace"),
    ],
)
def test_workloads_filter(
    fleet: SmallFleet, clusters: dict[str, Cluster], wanted: WorkloadFilter, want: set[str]
) -> None:
    dispatched(clusters, "acme-vision", "big", h100=16)
    dispatched(clusters, "globex-search", "small", worker="gpu-west", l4=1)
    seen(clusters["hub"], "acme-vision", "waits", "pending", job_name="nightly")
    assert {row.name for row in selectors.workloads(fleet.admin, wanted).rows} == want


@pytest.mark.parametrize(
    "sort", ["-created", "created", "-gpus", "gpus", "workspace", "-workspace"]
)
def test_workloads_pages_hold_every_job_once(
    fleet: SmallFleet, clusters: dict[str, Cluster], sort: str
) -> None:
    for number in range(7):
        seen(clusters["hub"], "acme-vision", f"job-{number}", "running", gpus={"h100": number % 3})
    wanted, names, cursor = WorkloadFilter(sort=sort), [], None
    for _ in range(4):
        page = selectors.workloads(fleet.admin, wanted, cursor=cursor, limit=2)
        names += [row.name for row in page.rows]
        cursor = page.next_cursor
    assert cursor == ""
    whole = selectors.workloads(fleet.admin, wanted).rows
    assert names == [row.name for row in whole]
    assert sorted(names) == [f"job-{number}" for number in range(7)]


@pytest.mark.parametrize(
    "cursor", ["x", "W10=", "bnVsbA==", "é", "WyItZ3B1cyIsIDEsIDFd", "W1tb" * 1000]
)
def test_workloads_foreign_cursor_is_rejected(
    fleet: SmallFleet, clusters: dict[str, Cluster], cursor: str
) -> None:
    with pytest.raises(Rejected) as caught:
        selectors.workloads(fleet.admin, WorkloadFilter(), cursor=cursor)
    assert caught.value.faults[0].field == "cursor"


def test_workloads_unknown_order_is_rejected(fleet: SmallFleet) -> None:
    with pytest.raises(Rejected) as caught:
        selectors.workloads(fleet.admin, WorkloadFilter(sort="uid"))
    assert caught.value.faults[0].field == "sort"


def _event(state: WorkloadState, minutes: int, conditions: list[Any], **status: Any) -> None:
    WorkloadEvent.objects.create(
        cluster=state.cluster.slug,
        uid=state.uid,
        resource_version=str(next(_numbers)),
        type="SEEN",
        namespace=state.namespace,
        name=state.name,
        observed_at=START + timedelta(minutes=minutes),
        digest="0" * 64,
        payload={"status": {"conditions": conditions, **status}},
    )


def _true(kind: str, minutes: int, **told: str) -> dict[str, str]:
    at = (START + timedelta(minutes=minutes)).isoformat()
    return {"type": kind, "status": "True", "lastTransitionTime": at, **told}


def test_workload_detail_tells_the_story_over_all_clusters(
    fleet: SmallFleet, clusters: dict[str, Cluster], django_assert_max_num_queries: Any
) -> None:
    own, copy = dispatched(clusters, "acme-vision", "train")
    own.created_at = START
    own.save()
    _event(own, 10, [_true("QuotaReserved", 10)])
    _event(own, 12, [_true("QuotaReserved", 10)], clusterName="gpu-east")
    _event(copy, 11, [_true("QuotaReserved", 11), _true("Admitted", 13)])
    _event(copy, 20, [_true("Evicted", 20, reason="Preempted", message="for a sibling")])
    _event(copy, 21, [_true("Evicted", 20, reason="Preempted", message="for a sibling")])
    with django_assert_max_num_queries(8):
        detail = selectors.workload_detail(fleet.owner, "hub", own.uid)
    told = [((row.at - START).seconds // 60, row.words, row.detail) for row in detail.timeline]
    assert told == [
        (0, "Submitted to Hub", ""),
        (10, "Quota reserved on Hub", ""),
        (11, "Quota reserved on Gpu-East", ""),
        (12, "Dispatched to Gpu-East", ""),
        (13, "Started on Gpu-East", ""),
        (20, "Stopped on Gpu-East", "It was preempted: another job needed its GPUs."),
    ]
    assert detail.timeline[-1].told == "Preempted: for a sibling"
    assert detail.sentence == "Runs with 8 GPUs (8 H100) on Gpu-East."
    assert [row.cluster for row in detail.copies] == ["gpu-east"]
    from_copy = selectors.workload_detail(fleet.owner, "gpu-east", copy.uid)
    assert [row.uid for row in from_copy.copies] == [own.uid]
    assert from_copy.timeline == detail.timeline


@pytest.mark.parametrize(
    ("phase", "want"),
    [("finished", "Finished"), ("failed", "Failed"), ("gone", "No longer on Hub")],
)
def test_workload_detail_tells_what_is_left_where_events_were_taken_away(
    fleet: SmallFleet, clusters: dict[str, Cluster], phase: str, want: str
) -> None:
    own, copy = dispatched(clusters, "acme-vision", "train")
    for row in (own, copy):
        row.created_at, row.events_retired_at = START, hours(999)
        row.reserved_at, row.admitted_at, row.finished_at = hours(1), hours(2), hours(3)
        row.phase = phase
        row.save()
    _event(copy, 240, [_true("Finished", 180, reason="Succeeded", message="seen once more")])
    detail = selectors.workload_detail(fleet.owner, "hub", own.uid)
    assert detail.events_retired_at == hours(999)
    assert [(row.at, row.words) for row in detail.timeline] == [
        (START, "Submitted to Hub"),
        (hours(1), "Quota reserved on Hub"),
        (hours(1), "Quota reserved on Gpu-East"),
        (hours(2), "Started on Gpu-East"),
        (hours(3), want),
    ]


def test_workload_detail_tells_one_second_in_the_order_of_a_job(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    own, copy = dispatched(clusters, "acme-vision", "train")
    own.created_at = START
    own.save()
    _event(copy, 0, [_true("QuotaReserved", 0), _true("Admitted", 0)])
    _event(own, 0, [_true("QuotaReserved", 0), _true("Finished", 0)], clusterName="gpu-east")
    detail = selectors.workload_detail(fleet.owner, "hub", own.uid)
    assert [row.words for row in detail.timeline] == [
        "Submitted to Hub",
        "Quota reserved on Hub",
        "Quota reserved on Gpu-East",
        "Dispatched to Gpu-East",
        "Started on Gpu-East",
        "Finished",
    ]


def test_workload_detail_tells_a_stop_before_the_next_run_of_the_same_second(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    own, copy = dispatched(clusters, "acme-vision", "train")
    own.created_at = START
    own.save()
    stopped = _true("Evicted", 5, reason="Preempted")
    told_back = _true("Evicted", 5, reason="AdmissionCheck")
    _event(copy, 1, [_true("QuotaReserved", 1), _true("Admitted", 1)])
    _event(own, 1, [_true("QuotaReserved", 1)], clusterName="gpu-east")
    _event(copy, 5, [_true("QuotaReserved", 1), _true("Admitted", 1), stopped])
    _event(copy, 5, [stopped])
    _event(own, 5, [_true("QuotaReserved", 1), told_back])
    _event(copy, 5, [_true("QuotaReserved", 5), _true("Admitted", 5)])
    _event(own, 5, [_true("QuotaReserved", 5)])
    _event(own, 5, [_true("QuotaReserved", 5)], clusterName="gpu-east")
    detail = selectors.workload_detail(fleet.owner, "hub", own.uid)
    run = ["Quota reserved on Hub", "Quota reserved on Gpu-East", "Dispatched to Gpu-East"]
    run += ["Started on Gpu-East"]
    assert [row.words for row in detail.timeline] == [
        "Submitted to Hub",
        *run,
        "Stopped on Gpu-East",
        "Stopped on Hub",
        *run,
    ]


def test_workload_hours_add_up_what_was_metered(
    fleet: SmallFleet, clusters: dict[str, Cluster]
) -> None:
    own, copy = dispatched(clusters, "acme-vision", "train")
    # It was stopped there and came back: another copy, on the same cluster.
    again = seen(clusters["gpu-east"], "acme-vision", "train", "running", is_remote_copy=True)
    for uid, hour, committed_used, burst in (
        (copy.uid, 1, 3600, 0),
        (copy.uid, 2, 1800, 1800),
        (again.uid, 2, 600, 0),
    ):
        WorkloadUsage.objects.create(
            workspace=fleet.vision,
            cluster="gpu-east",
            uid=uid,
            flavor="h100",
            hour=hours(hour),
            start=hours(hour),
            committed_used=committed_used,
            burst=burst,
        )
    detail = selectors.workload_detail(fleet.owner, "hub", own.uid)
    (row,) = selectors.workload_hours(fleet.owner, detail)
    assert (row.cluster, row.flavor, row.committed_used, row.burst) == (
        "gpu-east",
        "h100",
        6000,
        1800,
    )


@pytest.mark.parametrize(
    ("phase", "facts", "want"),
    [
        pytest.param(
            "pending",
            {"message": "No room."},
            "Waits for 8 GPUs. The cluster says: No room.",
            id="waiting",
        ),
        pytest.param(
            "pending",
            {"message": 'Evicted due to AdmissionCheck in Retry state: "quota" (later)'},
            "Waits for 8 GPUs. An admission check asked to try the job again later, so it gave its "
            "GPUs back and waits in its queue.",
            id="a message of Kueue's is told in plain words",
        ),
        pytest.param(
            "pending",
            {"reason": "Deactivated"},
            "It is deactivated and asks for none of its 8 GPUs until somebody puts it back in the "
            "queue.",
            id="deactivated",
        ),
        pytest.param(
            "failed", {"message": "exit 1"}, "Failed. The cluster says: exit 1.", id="failed"
        ),
        pytest.param("finished", {}, "Finished.", id="finished"),
        pytest.param("gone", {}, "Was deleted before it finished.", id="deleted"),
        pytest.param(
            "reserved", {}, "Has quota for 8 GPUs and waits for a worker.", id="not dispatched"
        ),
    ],
)
def test_workload_detail_sentence(
    fleet: SmallFleet, clusters: dict[str, Cluster], phase: str, facts: dict[str, str], want: str
) -> None:
    own = seen(clusters["hub"], "acme-vision", "train", phase, **facts)
    assert selectors.workload_detail(fleet.owner, "hub", own.uid).sentence == want
