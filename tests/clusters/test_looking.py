"""A look at the objects of a job, on embedded API servers: who asks, what is read, what is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from budgets.errors import Rejected
from budgets.models import Operation, User, Workspace
from clusters import services
from clusters.devcluster.server import DevServer
from clusters.kube import resources as r
from clusters.kube.client import KubeClient, WriteOptions
from tests.builders import SmallFleet
from tests.explained.looks import ADMITTED, RESERVED, condition, event, job
from tests.reconcile import admission_harness as harness
from tests.reconcile.fleet_rows import dev_server, register
from tests.resources import resource_of

pytestmark = [pytest.mark.django_db, pytest.mark.embedded]
NS, GPU = "acme-vision", "nvidia.com/gpu"
STATUS = WriteOptions(subresource="status")
NO_LABEL = (
    "The Job train has no label kueue.x-k8s.io/queue-name, so Kueue leaves it alone. Give it the "
    "label kueue.x-k8s.io/queue-name=default."
)


@dataclass
class Two:
    """A manager hub and a worker east, both registered."""

    fleet: SmallFleet
    hub: KubeClient
    east: KubeClient
    servers: dict[str, DevServer]

    def ask(self, name: str = "train", actor: User | None = None) -> str:
        operation = services.start_look(
            actor or self.fleet.admin, workspace=self.fleet.vision, job=name
        )
        services.look_at_job(str(operation.pk))
        operation.refresh_from_db()
        assert operation.state == Operation.State.DONE
        return operation.message


@pytest.fixture
def two(fleet: SmallFleet) -> Iterator[Two]:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(dev_server(name)) for name in ("hub", "east")}
        clients = {
            name: stack.enter_context(KubeClient.from_kubeconfig(server.kubeconfig))
            for name, server in servers.items()
        }
        register("hub", servers["hub"].kubeconfig, role="manager")
        register("east", servers["east"].kubeconfig)
        create(clients["hub"], *harness.quota_objects(16))
        yield Two(fleet, clients["hub"], clients["east"], servers)


def create(client: KubeClient, *documents: dict[str, Any]) -> None:
    """Make objects, with the status that they are given."""
    for document in documents:
        resource, metadata = resource_of(document), document["metadata"]
        metadata = {key: value for key, value in metadata.items() if key != "uid"}
        client.create(resource, {**document, "metadata": metadata})
        if document.get("status"):
            client.patch(
                resource,
                metadata["name"],
                {"status": document["status"]},
                namespace=metadata.get("namespace"),
                options=STATUS,
            )


def workload(client: KubeClient, *conditions: dict[str, Any]) -> dict[str, Any]:
    """The Workload of a Job train that is there."""
    owner = client.get(r.JOB, "train", namespace=NS)
    pod_set = {"name": "main", "count": 1, "template": {"spec": job()["spec"]["template"]["spec"]}}
    found = harness.kueue(
        "Workload", "job-train", {"queueName": "default", "podSets": [pod_set]}, NS
    )
    found["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": owner["metadata"]["uid"]}
    given = {"name": "main", "count": 1, "flavors": {GPU: "h100"}, "resourceUsage": {GPU: "8"}}
    admission = {"clusterQueue": NS, "podSetAssignments": [given]}
    return {**found, "status": {"admission": admission, "conditions": list(conditions)}}


def test_a_job_without_a_queue_name_is_found_by_its_name(two: Two):
    create(two.hub, job(marks={}))
    before = [item["metadata"]["resourceVersion"] for item in two.hub.list(r.JOB).items]
    assert two.ask() == NO_LABEL
    assert two.ask(actor=two.fleet.owner) == NO_LABEL
    after = [item["metadata"]["resourceVersion"] for item in two.hub.list(r.JOB).items]
    assert after == before, "it only reads"


def test_a_job_that_is_nowhere_is_said_to_be_nowhere(two: Two):
    assert two.ask("none").startswith("Hub has no job none in namespace acme-vision.")


def test_a_worker_is_asked_for_what_the_manager_dispatches(two: Two):
    create(two.hub, job())
    create(two.hub, workload(two.hub, RESERVED))
    assert two.ask().startswith("There is no namespace acme-vision on East.")
    assert two.ask(actor=two.fleet.owner).startswith(
        "There is no namespace acme-vision on a worker."
    )
    objects = harness.quota_objects(16)
    create(two.east, *(item for item in objects if item["kind"] != "LocalQueue"))
    assert two.ask().startswith("East has no LocalQueue default in namespace acme-vision")
    create(two.east, *(item for item in objects if item["kind"] == "LocalQueue"))
    assert two.ask().startswith("Nothing on the clusters speaks against this job.")


def test_pods_that_do_not_start_are_explained_by_the_worker_that_has_them(two: Two):
    create(two.hub, job())
    create(two.hub, workload(two.hub, RESERVED))
    create(two.east, *harness.quota_objects(16), job(suspend=False))
    create(two.east, workload(two.east, RESERVED, ADMITTED))
    create(two.east, event("FailedCreate", "exceeded quota: gpus, requested: pods=1, used: pods=4, "
                           "limited: pods=4"))  # fmt: skip
    assert two.ask().startswith(
        "East makes no pods for the Job train: the ResourceQuota gpus of its namespace has no room "
        "(asked for pods=1, used pods=4, allowed pods=4)."
    )
    uid = two.east.get(r.JOB, "train", namespace=NS)["metadata"]["uid"]
    told = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 full.")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-0",
            "namespace": NS,
            "labels": {"batch.kubernetes.io/controller-uid": uid},
        },
        "spec": {"containers": [{"name": "main", "image": "train:1"}]},
        "status": {"phase": "Pending", "conditions": [told]},
    }
    other = {**pod, "metadata": {"name": "other-0", "namespace": NS}}
    create(two.east, pod, other)
    assert two.ask().startswith(
        "East finds no node for pod train-0: 0/3 nodes are available: 3 full. Quota is there"
    )


def test_a_cluster_that_does_not_answer_is_told_and_keeps_no_other_from_answering(two: Two):
    create(two.hub, job())
    create(two.hub, workload(two.hub, RESERVED))
    two.servers["east"].cluster.faults.is_refusing = True
    assert two.ask().startswith("East could not be asked: ")
    assert two.ask(actor=two.fleet.owner) == (
        "One cluster could not be asked. Ask again in a while."
    )


def test_nobody_asks_about_a_workspace_that_they_do_not_see(two: Two):
    with pytest.raises(Workspace.DoesNotExist):
        services.start_look(two.fleet.owner, workspace=two.fleet.search, job="train")
    assert not Operation.objects.exists()


@pytest.mark.parametrize("name", ["", "Train", "a/b", "a b", "-a", "a" * 254])
def test_what_is_no_name_of_a_job_is_refused(fleet: SmallFleet, name: str):
    with pytest.raises(Rejected) as refused:
        services.start_look(fleet.owner, workspace=fleet.vision, job=name)
    [fault] = refused.value.faults
    assert fault.field == "job"
    assert "is not the name of a job" in fault.message


def test_an_operation_of_another_kind_is_left_alone(fleet: SmallFleet):
    row = Operation.objects.create(kind="preflight", subject="job:acme-vision/train")
    assert services.look_at_job(str(row.pk)) == ""
    row.refresh_from_db()
    assert row.state == Operation.State.RUNNING
