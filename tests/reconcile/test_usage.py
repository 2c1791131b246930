"""What happens to Workloads on embedded clusters, written down and built."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, connection

from budgets import services
from budgets.models import (
    Interval,
    JobLabel,
    MeasuredCapacity,
    MeterState,
    PendingSpan,
    WorkloadUsage,
)
from clusters.devcluster.registry import BY_KEY
from clusters.devcluster.server import DevServer
from clusters.devcluster.writes import Address
from clusters.errors import LeaseLost, Refusal
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.models import Cluster, WorkloadEvent, WorkloadState
from clusters.reconcile.runtime import controller
from clusters.reconcile.shift import Ending, run_shift
from clusters.reconcile.usage import body as body_module
from tests.builders import SmallFleet
from tests.databases import as_owner
from tests.reconcile.fleet_rows import dev_server, register
from tests.reconcile.usage_hand import Kueue, ago, kueue_on, usage_hand

pytestmark = [pytest.mark.django_db, pytest.mark.embedded]


@pytest.fixture
def kueue(kube: KubeClient) -> Kueue:
    return kueue_on(kube)


@pytest.fixture
def manager_server(fleet: SmallFleet) -> Iterator[DevServer]:
    with dev_server("hub") as server:
        register("hub", server.kubeconfig, role="manager")
        yield server


@pytest.fixture
def hub(manager_server: DevServer) -> Iterator[Kueue]:
    with KubeClient.from_kubeconfig(manager_server.kubeconfig) as client:
        yield kueue_on(client)


def state(uid: str) -> WorkloadState:
    return WorkloadState.objects.get(uid=uid)


def has_phase(uid: str, phase: str):
    return lambda: WorkloadState.objects.filter(uid=uid, phase=phase).exists()


def kept() -> list[tuple]:
    """Everything that a rebuild must leave as it is."""
    return [
        *WorkloadEvent.objects.order_by("pk").values_list("uid", "resource_version", "type"),
        *Interval.objects.order_by("pk").values_list("uid", "seq", "start", "end", "state", "kind"),
        *WorkloadState.objects.order_by("pk").values_list("uid", "phase", "gpu_total"),
        *PendingSpan.objects.order_by("pk").values_list("uid", "start", "end"),
    ]


def test_usage_life_of_a_workload_becomes_state_and_interval(worker: Cluster, kueue: Kueue) -> None:
    start, end = ago(600), ago(60)
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue.submit("train", job="train-job")
        kueue.waits("train", "insufficient quota")
        hand.until(lambda: has_phase(uid, "pending")() and state(uid).message != "")
        waiting = state(uid)
        assert (waiting.gpus, waiting.gpu_total) == ({"": 8}, 8)
        assert waiting.message == "insufficient quota"
        assert (waiting.job_kind, waiting.job_name) == ("Job", "train-job")

        kueue.admit("train", start)
        hand.until(has_phase(uid, "running"))
        assert state(uid).gpus == {"h100": 8}
        open_one = Interval.objects.get(uid=uid, kind="billable")
        assert (open_one.state, open_one.start, open_one.end) == ("open", start, None)
        assert open_one.workspace is not None
        assert open_one.workspace.namespace == "acme-vision"

        kueue.finish("train", end)
        hand.until(has_phase(uid, "finished"))
    row = Interval.objects.get(uid=uid, kind="billable")
    assert (row.state, row.start, row.end, row.gpus) == ("closed", start, end, 8)
    assert state(uid).finished_at == end
    stored = WorkloadEvent.objects.filter(uid=uid).latest("pk").payload
    assert "template" not in stored["spec"]["podSets"][0]
    assert MeterState.objects.get(cluster="gpu-east").complete_until is not None


def test_usage_keeps_what_jobs_say_by_a_named_label(
    fleet: SmallFleet, worker: Cluster, kueue: Kueue
) -> None:
    services.name_label(fleet.admin, key="team", reason="asked for by research")
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue.submit("train")
        hand.until(has_phase(uid, "pending"))
        assert not JobLabel.objects.exists(), "it says nothing yet"
        marks = {"metadata": {"labels": {"team": "red", "user": "olga"}}}
        kueue.client.patch(r.WORKLOAD, "train", marks, namespace="acme-vision")
        hand.until(lambda: JobLabel.objects.exists())
        marks["metadata"]["labels"]["team"] = "green"
        kueue.client.patch(r.WORKLOAD, "train", marks, namespace="acme-vision")
        versions = WorkloadEvent.objects.filter(uid=uid)
        hand.until(lambda: versions.count() == 3)
    kept = JobLabel.objects.values_list("label__key", "cluster", "uid", "value")
    assert list(kept) == [("team", "gpu-east", uid, "red")]


def test_usage_eviction_counts_and_frees(worker: Cluster, kueue: Kueue) -> None:
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue.submit("train")
        kueue.admit("train", ago(500))
        hand.until(has_phase(uid, "running"))
        kueue.evict("train", ago(300))
        hand.until(has_phase(uid, "pending"))
        assert state(uid).evictions == 1
        kueue.admit("train", ago(200), flavor="l4")
        hand.until(has_phase(uid, "running"))
    assert state(uid).evictions == 1
    rows = Interval.objects.filter(uid=uid, kind="billable").order_by("start")
    assert [(row.epoch, row.flavor, row.state) for row in rows] == [
        (1, "h100", "closed"),
        (2, "l4", "open"),
    ]


def test_usage_restart_loses_nothing_and_doubles_nothing(worker: Cluster, kueue: Kueue) -> None:
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue.submit("train")
        kueue.admit("train", ago(500))
        hand.until(has_phase(uid, "running"))
        before = kept()
    with usage_hand("gpu-east") as hand:
        hand.listed()
    assert kept() == before
    kueue.finish("train", ago(10))
    with usage_hand("gpu-east") as hand:
        hand.until(has_phase(uid, "finished"))
    assert Interval.objects.get(uid=uid, kind="billable").end is not None


def test_usage_two_bodies_at_once_write_what_one_would(worker: Cluster, kueue: Kueue) -> None:
    with usage_hand("gpu-east") as one, usage_hand("gpu-east") as other:
        one.listed()
        other.listed()
        uid = kueue.submit("train")
        kueue.admit("train", ago(100))
        one.until(has_phase(uid, "running"))
        other.until(lambda: other.watch.snapshot() and not other.body._waiting)
        kueue.finish("train", ago(10))
        other.until(has_phase(uid, "finished"))
        one.until(lambda: one.watch.snapshot()[0]["status"]["conditions"][-1]["type"] == "Finished")
        one.body.turn()
    keys = list(WorkloadEvent.objects.values_list("uid", "resource_version", "type"))
    assert len(keys) == len(set(keys))
    row = Interval.objects.get(uid=uid, kind="billable")
    assert row.state == "closed"
    assert state(uid).phase == "finished"


def test_usage_deletion_while_watching_is_exact(worker: Cluster, kueue: Kueue) -> None:
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue.submit("train")
        kueue.admit("train", ago(100))
        hand.until(has_phase(uid, "running"))
        kueue.delete("train")
        hand.until(has_phase(uid, "gone"))
    assert WorkloadEvent.objects.filter(uid=uid, type="DELETED").count() == 1
    row = Interval.objects.get(uid=uid, kind="billable")
    assert row.state == "closed"
    assert row.end is not None


def test_usage_deletion_while_away_is_estimated_early(
    worker: Cluster, kueue: Kueue, east: DevServer
) -> None:
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue.submit("train")
        kueue.admit("train", ago(1000))
        hand.until(has_phase(uid, "running"))
        hand.until(lambda: MeterState.objects.get(cluster="gpu-east").complete_until is not None)
    alive_until = ago(400)
    MeterState.objects.update(complete_until=alive_until)
    # The observation was earlier, too; a stored event is never changed by the portal itself.
    with as_owner(), events_unguarded():
        WorkloadEvent.objects.filter(uid=uid)._raw_delete("default")
    make_old_events(uid, alive_until)
    kueue.delete("train")
    east.cluster.store.compact()
    with usage_hand("gpu-east") as hand:
        hand.until(has_phase(uid, "gone"))
    missing = WorkloadEvent.objects.get(uid=uid, type="MISSING")
    assert missing.last_seen_at == alive_until
    row = Interval.objects.get(uid=uid, kind="billable")
    assert (row.state, row.end) == ("estimated", alive_until)


@contextmanager
def events_unguarded() -> Iterator[None]:
    """The owner takes the triggers off that keep raw events."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE clusters_workloadevent DISABLE TRIGGER USER")
        yield
        cursor.execute("ALTER TABLE clusters_workloadevent ENABLE TRIGGER USER")


