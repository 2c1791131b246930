"""Pods and pod groups: queued where the portal decides, and dispatched to one worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters.documents import labels
from clusters.documents.keys import annotations_of
from clusters.kube import resources as r
from tests.reconcile.admission_harness import (
    INSTALLATION,
    NS,
    Embedded,
    condition,
    is_true,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.dispatch_watcher import Watcher
from tests.reconcile.pod_kinds import GATE, gates, get, group, pod, runs, say
from tests.waiting import eventually

pytestmark = pytest.mark.embedded
WORKERS = ("w1", "w2")
CONFIGURATION = {
    "integrations": {"frameworks": ["batch/job", "pod"]},
    "multiKueue": {"workerLostTimeout": "2s"},
}


@pytest.fixture
def alone() -> Iterator[Embedded]:
    """One cluster where the portal decides."""
    with Embedded("solo", webhooks=True) as fleet:
        fleet["solo"].create(*quota_objects(4))
        fleet.start("solo", "admission", kueue_configuration=CONFIGURATION)
        yield fleet
        assert all(shift.error is None for shift in fleet.shifts), fleet.shifts


@pytest.fixture
def fleet() -> Iterator[Embedded]:
    """Manager and workers, all by the portal; invariants are watched."""
    with Embedded("manager", *WORKERS, webhooks=True) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(8, check=True))
        fleet.start("manager", "admission", kueue_configuration=CONFIGURATION)
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(4))
            fleet.start(worker, "admission", kueue_configuration=CONFIGURATION)
        fleet.start("manager", "dispatch", workers=WORKERS, kueue_configuration=CONFIGURATION)
        with Watcher(fleet, origin=INSTALLATION, kinds=("/pods",)) as watcher:
            yield fleet
        watcher.judge()
        assert all(shift.error is None for shift in fleet.shifts), [s.error for s in fleet.shifts]


def workload(fleet: Embedded, place: str, name: str) -> dict:
    """The Workload of a pod, or of a group."""
    return fleet[place].get(r.WORKLOAD, name, NS) or fleet[place].workload_of(name) or {}


def placed(fleet: Embedded, name: str) -> str:
    return (workload(fleet, "manager", name).get("status") or {}).get("clusterName") or ""


def told(fleet: Embedded) -> str:
    return str(
        [(name, place.all(r.WORKLOAD), place.all(r.POD)) for name, place in fleet.places.items()]
    )


# Where the portal decides


def test_a_pod_goes_through_its_gate_where_its_flavor_is_and_finishes(alone):
    solo = alone["solo"]
    solo.create(pod("train", gpus=4))
    eventually(lambda: runs(solo, "train"), why=lambda: told(alone))
    started = get(solo, "train")
    assert started["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert started["metadata"]["labels"][labels.MANAGED] == "true"
    solo.create(pod("second", gpus=1))
    eventually(lambda: condition(workload(alone, "solo", "second"), "QuotaReserved"))
    assert gates(solo, "second") == [labels.ADMISSION_GATE]
    say(solo, "train", "Running")
    say(solo, "train", "Succeeded")
    ended = eventually(lambda: condition(workload(alone, "solo", "train"), "Finished"))
    assert ended["reason"] == "Succeeded"
    eventually(lambda: runs(solo, "second"))


def test_a_pod_without_the_gate_is_left_alone(alone):
    solo = alone["solo"]
    solo.create(pod("free", gated=False), pod("held"))
    eventually(lambda: runs(solo, "held"))
    assert not workload(alone, "solo", "free")
    assert labels.MANAGED not in get(solo, "free")["metadata"]["labels"]


def test_a_group_waits_for_all_its_pods_and_starts_them_together(alone):
    solo = alone["solo"]
    driver, first, second = group("sim", pods=3)
    solo.create(driver, first)
    solo.create(pod("other"))
    eventually(lambda: runs(solo, "other"))
    assert not workload(alone, "solo", "sim")
    solo.client.delete(r.POD, "other", namespace=NS)
    second["spec"]["containers"][0]["resources"] = driver["spec"]["containers"][0]["resources"]
    solo.create(second)
    names = ("sim-driver", "sim-0", "sim-1")
    eventually(lambda: all(runs(solo, name) for name in names), why=lambda: told(alone))
    found = workload(alone, "solo", "sim")
    assert sorted(item["count"] for item in found["spec"]["podSets"]) == [1, 2]
    assert {item["name"] for item in found["metadata"]["ownerReferences"]} == set(names)
    for name in names:
        say(solo, name, "Succeeded")
    ended = eventually(lambda: condition(workload(alone, "solo", "sim"), "Finished"))
    assert ended["message"] == "Pods succeeded: 3/3."


def test_a_failed_pod_of_a_group_is_replaced_by_another(alone):
    solo = alone["solo"]
    solo.create(*group("sim"))
    eventually(lambda: runs(solo, "sim-0") and runs(solo, "sim-driver"))
    say(solo, "sim-0", "Failed")
    spare = group("sim")[1]
    spare["metadata"]["name"] = "sim-spare"
    solo.create(spare)
    eventually(lambda: runs(solo, "sim-spare"), why=lambda: told(alone))
    found = workload(alone, "solo", "sim")
    assert not is_true(found, "Finished")
    assert len(found["metadata"]["ownerReferences"]) == 3


def test_a_queue_that_is_drained_deletes_the_pods_that_run(alone):
    solo = alone["solo"]
    solo.create(pod("train"))
    eventually(lambda: runs(solo, "train"))
    solo.create(pod("waits", gpus=4))
    solo.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(lambda: not get(solo, "train"), why=lambda: told(alone))
    assert gates(solo, "waits")


# Dispatched


def test_a_pod_runs_on_one_worker_and_its_status_comes_back(fleet):
    manager = fleet["manager"]
    manager.create(pod("train", gpus=4, tolerations=[{"key": "gpu", "operator": "Exists"}]))
    worker = eventually(lambda: placed(fleet, "train"), why=lambda: told(fleet))
    eventually(lambda: runs(fleet[worker], "train"), why=lambda: told(fleet))
    copied = get(fleet[worker], "train")
    assert copied["metadata"]["labels"][labels.ORIGIN] == INSTALLATION
    assert copied["spec"]["nodeSelector"] == {"gpu": "h100"}
    say(fleet[worker], "train", "Running")
    eventually(lambda: get(manager, "train")["status"]["phase"] == "Running")
    assert gates(manager, "train") == [labels.ADMISSION_GATE]
    say(fleet[worker], "train", "Succeeded")
    eventually(lambda: is_true(workload(fleet, "manager", "train"), "Finished"))
    assert get(manager, "train")["status"]["phase"] == "Succeeded"
    for place in WORKERS:
        eventually(lambda place=place: not fleet[place].all(r.POD))
        eventually(lambda place=place: not fleet[place].all(r.WORKLOAD))


def test_a_group_goes_to_one_worker_and_leaves_nothing_behind(fleet):
    manager = fleet["manager"]
    manager.create(*group("sim", pods=3, gpus=1))
    # 1 + 2 + 2 GPUs fit nowhere.
    eventually(lambda: workload(fleet, "manager", "sim").get("status", {}).get("admission"))
    assert not any(get(fleet[worker], "sim-driver") for worker in WORKERS)
    for item in manager.all(r.POD):
        manager.client.delete(r.POD, item["metadata"]["name"], namespace=NS)
    eventually(lambda: not manager.all(r.WORKLOAD))
    manager.create(*group("small", pods=2, gpus=1))
    names = ("small-driver", "small-0")
    worker = eventually(lambda: placed(fleet, "small"), why=lambda: told(fleet))
    eventually(lambda: all(runs(fleet[worker], name) for name in names), why=lambda: told(fleet))
    other = next(item for item in WORKERS if item != worker)
    assert not fleet[other].all(r.POD)
    assert not any(runs(manager, name) for name in names)
    for name in names:
        manager.client.delete(r.POD, name, namespace=NS)
    eventually(lambda: not fleet[worker].all(r.POD), why=lambda: told(fleet))
    eventually(lambda: not fleet[worker].all(r.WORKLOAD))


def test_members_that_come_and_go_do_so_on_the_worker_as_well(fleet):
    manager = fleet["manager"]
    manager.create(*group("sim"))
    worker = eventually(lambda: placed(fleet, "sim"))
    place = fleet[worker]
    eventually(lambda: runs(place, "sim-0") and runs(place, "sim-driver"))
    say(place, "sim-0", "Failed")
    eventually(lambda: get(manager, "sim-0")["status"]["phase"] == "Failed")
    manager.client.delete(r.POD, "sim-0", namespace=NS)
    eventually(lambda: not get(place, "sim-0"), why=lambda: told(fleet))
    spare = group("sim")[1]
    spare["metadata"]["name"] = "sim-spare"
    manager.create(spare)
    eventually(lambda: runs(place, "sim-spare"), why=lambda: told(fleet))
    assert placed(fleet, "sim") == worker


def test_a_pod_that_somebody_deletes_on_the_worker_starts_over_under_a_new_reservation(fleet):
    manager = fleet["manager"]
    manager.create(pod("train"))
    worker = eventually(lambda: placed(fleet, "train"))
    first = eventually(lambda: runs(fleet[worker], "train") and get(fleet[worker], "train"))
    say(fleet[worker], "train", "Running")
    fleet[worker].client.delete(r.POD, "train", namespace=NS)

    def again() -> dict | None:
        made = [item for place in WORKERS for item in fleet[place].all(r.POD)]
        return made[0] if made and made[0]["metadata"]["uid"] != first["metadata"]["uid"] else None

    second = eventually(again, why=lambda: told(fleet))
    attempts = [annotations_of(item)[labels.ATTEMPT] for item in (first, second)]
    assert attempts[0] != attempts[1]


def test_an_evicted_group_stops_on_its_worker_and_waits_again(fleet):
    manager = fleet["manager"]
    manager.create(*group("sim"))
    worker = eventually(lambda: placed(fleet, "sim"))
    for name in ("sim-driver", "sim-0"):
        eventually(lambda name=name: runs(fleet[worker], name))
        say(fleet[worker], name, "Running")
    eventually(lambda: get(manager, "sim-0")["status"]["phase"] == "Running")
    manager.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(
        lambda: not is_true(workload(fleet, "manager", "sim"), "QuotaReserved"),
        why=lambda: told(fleet),
    )
    assert not any(fleet[name].all(r.POD) for name in WORKERS)
    assert get(manager, "sim-0")["status"]["phase"] == "Pending"
    manager.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "None"}})
    eventually(lambda: placed(fleet, "sim"))


def test_a_gated_pod_keeps_its_own_scheduling_condition_until_the_copy_is_scheduled():
    from clusters.jobs.pods import Pods
    from tests.reconcile.test_admission_jobs import NOW

    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    local = {"metadata": {"resourceVersion": "1"}, "spec": {"schedulingGates": [GATE]}}
    local["status"] = {"phase": "Pending", "conditions": [gated]}
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    copied = {"status": {"phase": "Pending", "conditions": [waits], "podIP": "10.0.0.1"}}
    patch = Pods().status_patch(local, copied, now=NOW)
    assert patch is not None
    assert patch["status"]["conditions"] == [gated]
    assert patch["status"]["podIP"] == "10.0.0.1"
    copied["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    patch = Pods().status_patch(local, copied, now=NOW)
    assert patch is not None
    assert patch["status"]["conditions"][0]["status"] == "True"
    local["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:00Z"
    assert Pods().status_patch(local, copied, now=NOW) is None
