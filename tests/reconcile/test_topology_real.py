"""The same jobs placed by a real Kueue and by the portal: same domains, same nodes for the pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings

from clusters.documents import labels
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, KubeClient
from clusters.manifests.names import KUEUE_NAMESPACE, PORTAL_ACCOUNT
from clusters.reconcile.foreground import ForegroundShift
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import Fleet
from tests.controlplane.kwok_nodes import RUN_FOR, NodeShape
from tests.reconcile.admission_harness import RunningShift, condition, facts, is_true, limited
from tests.reconcile.racks import (
    BLOCK,
    HOST,
    RACK,
    domains_of,
    place_labels,
    racked_job,
    topology_objects,
)
from tests.reconcile.real_clusters import admin_client, grant_rights
from tests.resources import resource_of
from tests.waiting import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db(transaction=True)]

INDEX = "batch.kubernetes.io/job-completion-index"
OF_ITS_OWN = ("controller-uid", "job-name", "completion-index")


class Side:
    """One cluster, whoever admits there."""

    def __init__(self, name: str, plane: ControlPlane, pool: str) -> None:
        self.name, self.pool, self.namespace = name, pool, pool
        self.client: KubeClient = admin_client(plane)
        for number in range(6):
            rack = f"b{number // 4}-r{number // 2}"
            shape = NodeShape(labels=place_labels(pool, rack))
            plane.rest.ensure("/api/v1/nodes", shape.manifest(f"{pool}-n{number}"))
        for document in topology_objects(pool, gpus=1000, namespace=pool):
            self.client.create(resource_of(document), document)
        # A workspace of the portal; the policies keep everybody else's out of the portal's way.
        ours = {"metadata": {"labels": {labels.INSTALLATION: settings.PORTAL_INSTALLATION}}}
        self.client.patch(r.NAMESPACE, pool, ours)

    def submit(self, document: dict[str, Any]) -> None:
        self.client.create(r.JOB, document)

    def workload(self, job: str) -> dict[str, Any]:
        for found in self.client.list(r.WORKLOAD).items:
            owners = found["metadata"].get("ownerReferences") or []
            if found["metadata"]["namespace"] == self.namespace and owners[0]["name"] == job:
                return found
        return {}

    def admitted(self, job: str) -> dict[str, Any]:
        return eventually(
            lambda: (w := self.workload(job)) and is_true(w, "Admitted") and w,
            why=lambda: f"{self.name}: {self.workload(job)}",
        )

    def pods(self, job: str) -> dict[str, str]:
        """Nodes of a job's living pods by their index; empty while one has none."""
        found = {}
        for pod in self.client.list(r.POD).items:
            metadata = pod["metadata"]
            is_ours = metadata["namespace"] == self.namespace and not metadata.get(
                "deletionTimestamp"
            )
            if is_ours and metadata["labels"].get("job-name") == job:
                found[metadata["labels"][INDEX]] = pod["spec"].get("nodeName", "")
        return found

    def running(self, job: str, count: int) -> dict[str, str]:
        return eventually(
            lambda: (p := self.pods(job)) and len(p) == count and all(p.values()) and p,
            why=lambda: f"{self.name}: {self.pods(job)}",
        )

    def lose(self, node: str) -> None:
        self.client.delete(r.NODE, node)

    def remove_pods_of(self, node: str) -> None:
        """What the garbage collector of pods does some time after a node has gone."""
        for pod in self.client.list(r.POD).items:
            if pod["spec"].get("nodeName") == node:
                self.client.delete(
                    r.POD,
                    pod["metadata"]["name"],
                    namespace=pod["metadata"]["namespace"],
                    options=DeleteOptions(grace_period_s=0),
                )


@pytest.fixture
def sides(kueue_fleet: Fleet, own_cluster: ControlPlane, unique_name) -> Iterator[list[Side]]:
    """A cluster under a real Kueue, and one under the portal with the generated least rights."""
    pool = unique_name("racks")
    own_cluster.start_scheduler()
    own_cluster.start_kwok()
    grant_rights(own_cluster, role="single", mode="portal")
    found = [Side("kueue", kueue_fleet.workers[0], pool), Side("portal", own_cluster, pool)]
    text = own_cluster.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE)
    shift = RunningShift(
        ForegroundShift(
            kubeconfig=text,
            role="admission",
            facts=replace(facts("own"), installation=settings.PORTAL_INSTALLATION),
            holder="racks",
        )
    )
    yield found
    shift.stop()
    for side in found:
        for job in side.client.list(r.JOB).items:
            if job["metadata"]["namespace"] == pool:
                side.client.delete(r.JOB, job["metadata"]["name"], namespace=pool)
        # The fleet is shared: what other tests count there is as it was.
        for node in side.client.list(r.NODE).items:
            if node["metadata"]["name"].startswith(f"{pool}-n"):
                side.client.delete(r.NODE, node["metadata"]["name"])
        side.client.close()