def make_old_events(uid: str, at) -> None:
    """What a shift that ended long ago would have left."""
    found = state(uid)
    source = Interval.objects.get(uid=uid, kind="billable")
    WorkloadEvent.objects.create(
        cluster="gpu-east",
        uid=uid,
        resource_version=found.resource_version,
        type="SEEN",
        namespace=found.namespace,
        name=found.name,
        observed_at=at,
        digest="0" * 64,
        payload={
            "metadata": {
                "name": found.name,
                "namespace": found.namespace,
                "uid": uid,
                "creationTimestamp": source.start.isoformat(),
                "labels": {},
                "annotations": {},
                "ownerReferences": [],
            },
            "spec": {"podSets": [{"name": "main", "count": 1, "gpus": 8}]},
            "status": {
                "conditions": [
                    {"type": kind, "status": "True", "lastTransitionTime": source.start.isoformat()}
                    for kind in ("QuotaReserved", "Admitted")
                ],
                "admission": {
                    "clusterQueue": found.namespace,
                    "podSetAssignments": [
                        {
                            "name": "main",
                            "count": 1,
                            "flavors": {"nvidia.com/gpu": "h100"},
                            "resourceUsage": {"nvidia.com/gpu": "8"},
                        }
                    ],
                },
            },
        },
    )


