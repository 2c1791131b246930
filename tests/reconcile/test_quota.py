"""Quota sync on an embedded API server: what is promised comes to stand there, and stays so."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import pytest
from django.conf import settings
from django.db import DataError
from django.db.models import F

from budgets import services as promises
from budgets.models import AuditEntry, Budget, Operation
from clusters import services
from clusters.devcluster.server import DevServer
from clusters.errors import LeaseLost, NotFound
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.models import AppliedGeneration, Cluster, Drift, ObjectState
from clusters.reconcile.quota.body import RESYNC_S, SWEEP_REST, QuotaBody
from clusters.reconcile.quota.record import Result, SyncRecords
from tests.builders import SmallFleet, line
from tests.reconcile.fleet_rows import Hand, quota_hand, register
from tests.reconcile.large_fleet import many_workspaces
from tests.waiting import eventually

pytestmark = [pytest.mark.embedded, pytest.mark.django_db]
KUBECTL = WriteOptions(field_manager="kubectl-edit")


def nominal(kube: KubeClient, queue: str, flavor: str = "h100") -> str:
    """What a ClusterQueue says of a flavor's floor."""
    groups = kube.get(r.CLUSTER_QUEUE, queue)["spec"]["resourceGroups"]
    for group in groups:
        for entry in group["flavors"]:
            if entry["name"] == flavor:
                return str(entry["resources"][0]["nominalQuota"])
    return ""


def states() -> dict[tuple[str, str], str]:
    """(kind, name) → state of every object."""
    rows = ObjectState.objects.exclude(kind="LocalQueue").values_list("kind", "name", "state")
    return {(kind, name): state for kind, name, state in rows}


def edit(kube: KubeClient, queue: str, **spec: object) -> None:
    """A hand edit."""
    kube.patch(r.CLUSTER_QUEUE, queue, {"spec": spec}, options=KUBECTL)


