"""Pods, groups and LeaderWorkerSets on real API servers, under the generated least rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from clusters import selectors
from clusters.documents import labels
from clusters.documents.keys import annotations_of
from clusters.jobs.leader_worker_sets import replica_by_name
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.models import Cluster
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.kube.apply import apply_documents
from tests.reconcile.admission_harness import (
    Document,
    condition,
    is_true,
)
from tests.reconcile.custom_kinds import INTEGRATIONS
from tests.reconcile.pod_kinds import get, group, pod, runs, say
from tests.reconcile.test_dispatch_kinds_real import definition, is_served
from tests.reconcile.test_dispatch_real import RIGHTS, WORKERS, RealFleet, clear, prepare
from tests.reconcile.test_dispatch_sets import KIND, SETS, leader_worker_set
from tests.resources import CUSTOM_RESOURCE_DEFINITION
from tests.waiting import eventually

pytestmark = pytest.mark.controlplane

FRAMEWORKS = ["batch/job", "pod", "leaderworkerset.x-k8s.io/leaderworkerset"]
NAMED = {"integrations": {"frameworks": FRAMEWORKS}}
TEMPLATE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# The part of the schema that matters: a number of replicas, and templates of pods.
SET_SPEC = {
    "type": "object",
    "required": ["leaderWorkerTemplate"],
    "properties": {
        "replicas": {"type": "integer", "default": 1, "minimum": 0},
        "startupPolicy": {"type": "string", "default": "LeaderCreated"},
        "leaderWorkerTemplate": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "default": 1},
                "leaderTemplate": TEMPLATE,
                "workerTemplate": TEMPLATE,
            },
        },
    },
}


class PodsFleet(RealFleet):
    """Real clusters that serve LeaderWorkerSets; rights for them and for pods."""

    def __enter__(self) -> PodsFleet:
        super().__enter__()
        kinds = tuple(INTEGRATIONS[name] for name in FRAMEWORKS if name in INTEGRATIONS)
        for name, place in self.places.items():
            role = "manager" if name == "manager" else "worker"
            wanted = selectors.rights_documents(
                Cluster(role=role, mode="portal"), workers=WORKERS, kinds=kinds
            )
            documents = [item for item in wanted if item["kind"] in RIGHTS]
            documents.append(definition(KIND, SET_SPEC))
            report = apply_documents(place.client, documents, options=WriteOptions(force=True))
            assert report.is_complete, report.failed
            eventually(lambda place=place: is_served(place, KIND))
        return self

    def tidy(self, namespace: str) -> None:
        for place in self.places.values():
            for item in place.all(SETS):
                place.client.delete(SETS, item["metadata"]["name"], namespace=namespace)
            for item in place.all(r.POD):
                if item["metadata"]["namespace"] == namespace:
                    place.client.delete(r.POD, item["metadata"]["name"], namespace=namespace)
            clear(place, namespace)
            place.client.delete(CUSTOM_RESOURCE_DEFINITION, f"{KIND.plural}.{KIND.group}")


@pytest.fixture
def bare(bare_fleet: Fleet, unique_name, db) -> Iterator[tuple[PodsFleet, str]]:
    """Manager and workers by the portal alone."""
    name = unique_name("pods")
    with PodsFleet(bare_fleet, bare_fleet.manager) as fleet:
        prepare(fleet, name)
        for place in ("manager", *WORKERS):
            fleet.start(place, "admission", kueue_configuration=NAMED)
        fleet.start_dispatch(kueue_configuration=NAMED)
        yield from used(fleet, name)


@pytest.fixture
def mixed(kueue_fleet: Fleet, bare_cluster, unique_name, db) -> Iterator[tuple[PodsFleet, str]]:
    """A manager by the portal, workers under a real Kueue that knows the kinds."""
    name = unique_name("pods")
    with PodsFleet(kueue_fleet, bare_cluster) as fleet:
        prepare(fleet, name)
        restart_kueue(kueue_fleet.workers, {"integrations": {"frameworks": FRAMEWORKS}})
        try:
            fleet.start("manager", "admission", kueue_configuration=NAMED)
            fleet.start_dispatch(kueue_configuration=NAMED)
            yield from used(fleet, name)
        finally:
            restart_kueue(kueue_fleet.workers)


def restart_kueue(planes: Sequence[ControlPlane], config: Document | None = None) -> None:
    """With another Configuration, or the usual one; all at the same time."""

    def restart(plane: ControlPlane) -> None:
        plane.stop_kueue()
        plane.start_kueue(config)

    with ThreadPoolExecutor(len(planes)) as pool:
        list(pool.map(restart, planes))


def used(fleet: PodsFleet, name: str) -> Iterator[tuple[PodsFleet, str]]:
    for place in fleet.places.values():
        # The admission plugin for service accounts lets no pod in before it is there.
        eventually(lambda place=place: place.get(r.SERVICE_ACCOUNT, "default", name))
    try:
        yield fleet, name
    finally:
        for shift in fleet.shifts:
            shift.stop()
        fleet.tidy(name)
    for shift in fleet.shifts:
        assert shift.error is None, shift.error


def submit(fleet: PodsFleet, namespace: str, *documents: Document) -> None:
    for document in documents:
        document["metadata"]["namespace"] = namespace
    fleet["manager"].create(*documents)


def workload(fleet: PodsFleet, namespace: str, name: str) -> Document:
    manager = fleet["manager"]
    return manager.get(r.WORKLOAD, name, namespace) or manager.workload_of(name, namespace) or {}


def told(fleet: PodsFleet, namespace: str) -> str:
    def short(item: Document) -> tuple[object, ...]:
        status = item.get("status") or {}
        listed = [
            (c["type"], c["status"], c.get("message")) for c in status.get("conditions") or ()
        ]
        return item["kind"], item["metadata"]["name"], status.get("phase"), listed

    return str(
        [
            (name, *short(item))
            for name, place in fleet.places.items()
            for kind in (r.WORKLOAD, r.POD)
            for item in place.all(kind)
            if item["metadata"]["namespace"] == namespace
        ]
        + [
            (name, item["involvedObject"]["name"], item.get("reason"), item.get("message"))
            for name, place in fleet.places.items()
            for item in place.all(r.EVENT)
            if item["metadata"]["namespace"] == namespace
        ]
        + [shift.error for shift in fleet.shifts]
    )


def run_pods(fleet: PodsFleet, namespace: str, name: str, *names: str) -> None:
    """Placed on one worker, let go there, their ends come back, nothing is left there."""
    manager, why = fleet["manager"], lambda: told(fleet, namespace)
    status = lambda: workload(fleet, namespace, name).get("status") or {}  # noqa: E731
    worker = eventually(lambda: status().get("clusterName"), why=why)
    place = fleet[worker]
    for each in names:
        eventually(lambda each=each: runs(place, each, namespace), why=why)
        say(place, each, "Running", namespace=namespace)
        phase = lambda each=each: get(manager, each, namespace)["status"]["phase"]  # noqa: E731
        eventually(lambda phase=phase: phase() == "Running", why=why)
        assert get(manager, each, namespace)["spec"]["schedulingGates"]

    def ended() -> Document:
        """Each is said to have ended; once more where its node said afterwards that it runs."""
        for each in names:
            if get(place, each, namespace).get("status", {}).get("phase") == "Running":
                say(place, each, "Succeeded", namespace=namespace)
        return condition(workload(fleet, namespace, name), "Finished")

    assert eventually(ended, why=why)["reason"] == "Succeeded"
    assert {get(manager, each, namespace)["status"]["phase"] for each in names} == {"Succeeded"}
    for each in names:
        eventually(lambda each=each: not get(place, each, namespace), why=why)
    others = [fleet[item] for item in WORKERS]
    eventually(
        lambda: (
            not any(
                item["metadata"]["namespace"] == namespace
                for other in others
                for item in other.all(r.WORKLOAD)
            )
        ),
        why=why,
    )


def run_set(fleet: PodsFleet, namespace: str) -> None:
    """Both replicas on one worker, by the names that a Kueue there looks for."""
    manager, why = fleet["manager"], lambda: told(fleet, namespace)
    submit(fleet, namespace)
    document = leader_worker_set(gpus=2)
    document["metadata"]["namespace"] = namespace
    made = manager.client.create(SETS, document)

    def chosen() -> str:
        found = [manager.get(r.WORKLOAD, name, namespace) or {} for name in replica_by_name(made)]
        placed = [(item.get("status") or {}).get("clusterName") or "" for item in found]
        return placed[0] if len(set(placed)) == 1 else ""

    place = fleet[eventually(chosen, why=why)]
    copied = eventually(lambda: place.get(SETS, "serve", namespace), why=why)
    assert annotations_of(copied)[labels.ORIGIN_UID] == made["metadata"]["uid"]
    for name in replica_by_name(made):
        eventually(
            lambda name=name: is_true(place.get(r.WORKLOAD, name, namespace), "Admitted"),
            why=why,
        )
    manager.client.patch(SETS, "serve", {"spec": {"replicas": 1}}, namespace=namespace)
    eventually(lambda: place.get(SETS, "serve", namespace)["spec"]["replicas"] == 1, why=why)
    manager.client.delete(SETS, "serve", namespace=namespace)
    eventually(lambda: place.get(SETS, "serve", namespace) is None, why=why)


def test_pods_on_real_api_servers_without_kueue(bare):
    fleet, namespace = bare
    submit(fleet, namespace, pod("train", gpus=8))
    run_pods(fleet, namespace, "train", "train")
    submit(fleet, namespace, *group("sim", pods=3))
    run_pods(fleet, namespace, "sim", "sim-driver", "sim-0", "sim-1")


def test_leader_worker_set_on_real_api_servers_without_kueue(bare):
    run_set(*bare)


@pytest.mark.slow
def test_pods_over_workers_under_kueue(mixed):
    fleet, namespace = mixed
    submit(fleet, namespace, pod("train", gpus=8))
    run_pods(fleet, namespace, "train", "train")
    submit(fleet, namespace, *group("sim", pods=2))
    run_pods(fleet, namespace, "sim", "sim-driver", "sim-0")


@pytest.mark.slow
def test_leader_worker_set_over_workers_under_kueue(mixed):
    run_set(*mixed)
