"""The same road on real API servers: all by the portal, and a portal manager over real Kueue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from clusters import selectors
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from clusters.manifests.names import KUEUE_NAMESPACE, MULTIKUEUE_ACCOUNT, PORTAL_ACCOUNT
from clusters.models import Cluster
from clusters.reconcile.foreground import ForegroundShift
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.controlplane.kwok_nodes import RUN_FOR
from tests.kube.apply import apply_documents
from tests.reconcile.admission_harness import (
    CHECK,
    Document,
    Embedded,
    Place,
    RunningShift,
    condition,
    facts,
    is_true,
    job,
    kueue,
    limited,
    multikueue_objects,
    quota_objects,
)
from tests.waiting import eventually

WORKERS = ("worker-1", "worker-2")


RIGHTS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


class RealFleet(Embedded):
    """The same harness over real control planes; every shift has the generated least rights."""

    def __init__(self, fleet: Fleet, manager: ControlPlane) -> None:
        super().__init__()
        self._planes = {"manager": manager, **{plane.name: plane for plane in fleet.workers}}

    def __enter__(self) -> RealFleet:
        for name, plane in self._planes.items():
            admin = KubeClient.from_kubeconfig(plane.admin_kubeconfig.read_text())
            self._stack.enter_context(admin)
            role = "manager" if name == "manager" else "worker"
            wanted = selectors.rights_documents(Cluster(role=role, mode="portal"), workers=WORKERS)
            documents = [item for item in wanted if item["kind"] in RIGHTS]
            assert apply_documents(admin, documents, options=WriteOptions(force=True)).is_complete
            text = plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE)
            self.places[name] = Place(name, admin, text)
        return self

    def start_dispatch(self, **more: Any) -> None:
        """As the manager's portal identity, and the workers' *multikueue* identities.

        Args:
            more: Facts of the manager, such as its ``kueue_configuration``.
        """
        texts = {
            worker: self._planes[worker].kubeconfig_for(
                MULTIKUEUE_ACCOUNT, namespace=KUEUE_NAMESPACE
            )
            for worker in WORKERS
        }
        shift = ForegroundShift(
            kubeconfig=self["manager"].kubeconfig,
            role="dispatch",
            facts=facts("manager", is_manager=True, **more),
            holder="dispatch-real",
            workers=texts,
        )
        self.shifts.append(RunningShift(shift))


def clear(place: Place, namespace: str) -> None:
    """Take away what a story made; fleets are shared by all tests of a session."""
    for item in place.all(r.JOB):
        if item["metadata"]["namespace"] == namespace:
            place.client.delete(r.JOB, item["metadata"]["name"], namespace=namespace)
    for resource in (r.CLUSTER_QUEUE, r.ADMISSION_CHECK, r.MULTIKUEUE_CONFIG, r.MULTIKUEUE_CLUSTER):
        for item in place.all(resource):
            if item["metadata"]["name"] in (namespace, CHECK, *WORKERS):
                place.client.delete(resource, item["metadata"]["name"])


@pytest.fixture
def bare(bare_fleet: Fleet, unique_name, db) -> Iterator[tuple[RealFleet, str]]:
    """Manager and workers without Kueue, with quota; shifts on all of them."""
    with at_work(RealFleet(bare_fleet, bare_fleet.manager), unique_name("h2")) as made:
        for worker in WORKERS:
            made[0].start(worker, "admission")
        yield made


@pytest.fixture
def mixed(kueue_fleet: Fleet, bare_cluster, unique_name, db) -> Iterator[tuple[RealFleet, str]]:
    """A manager by the portal, workers under a real Kueue."""
    with at_work(RealFleet(kueue_fleet, bare_cluster), unique_name("h2")) as made:
        yield made


@contextmanager
def at_work(fleet: RealFleet, name: str) -> Iterator[tuple[RealFleet, str]]:
    """Quota on all clusters, shifts on the manager; tidied up afterwards."""
    with fleet, ExitStack() as stack:
        for place in fleet.places.values():
            stack.callback(clear, place, name)
        prepare(fleet, name)
        fleet.start("manager", "admission")
        fleet.start_dispatch()
        yield fleet, name
        for shift in fleet.shifts:
            shift.stop()
            assert shift.error is None, shift.error


def prepare(fleet: RealFleet, name: str) -> None:
    manager = fleet["manager"]
    manager.create(*multikueue_objects(*WORKERS))
    for place, gpus in ((manager, 16), *((fleet[worker], 8) for worker in WORKERS)):
        objects = quota_objects(
            gpus, namespace=name, flavor=name, labels={}, check=place is manager
        )
        for document in objects:
            if document["metadata"]["name"] == "host":
                continue
            place.create(document)
        if place.get(r.RESOURCE_FLAVOR, "host") is None:
            place.create(kueue("ResourceFlavor", "host", {}))


def real_job(name: str, namespace: str, *, gpus: int, run_for: str) -> Document:
    document = job(name, gpus=gpus, managed=True, namespace=namespace)
    template = document["spec"]["template"]
    template["metadata"] = {"annotations": {RUN_FOR: run_for}}
    document["spec"]["backoffLimit"] = 0
    return limited(document)


def end_pods(fleet: RealFleet, name: str) -> None:
    """Play the kubelet where there is none: pods that are there have succeeded."""
    for worker in WORKERS:
        for pod in fleet[worker].all(r.POD):
            if pod["metadata"]["namespace"] == name and pod["status"]["phase"] == "Pending":
                fleet[worker].client.patch(
                    r.POD,
                    pod["metadata"]["name"],
                    {"status": {"phase": "Succeeded"}},
                    namespace=name,
                    options=WriteOptions(subresource="status"),
                )


def run_story(fleet: RealFleet, name: str, *, has_nodes: bool) -> None:
    """Submitted on the manager, runs on a worker, its end comes back, nothing is left."""
    manager = fleet["manager"]
    manager.create(real_job("train", name, gpus=8, run_for="1s"))
    if not has_nodes:
        eventually(lambda: (manager.job("train", name).get("status") or {}).get("active"))
        end_pods(fleet, name)

    def story() -> str:
        places = {
            place: [item.get("status") for item in fleet[place].all(r.WORKLOAD)]
            for place in fleet.places
        }
        return f"{[s.error for s in fleet.shifts]} {places}"

    finished = eventually(
        lambda: (w := manager.workload_of("train", name)) and is_true(w, "Finished") and w,
        why=story,
    )
    assert condition(finished, "Finished")["reason"] == "Succeeded"
    assert finished["status"]["clusterName"] in WORKERS
    status = manager.job("train", name)["status"]
    assert status["succeeded"] == 1
    assert any(item["type"] == "Complete" for item in status["conditions"])
    for worker in WORKERS:
        eventually(
            lambda worker=worker: (
                not [
                    item
                    for resource in (r.JOB, r.WORKLOAD)
                    for item in fleet[worker].all(resource)
                    if item["metadata"]["namespace"] == name
                ]
            )
        )


def stop_and_resume(fleet: RealFleet, name: str) -> None:
    """Drained on the manager and let go again: stops in order, then runs again."""
    manager = fleet["manager"]
    manager.create(real_job("long", name, gpus=8, run_for="60s"))

    def runs() -> bool:
        return bool((manager.job("long", name).get("status") or {}).get("active"))

    def facts() -> str:
        return str((manager.workload_of("long", name), manager.job("long", name)["status"]))

    eventually(runs, why=facts)
    manager.client.patch(r.CLUSTER_QUEUE, name, {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(
        lambda: "admission" not in manager.workload_of("long", name)["status"],
        why=facts,
    )
    eventually(lambda: not any(fleet[worker].job("long", name) for worker in WORKERS))
    manager.client.patch(r.CLUSTER_QUEUE, name, {"spec": {"stopPolicy": "None"}})
    eventually(runs, why=facts)


def test_dispatch_road_on_real_api_servers_without_kueue(bare):
    fleet, name = bare
    run_story(fleet, name, has_nodes=False)


def test_dispatch_stops_and_resumes_on_real_api_servers_without_kueue(bare):
    fleet, name = bare
    stop_and_resume(fleet, name)


def test_dispatch_road_of_a_portal_manager_over_workers_under_kueue(mixed):
    fleet, name = mixed
    run_story(fleet, name, has_nodes=True)


def test_dispatch_stops_and_resumes_over_workers_under_kueue(mixed):
    fleet, name = mixed
    stop_and_resume(fleet, name)