def test_usage_missing_workload_ends_with_its_job_where_that_is_readable(
    worker: Cluster, kueue: Kueue, kube: KubeClient, east: DevServer
) -> None:
    ended = ago(5)
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue.submit("train", job="train-job")
        kueue.admit("train", ago(1000))
        hand.until(has_phase(uid, "running"))
    status = {
        "startTime": ago(1000).isoformat(),
        "completionTime": ended.isoformat(),
        "succeeded": 1,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": ended.isoformat()}
            for kind in ("SuccessCriteriaMet", "Complete")
        ],
    }
    options = WriteOptions(subresource="status")
    body = {"status": status}
    kube.patch(r.JOB, "train-job", body, namespace="acme-vision", options=options)
    kueue.delete("train")
    east.cluster.store.compact()
    with usage_hand("gpu-east") as hand:
        hand.until(has_phase(uid, "gone"))
    missing = WorkloadEvent.objects.get(uid=uid, type="MISSING")
    assert missing.payload["completedAt"] == ended.isoformat()


def test_usage_forgotten_history_lists_again_and_finds_the_missing(
    worker: Cluster, kueue: Kueue, east: DevServer
) -> None:
    with usage_hand("gpu-east") as hand:
        hand.listed()
        gone, stays = kueue.submit("gone"), kueue.submit("stays")
        for name in ("gone", "stays"):
            kueue.admit(name, ago(100))
        hand.until(lambda: has_phase(gone, "running")() and has_phase(stays, "running")())
        lists = hand.watch.relists
        east.cluster.faults.is_refusing = True
        east.drop_connections()
        east.cluster.store.end_subscriptions()
        east.cluster.writes.delete(_target("gone"), {}, dry_run=False)
        east.cluster.store.compact()
        east.cluster.faults.clear()
        hand.until(has_phase(gone, "gone"))
        assert hand.watch.relists > lists
    event = WorkloadEvent.objects.filter(uid=gone).latest("pk")
    assert event.type == "MISSING"
    assert event.last_seen_at is not None
    assert event.last_seen_at <= event.observed_at
    assert Interval.objects.get(uid=gone, kind="billable").end == event.last_seen_at
    assert Interval.objects.get(uid=stays, kind="billable").state == "open"
    assert state(stays).phase == "running"


def _target(name: str):
    key = next(key for key in BY_KEY if key.endswith("/workloads"))
    return Address(BY_KEY[key], "acme-vision", name)