def test_gpus_that_move_elsewhere_drain_nobody(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    """What has a queue on a cluster keeps it; who comes later has none there."""
    fleet.revise(fleet.vision, line("h100", 24, 32))
    hand.settle()
    register("lab", "none", role="single")
    flavor = promises.create_flavor(None, slug="lab-h100", name="Lab", gpus_per_node=8)
    services.state_capacity(fleet.admin, cluster="lab", flavor=flavor, gpus=16)
    late = promises.create_workspace(
        fleet.admin, account=fleet.acme, slug="late", name="Late", home_flavor=flavor
    )
    for workspace in (fleet.vision, late):
        fleet.revise(workspace, line("lab-h100", 8, 16))
    hand.settle()
    assert nominal(kube, "acme-vision", "lab-h100") == "0"
    assert kube.get(r.CLUSTER_QUEUE, "acme-vision")["spec"]["stopPolicy"] == "None"
    assert ("ClusterQueue", "acme-late") not in states()
    with pytest.raises(NotFound):
        kube.get(r.NAMESPACE, "acme-late")
    hand.sweep()
    hand.settle()
    assert states()["ClusterQueue", "acme-vision"] == "synced"


def test_budget_is_observed_when_all_its_objects_are_there(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    fleet.revise(fleet.vision, line("h100", 24, 32))
    hand.settle()
    fleet.vision.budget.refresh_from_db()
    observed = AppliedGeneration.objects.get(cluster=worker, subject="budget:acme-vision")
    assert observed.observed_generation == fleet.vision.budget.generation
    assert nominal(kube, "acme-vision") == "24"
    local_queue = kube.get(r.LOCAL_QUEUE, "default", namespace="acme-vision")
    assert local_queue["spec"]["clusterQueue"] == "acme-vision"
    assert set(states().values()) == {"synced"}


def test_second_sweep_sends_no_request(hand: Hand, east: DevServer) -> None:
    hand.settle()
    east.cluster.faults.fail(500, count=1, path="resourceflavors|cohorts|queues|namespaces")
    hand.sweep()
    hand.body.turn()
    assert set(states().values()) == {"synced"}
    assert east.cluster.faults.before("GET", "/namespaces") == 500, "a request was sent"


def test_first_sync_shows_its_progress(worker: Cluster, fleet: SmallFleet, east: DevServer) -> None:
    operation = promises.start_operation(None, kind="first_sync", subject="cluster:gpu-east")
    with quota_hand("gpu-east") as hand:
        hand.settle()
    operation.refresh_from_db()
    assert operation.state == Operation.State.DONE
    assert operation.done == operation.total == 16


def test_hand_edit_is_put_back_and_told(hand: Hand, fleet: SmallFleet, kube: KubeClient) -> None:
    hand.settle()
    edit(kube, "acme-vision", stopPolicy="Hold", queueingStrategy="StrictFIFO")
    hand.settle()
    spec = kube.get(r.CLUSTER_QUEUE, "acme-vision")["spec"]
    assert (spec["stopPolicy"], spec["queueingStrategy"]) == ("None", "BestEffortFIFO")
    drift = Drift.objects.get(field="spec.stopPolicy")
    assert (drift.wanted, drift.found, drift.manager) == ("None", "Hold", "kubectl-edit")
    assert drift.resolution == "put back"
    assert Drift.objects.filter(resolved_at=None).count() == 0
    entry = AuditEntry.objects.get(action="cluster.hand_edit")
    assert (entry.cluster, entry.after["manager"]) == ("gpu-east", "kubectl-edit")
    assert entry.after["count"] == 2 and entry.after["put_back"]
    assert "ClusterQueue acme-vision spec.stopPolicy" in entry.after["fields"]


def test_hand_edit_is_kept_where_the_cluster_says_so(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    hand.settle()
    services.set_drift_policy(fleet.admin, cluster=worker, policy="keep")
    edit(kube, "acme-vision", stopPolicy="Hold")
    hand.settle()
    assert kube.get(r.CLUSTER_QUEUE, "acme-vision")["spec"]["stopPolicy"] == "Hold"
    assert states()["ClusterQueue", "acme-vision"] == "drifted"
    assert Drift.objects.get(resolved_at=None).field == "spec.stopPolicy"
    edit(kube, "acme-vision", stopPolicy="None")
    hand.settle()
    assert states()["ClusterQueue", "acme-vision"] == "synced"
    assert Drift.objects.get().resolution == "no longer differs"


def test_deleted_object_is_made_again(hand: Hand, fleet: SmallFleet, kube: KubeClient) -> None:
    hand.settle()
    kube.delete(r.LOCAL_QUEUE, "default", namespace="acme-vision")
    hand.settle()
    kube.get(r.LOCAL_QUEUE, "default", namespace="acme-vision")
    assert Drift.objects.get().resolution == "put back"


def test_labels_taken_off_are_put_back(hand: Hand, kube: KubeClient) -> None:
    hand.settle()
    body = {"metadata": {"labels": {"gpu-budget-portal.dev/installation": None}}}
    kube.patch(r.COHORT, "acme", body, options=KUBECTL)
    hand.settle()
    labels = kube.get(r.COHORT, "acme")["metadata"]["labels"]
    assert labels["gpu-budget-portal.dev/installation"] == "portal"


def foreign(resource: r.Resource, name: str, installation: str | None) -> dict[str, object]:
    labels = {"app.kubernetes.io/managed-by": "gpu-budget-portal"} if installation else {}
    if installation:
        labels["gpu-budget-portal.dev/installation"] = installation
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


@pytest.mark.parametrize("installation", ["other", None])
def test_name_that_somebody_else_has_taken_is_refused(
    installation: str | None, worker: Cluster, fleet: SmallFleet, kube: KubeClient
) -> None:
    kube.create(r.COHORT, foreign(r.COHORT, "acme", installation))
    with quota_hand("gpu-east") as hand:
        hand.settle()
    assert states()["Cohort", "acme"] == "foreign"
    assert not kube.get(r.COHORT, "acme")["spec"].get("resourceGroups")
    assert not AppliedGeneration.objects.filter(subject="account:acme").exists()
    assert AppliedGeneration.objects.filter(subject="account:globex").exists()


def test_host_of_another_installation_is_shared(
    worker: Cluster, fleet: SmallFleet, kube: KubeClient
) -> None:
    kube.create(r.RESOURCE_FLAVOR, foreign(r.RESOURCE_FLAVOR, "host", "other"))
    with quota_hand("gpu-east") as hand:
        hand.settle()
    assert states()["ResourceFlavor", "host"] == "synced"
    labels = kube.get(r.RESOURCE_FLAVOR, "host")["metadata"]["labels"]
    assert labels["gpu-budget-portal.dev/installation"] == "other"


def test_namespace_that_was_there_is_adopted(
    worker: Cluster, fleet: SmallFleet, kube: KubeClient
) -> None:
    kube.create(r.NAMESPACE, {"metadata": {"name": "acme-vision", "labels": {"team": "x"}}})
    with quota_hand("gpu-east") as hand:
        hand.settle()
    labels = kube.get(r.NAMESPACE, "acme-vision")["metadata"]["labels"]
    assert labels["team"] == "x"
    assert labels["gpu-budget-portal.dev/installation"] == "portal"


def set_reserving(kube: KubeClient, queue: str, count: int) -> None:
    kube.patch(
        r.CLUSTER_QUEUE,
        queue,
        {"status": {"reservingWorkloads": count}},
        options=WriteOptions(field_manager="kueue", subresource="status"),
    )


def test_archived_workspace_is_drained_before_it_goes_and_its_namespace_stays(
    hand: Hand, fleet: SmallFleet, kube: KubeClient
) -> None:
    hand.settle()
    kube.create(r.COHORT, foreign(r.COHORT, "theirs", "other"))
    set_reserving(kube, "globex-search", 2)
    promises.archive_workspace(fleet.admin, workspace=fleet.search, reason="over")
    Budget.objects.filter(workspace=fleet.search).update(held_flavors=[])
    hand.settle()
    spec = kube.get(r.CLUSTER_QUEUE, "globex-search")["spec"]
    assert spec["stopPolicy"] == "HoldAndDrain"
    assert states()["ClusterQueue", "globex-search"] == "stays"
    kube.get(r.LOCAL_QUEUE, "default", namespace="globex-search")
    set_reserving(kube, "globex-search", 0)
    hand.settle()
    names = {item["metadata"]["name"] for item in kube.list(r.CLUSTER_QUEUE).items}
    assert names == {"acme-speech", "acme-vision"}
    kube.get(r.NAMESPACE, "globex-search")
    kube.get(r.COHORT, "theirs")
    assert ("ClusterQueue", "globex-search") not in states()
    assert states()["Namespace", "globex-search"] == "stays"


def test_finalizers_are_respected_and_shown(
    hand: Hand, fleet: SmallFleet, kube: KubeClient
) -> None:
    hand.settle()
    body = {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
    kube.patch(r.CLUSTER_QUEUE, "globex-search", body, options=KUBECTL)
    promises.archive_workspace(fleet.admin, workspace=fleet.search, reason="over")
    Budget.objects.filter(workspace=fleet.search).update(held_flavors=[])
    hand.settle()
    assert "deletionTimestamp" in kube.get(r.CLUSTER_QUEUE, "globex-search")["metadata"]
    row = ObjectState.objects.get(kind="ClusterQueue", name="globex-search")
    assert row.state == "stays"
    assert "kueue.x-k8s.io/resource-in-use" in row.message


def test_restored_backup_stops_the_sync_and_asks(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    fleet.revise(fleet.vision, line("h100", 24, 32))
    hand.settle()
    fleet.vision.budget.refresh_from_db()
    budget = Budget.objects.filter(pk=fleet.vision.budget.pk)
    budget.update(generation=1, in_force=None)
    hand.settle()
    worker.refresh_from_db()
    assert "acme-vision" in worker.blocked_reason
    assert nominal(kube, "acme-vision") == "24", "it was rolled back silently"
    assert AuditEntry.objects.filter(action="cluster.blocked").count() == 1
    services.resolve_block(fleet.admin, cluster=worker, apply_ours=True, reason="we know")
    hand.settle()
    assert nominal(kube, "acme-vision") == ""
    assert budget.get().generation > fleet.vision.budget.generation
    worker.refresh_from_db()
    assert worker.blocked_reason == ""


def test_what_changed_while_a_decision_was_waited_for_is_looked_at_after_it(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    """The heartbeat may learn of the decision before the shift looks at the database."""
    fleet.revise(fleet.vision, line("h100", 24, 32))
    hand.settle()
    Cluster.objects.filter(pk=worker.pk).update(blocked_reason="a backup")
    hand.context.refresh()
    hand.settle()
    queue = kube.get(r.CLUSTER_QUEUE, "acme-vision")
    for group in queue["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            if flavor["name"] == "h100":
                flavor["resources"][0]["nominalQuota"] = "30"
    kube.replace(r.CLUSTER_QUEUE, queue, options=KUBECTL)
    eventually(lambda: len(hand.body.inbox), why="the watch does not tell")
    hand.settle()
    assert nominal(kube, "acme-vision") == "30"
    Cluster.objects.filter(pk=worker.pk).update(blocked_reason="")
    hand.context.refresh()
    hand.settle()
    assert nominal(kube, "acme-vision") == "24"


def test_subject_that_the_database_never_had_blocks_too(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    hand.settle()
    stray = foreign(r.CLUSTER_QUEUE, "acme-lost", "portal")
    stray["metadata"]["annotations"] = {  # type: ignore[index]  # a plain document
        "gpu-budget-portal.dev/subject": "budget:acme-lost",
        "gpu-budget-portal.dev/generation": "4",
    }
    kube.create(r.CLUSTER_QUEUE, stray)
    hand.settle()
    worker.refresh_from_db()
    assert "budget:acme-lost" in worker.blocked_reason
    kube.get(r.CLUSTER_QUEUE, "acme-lost")
    services.resolve_block(fleet.admin, cluster=worker, apply_ours=True, reason="not ours")
    hand.settle()
    names = {item["metadata"]["name"] for item in kube.list(r.CLUSTER_QUEUE).items}
    assert "acme-lost" not in names


def test_keeping_the_clusters_side_stops_writing(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    fleet.revise(fleet.vision, line("h100", 24, 32))
    hand.settle()
    Budget.objects.filter(workspace=fleet.vision).update(generation=1)
    hand.settle()
    worker.refresh_from_db()
    services.resolve_block(fleet.admin, cluster=worker, apply_ours=False, reason="look first")
    hand.settle()
    worker.refresh_from_db()
    assert not worker.writes_enabled
    assert nominal(kube, "acme-vision") == "24"


def test_switched_off_cluster_shows_what_would_be_written(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    fleet.revise(fleet.vision, line("h100", 16, 32))
    hand.settle()
    before = nominal(kube, "acme-vision")
    services.set_writes_enabled(fleet.admin, cluster=worker, enabled=False, reason="upgrade")
    fleet.revise(fleet.vision, line("h100", 24, 32))
    hand.settle()
    assert nominal(kube, "acme-vision") == before
    row = ObjectState.objects.get(kind="ClusterQueue", name="acme-vision")
    assert row.state == "pending"
    assert row.would["action"] == "update"
    numbers = [c["wanted"] for c in row.would["changes"] if c["field"].endswith("nominalQuota")]
    services.set_writes_enabled(fleet.admin, cluster=worker, enabled=True)
    hand.settle()
    row.refresh_from_db()
    assert numbers != [before]
    assert (row.state, row.would) == ("synced", None)
    assert [nominal(kube, "acme-vision")] == numbers


@pytest.mark.parametrize(
    ("takes_s", "least_s", "most_s"), [(0.0, 0.0, 0.0), (0.3, 0.4, 0.6), (1.0, 1.0, 1.0)]
)
def test_after_a_long_turn_it_rests(
    worker: Cluster,
    fleet: SmallFleet,
    monkeypatch: pytest.MonkeyPatch,
    takes_s: float,
    least_s: float,
    most_s: float,
) -> None:
    """A turn goes through all objects: of a large cluster, news that trickle in come together."""
    with quota_hand("gpu-east") as hand:
        hand.settle()
        take_long(monkeypatch, takes_s)
        hand.body.queue.add(next(iter(hand.body.all_keys())))
        hand.body.handle_all()
        assert least_s <= hand.body.pause_s <= most_s
        assert hand.body.resync_s == RESYNC_S, "it was no sweep"
        hand.body.handle_all()
        assert hand.body.pause_s == 0, "nothing was asked about"


@pytest.mark.parametrize(("takes_s", "rests_s"), [(0.0, RESYNC_S), (0.2, SWEEP_REST * 0.2)])
def test_where_a_sweep_takes_long_the_next_comes_later(
    worker: Cluster,
    fleet: SmallFleet,
    monkeypatch: pytest.MonkeyPatch,
    takes_s: float,
    rests_s: float,
) -> None:
    with quota_hand("gpu-east") as hand:
        hand.settle()
        take_long(monkeypatch, takes_s)
        hand.body.queue.add_all(hand.body.all_keys())
        hand.body.handle_all()
        assert hand.body.resync_s == pytest.approx(rests_s, rel=0.2)


def take_long(monkeypatch: pytest.MonkeyPatch, takes_s: float) -> None:
    """Have each turn of quota sync take so many seconds of a processor, and do nothing."""

    def takes(body: QuotaBody, keys: object) -> list[Result]:
        ends = time.thread_time() + takes_s
        while time.thread_time() < ends:
            pass
        return []

    monkeypatch.setattr(QuotaBody, "_sync", takes)


def test_lost_lease_writes_nothing(worker: Cluster, fleet: SmallFleet, kube: KubeClient) -> None:
    def fence() -> None:
        raise LeaseLost("somebody else has it")

    with quota_hand("gpu-east", fence=fence) as hand, pytest.raises(LeaseLost):
        hand.settle()
    assert kube.list(r.CLUSTER_QUEUE).items == []
    assert kube.list(r.RESOURCE_FLAVOR).items == []


def test_one_refused_object_does_not_stop_the_others(
    worker: Cluster, fleet: SmallFleet, east: DevServer, kube: KubeClient
) -> None:
    east.cluster.faults.fail(403, count=1, method="PATCH", path="clusterqueues/acme-vision")
    with quota_hand("gpu-east") as hand:
        hand.body.turn()
        assert states()["ClusterQueue", "acme-vision"] == "failed"
        assert states()["ClusterQueue", "globex-search"] == "synced"
        assert not AppliedGeneration.objects.filter(subject="budget:acme-vision").exists()
        hand.settle()
    assert states()["ClusterQueue", "acme-vision"] == "synced"
    assert AppliedGeneration.objects.filter(subject="budget:acme-vision").exists()


def test_namespace_keeps_our_labels_until_its_queue_is_gone(
    hand: Hand, fleet: SmallFleet, worker: Cluster, east: DevServer, kube: KubeClient
) -> None:
    """The generated policies let the portal delete queues in its own namespaces alone."""
    hand.settle()
    east.cluster.faults.fail(403, count=10**6, method="DELETE", path="localqueues/default")
    services.deregister_cluster(fleet.admin, cluster=worker, reason="sold")
    hand.settle()
    namespace = kube.get(r.NAMESPACE, "acme-vision")
    assert "gpu-budget-portal.dev/installation" in namespace["metadata"]["labels"]
    east.cluster.faults.clear()
    hand.settle()
    worker.refresh_from_db()
    assert worker.state == Cluster.State.REMOVED
    namespace = kube.get(r.NAMESPACE, "acme-vision")
    assert "gpu-budget-portal.dev/installation" not in namespace["metadata"]["labels"]


def test_deregistered_cluster_is_emptied_and_forgotten(
    hand: Hand, fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    hand.settle()
    departure = services.deregister_cluster(fleet.admin, cluster=worker, reason="sold")
    assert "Namespace acme-vision" in departure.stays
    hand.settle()
    worker.refresh_from_db()
    assert worker.state == Cluster.State.REMOVED
    assert bytes(worker.kubeconfig_sealed) == b""
    for resource in (r.CLUSTER_QUEUE, r.COHORT, r.RESOURCE_FLAVOR, r.LOCAL_QUEUE):
        assert kube.list(resource).items == [], resource.kind
    metadata = kube.get(r.NAMESPACE, "acme-vision")["metadata"]
    assert "gpu-budget-portal.dev/installation" not in metadata.get("labels", {})
    entry = AuditEntry.objects.get(action="cluster.removed")
    assert "Namespace acme-vision" in entry.after["stays"]


def test_label_that_an_admin_gave_a_namespace_goes_with_the_portal(
    worker: Cluster, fleet: SmallFleet, kube: KubeClient
) -> None:
    """Two managers own it then; giving up our part would leave it, and the cluster, for ever."""
    ours = {"gpu-budget-portal.dev/installation": settings.PORTAL_INSTALLATION, "team": "vision"}
    kube.create(r.NAMESPACE, {"metadata": {"name": "acme-vision", "labels": ours}})
    with quota_hand("gpu-east") as hand:
        hand.settle()
        services.deregister_cluster(fleet.admin, cluster=worker, reason="sold")
        hand.settle()
    worker.refresh_from_db()
    assert worker.state == Cluster.State.REMOVED
    left = kube.get(r.NAMESPACE, "acme-vision")["metadata"]
    assert set(left["labels"]) - {"kubernetes.io/metadata.name"} == {"team"}
    assert not left.get("annotations")


def test_two_hundred_workspaces_are_synced_quickly_and_an_edit_touches_three_objects(
    db: None, east: DevServer
) -> None:
    many_workspaces(200, workers=("gpu-east",))
    register("gpu-east", east.kubeconfig)
    with quota_hand("gpu-east") as hand:
        hand.settle()
        assert ObjectState.objects.filter(state="synced").count() == 3 * 200 + 20 + 2
        before = {
            key: hand.body.live(key)["metadata"]["resourceVersion"] for key in hand.body.all_keys()
        }
        Budget.objects.filter(workspace__namespace="acc3-w3").update(generation=F("generation") + 1)
        hand.settle()
        after = {key: hand.body.live(key) for key in before}
    changed = {
        key.kind
        for key, version in before.items()
        if after[key]["metadata"]["resourceVersion"] != version
    }
    assert changed == {"Namespace", "ClusterQueue", "LocalQueue"}


@pytest.mark.slow
def test_sweep_of_a_thousand_unchanged_workspaces_is_quick_and_asks_nothing(
    db: None, east: DevServer
) -> None:
    many_workspaces(1000, workers=("gpu-east",))
    register("gpu-east", east.kubeconfig)
    with quota_hand("gpu-east") as hand:
        hand.settle()
        east.cluster.faults.fail(500, count=1, path="resourceflavors|cohorts|queues|namespaces")
        hand.sweep()
        begun = time.monotonic()
        hand.body.turn()
        assert time.monotonic() - begun < 10
        assert east.cluster.faults.before("GET", "/namespaces") == 500, "a request was sent"
    assert ObjectState.objects.filter(state="synced").count() == 3 * 1000 + 20 + 2


def test_row_that_the_database_refuses_keeps_no_other_back(
    worker: Cluster, fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SyncRecords._store_states

    def refusing(self: SyncRecords, results: Sequence[Result], now: datetime) -> object:
        if any(str(result.decision.key) == "ClusterQueue acme-vision" for result in results):
            raise DataError("a character that no database keeps")
        return store(self, results, now)

    with quota_hand("gpu-east") as hand:
        with monkeypatch.context() as refused:
            refused.setattr(SyncRecords, "_store_states", refusing)
            hand.settle()
        standing = hand.context.faults.standing
        assert standing.parked == 1
        assert "ClusterQueue acme-vision could not be written: DataError" in standing.says
        assert states()["ClusterQueue", "globex-search"] == "synced"
        assert ("ClusterQueue", "acme-vision") not in states()
        hand.settle()
        assert states()["ClusterQueue", "acme-vision"] == "synced"
        assert not hand.context.faults.standing.parked


def test_topology_comes_before_its_flavor_and_stays_while_the_flavor_is_there(
    hand: Hand, fleet: SmallFleet, kube: KubeClient
) -> None:
    hand.settle()
    topology = promises.create_topology(
        fleet.admin, slug="racks", name="Racks", levels=["example.com/rack"]
    )
    a100 = promises.create_flavor(fleet.admin, slug="a9", name="A9", node_labels={"gpu": "a9"})
    promises.give_topology(fleet.admin, flavor=a100, topology=topology)
    hand.settle()
    levels = kube.get(r.TOPOLOGY, "racks")["spec"]["levels"]
    assert levels == [{"nodeLabel": "example.com/rack"}]
    assert kube.get(r.RESOURCE_FLAVOR, "a9")["spec"]["topologyName"] == "racks"
    assert states()["Topology", "racks"] == "synced"

    kube.patch(r.RESOURCE_FLAVOR, "a9", {"metadata": {"finalizers": ["example.com/held"]}})
    promises.archive_flavor(fleet.admin, flavor=a100, reason="over")
    promises.archive_topology(fleet.admin, topology=topology, reason="over")
    hand.settle()
    row = ObjectState.objects.get(kind="Topology")
    assert row.message == "It stays while it is used by ResourceFlavor a9."
    kube.patch(r.RESOURCE_FLAVOR, "a9", {"metadata": {"finalizers": []}})
    hand.settle()
    assert not kube.list(r.TOPOLOGY).items
    assert not ObjectState.objects.filter(kind="Topology").exists()


def test_cluster_without_the_right_to_topologies_is_synced_all_the_same(
    worker: Cluster, fleet: SmallFleet, kube: KubeClient, east: DevServer
) -> None:
    east.cluster.faults.fail(403, count=500, path="topologies")
    with quota_hand("gpu-east") as hand:
        fleet.revise(fleet.vision, line("h100", 24, 32))
        hand.settle()
        assert nominal(kube, "acme-vision") == "24"
