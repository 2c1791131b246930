"""A kind that an admin named, and rounds, on real API servers, with the generated least rights."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from clusters import selectors
from clusters.documents import labels
from clusters.documents.keys import annotations_of
from clusters.documents.resources import Resource
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.manifests.names import KUEUE_NAMESPACE, MULTIKUEUE_ACCOUNT
from clusters.models import Cluster
from clusters.reconcile.dispatch import DispatchBody
from clusters.reconcile.foreground import ForegroundShift
from clusters.reconcile.multikueue import offers
from tests.controlplane.fleet import Fleet
from tests.kube.apply import apply_documents
from tests.reconcile.admission_harness import (
    Document,
    RunningShift,
    condition,
    facts,
    is_true,
)
from tests.reconcile.custom_kinds import INTEGRATIONS, custom_job, workload_for
from tests.reconcile.test_dispatch_real import RIGHTS, WORKERS, RealFleet, clear, prepare, real_job
from tests.reconcile.test_queued_kinds import job_set
from tests.resources import CUSTOM_RESOURCE_DEFINITION
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.controlplane

TRAINING = Resource.guessed("Training", "v1", "example.test")
PIPELINE = Resource.guessed("PipelineRun", "v1", "tekton.dev")
JOBSET = INTEGRATIONS["jobset.x-k8s.io/jobset"]
KINDS = (TRAINING, PIPELINE, JOBSET)
INTEGRATED = {"integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}}
STATUS = WriteOptions(subresource="status")


def definition(kind: Resource, spec: Document) -> Document:
    """A CRD with a status subresource."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": anything}}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def text() -> Document:
    return {"type": "string"}


TRAINING_SPEC = {
    "type": "object",
    "required": ["steps"],
    "properties": {
        "managedBy": text(),
        "retries": {"type": "integer", "default": 3},
        "steps": {"type": "array", "items": {"type": "object", "properties": {"name": text()}}},
    },
}
# The part of Tekton's schema that matters: managedBy is a field of its own, the rest is kept.
PIPELINE_SPEC = {
    "type": "object",
    "properties": {"managedBy": text(), "status": text()},
    "x-kubernetes-preserve-unknown-fields": True,
}


class KindsFleet(RealFleet):
    """Real clusters with the kinds, every shift with the rights that the portal generates."""

    def __enter__(self) -> KindsFleet:
        super().__enter__()
        for name, place in self.places.items():
            role = "manager" if name == "manager" else "worker"
            documents = [
                *[definition(kind, SPECS[kind]) for kind in KINDS if self.serves(name, kind)],
                *[
                    item
                    for item in selectors.rights_documents(
                        Cluster(role=role, mode="portal"), workers=WORKERS, kinds=KINDS
                    )
                    if item["kind"] in RIGHTS
                ],
            ]
            report = apply_documents(place.client, documents, options=WriteOptions(force=True))
            assert report.is_complete, report.failed
            for kind in KINDS:
                if self.serves(name, kind):
                    eventually(lambda place=place, kind=kind: is_served(place, kind))
        return self

    def serves(self, name: str, kind: Resource) -> bool:
        return (name, kind) != ("worker-1", TRAINING)

    def start_with(self, section: Document, *, prices: Any = None) -> None:
        texts = {
            worker: self._planes[worker].kubeconfig_for(
                MULTIKUEUE_ACCOUNT, namespace=KUEUE_NAMESPACE
            )
            for worker in WORKERS
        }
        names = [{"name": kind.full_name} for kind in (TRAINING, PIPELINE)]
        configuration = {**INTEGRATED, "multiKueue": {"externalFrameworks": names, **section}}
        shift = ForegroundShift(
            kubeconfig=self["manager"].kubeconfig,
            role="dispatch",
            facts=facts("manager", is_manager=True, kueue_configuration=configuration),
            holder="dispatch-kinds",
            workers=texts,
            portal_workers={worker: self[worker].kubeconfig for worker in WORKERS},
            body=lambda context: DispatchBody(context, prices=lambda namespace, now: prices or {}),
        )
        self.shifts.append(RunningShift(shift))