def test_usage_failed_turn_keeps_what_was_told(
    worker: Cluster, kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with usage_hand("gpu-east") as hand:
        hand.listed()

        failed = []

        def broken(events) -> None:
            failed.append(list(events))
            raise DatabaseError("gone away")

        uid = kueue.submit("train")
        kueue.admit("train", ago(100))
        with monkeypatch.context() as patch:
            patch.setattr(body_module, "store_events", broken)
            patch.setattr(controller.connection, "close", lambda: None)
            while not failed:
                hand.body.turn_with_database()
        assert not WorkloadEvent.objects.filter(uid=uid).exists()
        hand.until(has_phase(uid, "running"))


def test_usage_events_without_a_build_are_built_by_the_next_shift(
    worker: Cluster, kueue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = kueue.submit("train")
    kueue.admit("train", ago(100))
    with usage_hand("gpu-east") as hand:
        monkeypatch.setattr(hand.body, "_build_new", lambda: None)
        hand.until(lambda: WorkloadEvent.objects.filter(uid=uid).exists())
        assert not WorkloadState.objects.filter(uid=uid).exists()
    kueue.delete("train")
    with usage_hand("gpu-east") as hand:
        hand.until(has_phase(uid, "gone"))
    assert Interval.objects.get(uid=uid, kind="billable").end is not None


def test_usage_without_the_lease_writes_nothing(worker: Cluster, kueue: Kueue) -> None:
    def lost() -> None:
        raise LeaseLost(Refusal("another shift works here"))

    kueue.submit("train")
    with usage_hand("gpu-east", fence=lost) as hand, pytest.raises(LeaseLost):
        hand.listed()
    assert not WorkloadEvent.objects.exists()


def test_usage_dispatched_job_is_billed_once_where_the_manager_says(
    worker: Cluster, kueue: Kueue, hub: Kueue
) -> None:
    start = ago(300)
    with usage_hand("hub") as above, usage_hand("gpu-east") as below:
        above.listed()
        below.listed()
        uid = hub.submit("train", job="train-job")
        copy = kueue.submit("train", origin="test")
        hub.reserve_on_manager("train", ago(310))
        above.until(has_phase(uid, "reserved"))
        kueue.admit("train", start)
        below.until(has_phase(copy, "running"))
        hub.reserve_on_manager("train", start, worker="gpu-east")
        above.until(lambda: state(uid).worker == "gpu-east")
    assert state(copy).is_remote_copy
    assert not state(uid).is_remote_copy
    billable = Interval.objects.get(kind="billable")
    assert (billable.cluster, billable.uid, billable.start) == ("gpu-east", copy, start)
    assert not Interval.objects.filter(cluster="hub", kind="billable").exists()


def test_usage_is_metered_to_the_second(worker: Cluster, kueue: Kueue, fleet: SmallFleet) -> None:
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue.submit("train")
        kueue.admit("train", ago(600))
        hand.until(has_phase(uid, "running"))
        kueue.finish("train", ago(60))
        hand.until(has_phase(uid, "finished"))
        hand.until(lambda: MeterState.objects.get(cluster="gpu-east").complete_until is not None)
    services.meter_usage()
    facts = WorkloadUsage.objects.filter(uid=uid, cluster="gpu-east")
    row = Interval.objects.get(uid=uid, kind="billable")
    assert row.end is not None
    seconds = int((row.end - row.start).total_seconds())
    assert sum(fact.committed_used + fact.burst for fact in facts) == 8 * seconds
    assert seconds in (540, 541)


def test_usage_counts_gpus_of_nodes_and_pods_or_of_workloads(
    worker: Cluster, east: DevServer, kube: KubeClient, fleet: SmallFleet
) -> None:
    kueue_on(kube)
    for name, gpus, ready in (("n1", "8", "True"), ("n2", "8", "False"), ("n3", "8", "True")):
        node = {
            "metadata": {"name": name, "labels": {"gpu": "h100"}},
            "spec": {"unschedulable": True} if name == "n3" else {},
        }
        kube.create(r.NODE, node)
        status = {
            "capacity": {"nvidia.com/gpu": gpus},
            "allocatable": {"nvidia.com/gpu": gpus},
            "conditions": [{"type": "Ready", "status": ready}],
        }
        options = WriteOptions(subresource="status")
        kube.patch(r.NODE, name, {"status": status}, options=options)
    container = {"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "3"}}}
    pod = {
        "metadata": {"name": "p", "namespace": "acme-vision"},
        "spec": {"nodeName": "n1", "containers": [container]},
    }
    kube.create(r.POD, pod)
    with usage_hand("gpu-east") as hand:
        hand.measure()
        row = MeasuredCapacity.objects.get(cluster="gpu-east", flavor__slug="h100")
        assert (row.ready_gpus, row.broken_gpus, row.used_gpus, row.nodes) == (8, 16, 3, 3)

        hand.listed()
        uid = kueue_on(kube).submit("train")
        kueue_on(kube).admit("train", ago(10), gpus=5)
        hand.until(has_phase(uid, "running"))
    east.cluster.faults.fail(403, count=10_000, path="pods")
    with usage_hand("gpu-east") as hand:
        hand.measure()
    row.refresh_from_db()
    assert (row.ready_gpus, row.used_gpus) == (8, 5)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_usage_shift_writes_and_counts(
    worker: Cluster, kueue: Kueue, kube: KubeClient, fleet: SmallFleet
) -> None:
    node = {"metadata": {"name": "n1", "labels": {"gpu": "h100"}}}
    kube.create(r.NODE, node)
    amounts = {"nvidia.com/gpu": "8"}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    kube.patch(r.NODE, "n1", {"status": status}, options=WriteOptions(subresource="status"))
    uid = kueue.submit("train")
    kueue.admit("train", ago(100))
    stop = threading.Event()
    outcome = run_shift("gpu-east", "usage", stop=stop, seconds=4, holder="one")
    assert outcome.ending is Ending.HANDED_OVER
    assert state(uid).phase == "running"
    assert MeasuredCapacity.objects.get(flavor__slug="h100").ready_gpus == 8
    assert MeterState.objects.get(cluster="gpu-east").complete_until is not None
    assert not [each for each in threading.enumerate() if "gpu-east-usage" in each.name]