def asked(pool: str, name: str, pods: int, **asks: str) -> dict[str, Any]:
    document = racked_job(name, pods=pods, namespace=pool, **asks)
    document["spec"]["template"]["metadata"]["annotations"][RUN_FOR] = "3600s"
    return limited(document)


def admission_of(side: Side, job: str) -> list[dict[str, Any]]:
    return side.admitted(job)["status"]["admission"]["podSetAssignments"]


def template_of(side: Side, job: str) -> tuple[Any, ...]:
    """What a start put on the template, without the names of this one job."""
    found = side.client.get(r.JOB, job, namespace=side.namespace)["spec"]["template"]
    marks = {k: v for k, v in found["metadata"]["annotations"].items() if "kueue" in k}
    assert marks.pop("kueue.x-k8s.io/workload") == side.workload(job)["metadata"]["name"]
    return marks, found["spec"]["schedulingGates"], found["spec"]["nodeSelector"]


JOBS: list[tuple[str, int, dict[str, str]]] = [
    ("rack", 4, {"required": RACK}),
    ("some", 3, {"preferred": HOST}),
    ("any", 2, {}),
]


def test_the_portal_places_as_kueue_does_and_replaces_a_node(sides: list[Side]) -> None:
    kueue, portal = sides
    for name, pods, asks in JOBS:
        for side in sides:
            side.submit(asked(side.pool, name, pods, **asks))
            side.admitted(name)
        assert admission_of(portal, name) == admission_of(kueue, name)
        assert portal.running(name, pods) == kueue.running(name, pods)
        assert template_of(portal, name) == template_of(kueue, name)
        requests = [side.workload(name)["spec"]["podSets"][0]["topologyRequest"] for side in sides]
        assert requests[0] == requests[1]
    for side in sides:
        side.submit(asked(side.pool, "large", 8, required=RACK))
    told = [
        eventually(lambda s=side: condition(s.workload("large"), "QuotaReserved").get("message"))
        for side in sides
    ]
    assert told[0] == told[1]

    # A node fails on which one job alone runs: its pods go elsewhere, and the others stay. The
    # lost pods are removed once they have a new place, for Kueue 0.19.2 has a race there. It
    # replaces a node one second after it was lost; the Job controller tells of lost pods one second
    # after, too. If that changes the Workload while its node is being replaced, Kueue looks for a
    # replacement again, by what the Workload was, finds the new node full, and evicts the job.
    lost = sorted(domains_of(kueue.workload("some")))[0]
    for side in sides:
        side.lose(lost)
    moved = [
        eventually(
            lambda s=side: (d := domains_of(s.workload("some"))) and lost not in d and d,
            why=lambda s=side: f"{s.name}: {s.workload('some')}",
        )
        for side in sides
    ]
    assert moved[0] == moved[1]
    for side in sides:
        side.remove_pods_of(lost)
    running = [side.running("some", 3) for side in sides]
    for side in sides:
        workload = side.workload("some")
        assert not workload["status"].get("unhealthyNodes")
        assert not condition(workload, "Evicted"), f"{side.name}: {workload}"
    assert running[0] == running[1]
    for side in sides:
        assert is_true(side.workload("rack"), "Admitted")


@pytest.mark.slow
def test_the_portal_places_many_jobs_as_kueue_does(sides: list[Side]) -> None:
    kueue, portal = sides
    asks: list[dict[str, str]] = [
        {"required": BLOCK}, {"preferred": RACK}, {"unconstrained": "true"}, {},
        {"required": HOST}, {"preferred": HOST},
    ]  # fmt: skip
    for number, each in enumerate(asks):
        name, pods = f"job-{number}", 2
        for side in sides:
            side.submit(asked(side.pool, name, pods, **each))
            side.admitted(name)
        assert admission_of(portal, name) == admission_of(kueue, name)
        assert portal.running(name, pods) == kueue.running(name, pods)
    # Nothing replaces a node within its block: the job is evicted, and waits for room there.
    lost = sorted(domains_of(kueue.workload("job-0")))[0]
    for side in sides:
        side.lose(lost)
        side.remove_pods_of(lost)
    told = [
        eventually(
            lambda s=side: (
                (w := s.workload("job-0"))
                and "doesn't allow to fit" in condition(w, "QuotaReserved").get("message", "")
                and [said(w, name) for name in ("QuotaReserved", "Admitted", "Evicted", "Requeued")]
            ),
            why=lambda s=side: f"{s.name}: {s.workload('job-0')['status']['conditions']}",
        )
        for side in sides
    ]
    assert told[1] == told[0]


def said(workload: dict[str, Any], name: str) -> tuple[str, str]:
    """A condition's status and words; its reason hangs on a gate that Kueue has off."""
    found = condition(workload, name)
    return found["status"], found["message"]