JOBSET_SPEC = {
    "type": "object",
    "properties": {
        "managedBy": text(),
        "suspend": {"type": "boolean"},
        "replicatedJobs": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name", "template"],
                "properties": {
                    "name": text(),
                    "replicas": {"type": "integer", "default": 1},
                    "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
        },
    },
}
SPECS = {TRAINING: TRAINING_SPEC, PIPELINE: PIPELINE_SPEC, JOBSET: JOBSET_SPEC}


def is_served(place, kind: Resource) -> bool:
    found = place.get(CUSTOM_RESOURCE_DEFINITION, f"{kind.plural}.{kind.group}")
    return is_true(found, "Established")


@pytest.fixture
def fleet(bare_fleet: Fleet, unique_name, db) -> Iterator[tuple[KindsFleet, str]]:
    """Quota and admission everywhere; worker-1 does not know one of the kinds."""
    name = unique_name("kinds")
    with KindsFleet(bare_fleet, bare_fleet.manager) as fleet:
        prepare(fleet, name)
        for name_of in ("manager", *WORKERS):
            fleet.start(name_of, "admission", kueue_configuration=INTEGRATED)
        try:
            yield fleet, name
        finally:
            for place in fleet.places.values():
                clear(place, name)
                for kind in KINDS:
                    crd = f"{kind.plural}.{kind.group}"
                    if place.get(CUSTOM_RESOURCE_DEFINITION, crd):
                        place.client.delete(CUSTOM_RESOURCE_DEFINITION, crd)
        for shift in fleet.shifts:
            shift.stop()
            assert shift.error is None, shift.error


def submit(fleet: KindsFleet, document: Document, kind: Resource, *, gpus: int) -> None:
    """The job, and the Workload that the owner of the kind makes."""
    made = fleet["manager"].client.create(kind, document)
    fleet["manager"].create(workload_for(made, gpus=gpus))


def told(fleet: KindsFleet, namespace: str) -> str:
    return str(
        [
            (name, item.get("status"))
            for name, place in fleet.places.items()
            for item in place.all(r.WORKLOAD)
            if item["metadata"]["namespace"] == namespace
        ]
        + [shift.error for shift in fleet.shifts]
    )


def end_to_end(fleet: KindsFleet, namespace: str, kind: Resource, **spec: Any) -> str:
    """Submitted on the manager, runs on one worker, its end comes back, nothing is left there."""
    manager, resource = fleet["manager"], kind
    submit(fleet, custom_job(kind, "run", namespace=namespace, **spec), kind, gpus=8)

    def worker() -> str:
        status = (manager.workload_of("run", namespace) or {}).get("status") or {}
        return status.get("clusterName") or ""

    chosen = eventually(worker, why=lambda: told(fleet, namespace))
    place = fleet[chosen]
    copied = eventually(lambda: place.get(resource, "run", namespace))
    assert "managedBy" not in copied["spec"]
    assert annotations_of(copied)[labels.PREBUILT] == "of-run"
    others = [other for other in WORKERS if other != chosen and fleet.serves(other, kind)]
    assert not any(fleet[other].get(resource, "run", namespace) for other in others)
    done = {"conditions": [{"type": "Succeeded", "status": "True"}], "results": {"loss": "0.1"}}
    place.client.patch(resource, "run", {"status": done}, namespace=namespace, options=STATUS)
    eventually(lambda: manager.get(resource, "run", namespace).get("status") == done)
    finish(place, namespace)
    eventually(lambda: is_true(manager.workload_of("run", namespace), "Finished"))
    assert condition(manager.workload_of("run", namespace), "Finished")["reason"] == "Succeeded"
    eventually(lambda: place.get(resource, "run", namespace) is None)
    eventually(lambda: place.get(r.WORKLOAD, "of-run", namespace) is None)
    return chosen


def finish(place, namespace: str) -> None:
    """Play the owner of the kind: its Workload has ended."""
    found = place.client.get(r.WORKLOAD, "of-run", namespace=namespace)
    ended = {
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "done",
        "lastTransitionTime": "2026-03-01T00:00:00Z",
    }  # fmt: skip
    body = {"status": {"conditions": [*found["status"]["conditions"], ended]}}
    place.client.patch(r.WORKLOAD, "of-run", body, namespace=namespace, options=STATUS)


def test_named_kind_end_to_end_on_real_api_servers_and_missing_on_one_worker(fleet):
    fleet, namespace = fleet
    fleet.start_with({})
    assert end_to_end(fleet, namespace, TRAINING, retries=1) == "worker-2"
    shown = condition(fleet["manager"].get(r.MULTIKUEUE_CLUSTER, "worker-1"), "Active")
    assert (shown["status"], "takes no Training.v1" in shown["message"]) == ("True", True)


def test_pipeline_run_of_tekton_end_to_end_on_real_api_servers(fleet):
    fleet, namespace = fleet
    fleet.start_with({})
    spec = {"pipelineRef": {"name": "train"}, "params": [{"name": "epochs", "value": "3"}]}
    end_to_end(fleet, namespace, PIPELINE, **spec)


def test_job_set_all_by_the_portal_on_real_api_servers(fleet):
    """Its Workload is made, it runs on a worker, its end comes back; nothing is left there."""
    fleet, namespace = fleet
    fleet.start_with({})
    manager, resource = fleet["manager"], JOBSET
    document = job_set("set", managed=True)
    document["metadata"]["namespace"] = namespace
    document["spec"]["replicatedJobs"][1]["replicas"] = 1
    manager.client.create(resource, document)

    def chosen() -> str:
        status = (manager.workload_of("set", namespace) or {}).get("status") or {}
        return status.get("clusterName") or ""

    place = fleet[eventually(chosen, why=lambda: told(fleet, namespace))]

    def copied() -> Document:
        return place.get(resource, "set", namespace) or {}

    eventually(
        lambda: copied().get("spec", {}).get("suspend") is False,
        why=lambda: f"{copied()} {told(fleet, namespace)}",
    )
    driver = copied()["spec"]["replicatedJobs"][0]
    marks = driver["template"]["spec"]["template"]["metadata"]["labels"]
    assert marks[labels.POD_SET] == "driver"
    done = {"conditions": [{"type": "Completed", "status": "True", "message": "done"}]}
    place.client.patch(resource, "set", {"status": done}, namespace=namespace, options=STATUS)
    ended = lambda: condition(manager.workload_of("set", namespace), "Finished")  # noqa: E731
    assert eventually(ended)["reason"] == "Succeeded"
    assert manager.get(resource, "set", namespace)["status"] == done
    eventually(lambda: not copied())


def test_cheapest_fit_on_real_api_servers(fleet, monkeypatch):
    """The portal's identity reads the quota of the workers; the cheaper one goes first."""
    monkeypatch.setattr(offers, "SETTLE_S", PATIENCE_S)  # however long its first list takes
    fleet, namespace = fleet
    section = {"dispatcherName": CHEAPEST_FIT, "incrementalDispatcherConfig": {"timeout": "10m"}}
    worker = fleet["worker-1"]
    queue = worker.get(r.CLUSTER_QUEUE, namespace)
    groups = queue["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["name"] = "dear"
    worker.create({**dear(), "metadata": {"name": "dear"}})
    worker.client.patch(r.CLUSTER_QUEUE, namespace, {"spec": {"resourceGroups": groups}})
    try:
        fleet.start_with(section, prices={"dear": Decimal(9), namespace: Decimal(2)})
        manager = fleet["manager"]
        await_workers(manager)
        for name, want in (("a", "worker-2"), ("b", "worker-1")):
            manager.create(real_job(name, namespace, gpus=8, run_for="60s"))

            def chosen(name: str = name) -> str:
                status = (manager.workload_of(name, namespace) or {}).get("status") or {}
                return status.get("clusterName") or ""

            assert eventually(chosen, why=lambda: told(fleet, namespace)) == want
    finally:
        clear(worker, namespace)
        worker.client.delete(r.RESOURCE_FLAVOR, "dear")


def await_workers(manager) -> None:
    """Until the manager says that it is connected to every worker."""
    eventually(
        lambda: all(is_true(manager.get(r.MULTIKUEUE_CLUSTER, name), "Active") for name in WORKERS)
    )


def dear() -> Document:
    return {"apiVersion": r.RESOURCE_FLAVOR.api_version, "kind": "ResourceFlavor", "spec": {}}
