"""A topology of the portal on a real Kueue: taken, and jobs are placed by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from budgets import services as promises
from budgets.models import User
from clusters import selectors
from clusters.documents.keys import key_of
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kueue.cycle.engine import Engine
from clusters.models import PendingReason, WorkloadState
from clusters.reconcile.explained.reporter import evidence_of
from clusters.reconcile.shadow.body import Preview
from clusters.reconcile.warm_engine import ENGINE_KINDS, by_quota_alone
from tests.builders import SmallFleet, line
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.kwok_nodes import NodeShape
from tests.controlplane.queues import condition_of
from tests.reconcile.admission_harness import limited
from tests.reconcile.fleet_rows import quota_hand
from tests.reconcile.racks import BLOCK, HOST, RACK, domains_of, racked_job
from tests.reconcile.real_clusters import admin_client, register_real
from tests.reconcile.usage_hand import usage_hand
from tests.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db]
QUEUE = "acme-vision"


def asked(name: str, pods: int, **asks: str) -> dict[str, Any]:
    """A Job of pods with all GPUs of a node, as a real API server takes it."""
    return limited(racked_job(name, pods=pods, gpus=8, namespace=QUEUE, **asks))


def seen(job: str, phase: str = "") -> Any:
    """The newest state of a job's Workload, if it is in that phase."""
    found = WorkloadState.objects.filter(job_name=job).first()
    return found if found is not None and phase in ("", found.phase) else WorkloadState()


def why(client: KubeClient, state: WorkloadState, user: User) -> str:
    """What follows that Kueue says of a job that waits, as a person reads it."""
    engine, now = Engine(by_quota_alone(None)), datetime.now(UTC)
    workloads = {}
    for resource in ENGINE_KINDS:
        for document in client.list(resource).items:
            engine.upsert(document, kind=resource.kind, now=now)
            if resource == r.WORKLOAD:
                workloads[key_of(document)] = document
    key = f"{state.namespace}/{state.name}"
    found = Preview(engine, workloads, now=now).explain(key)
    assert found is not None
    PendingReason.objects.create(
        cluster="alone", uid=state.uid, namespace=state.namespace, name=state.name, since=now,
        updated_at=now, evidence=evidence_of(found, workloads[key]),
    )  # fmt: skip
    told = selectors.why_pending(user, "alone", state.uid)
    assert told is not None
    return told.sentence


def test_real_kueue_places_jobs_by_the_topology_of_the_portal(
    own_cluster: ControlPlane, fleet: SmallFleet, settings
) -> None:
    settings.KUEUE_PROOF_SECONDS = PATIENCE_S
    own_cluster.start_kueue()
    for number in range(4):
        labels = {"gpu": "h100", BLOCK: "b0", RACK: f"r{number // 2}"}
        own_cluster.rest.ensure("/api/v1/nodes", NodeShape(labels=labels).manifest(f"n{number}"))
    for slug in ("gpu-east", "gpu-west"):
        promises.retire_capacity(None, cluster=slug, reason="Elsewhere.")
    h100 = fleet.flavors["h100"]
    promises.set_capacity(None, cluster="alone", flavor=h100, gpus=64)
    fleet.revise(fleet.vision, line("h100", 64))
    topology = promises.create_topology(
        fleet.admin, slug="racks", name="Racks", levels=[BLOCK, RACK, HOST]
    )
    register_real(own_cluster, "alone", role="single", mode="kueue")
    with admin_client(own_cluster) as client, quota_hand("alone") as hand:

        def is_active() -> bool:
            hand.settle(turns=3)
            found = {each["metadata"]["name"]: each for each in client.list(r.CLUSTER_QUEUE).items}
            return QUEUE in found and condition_of(found[QUEUE], "Active") == "True"

        def placed(job: str) -> dict[str, int]:
            for found in client.list(r.WORKLOAD).items:
                owners = found["metadata"].get("ownerReferences") or [{}]
                if owners[0].get("name") == job and condition_of(found, "Admitted") == "True":
                    return domains_of(found)
            return {}

        eventually(is_active)
        promises.give_topology(fleet.admin, flavor=h100, topology=topology)

        def has_topology() -> bool:
            flavor = client.get(r.RESOURCE_FLAVOR, "h100")
            return is_active() and flavor["spec"].get("topologyName") == "racks"

        eventually(has_topology)
        # CPU, memory and GPUs of a pod come from one flavor: else Kueue places none of it.
        client.create(r.JOB, asked("fits", 2, required=RACK))
        nodes = eventually(lambda: placed("fits"))
        assert sorted(nodes) in (["n0", "n1"], ["n2", "n3"])
        # Quota is free for another one of three nodes, and no rack has them.
        client.create(r.JOB, asked("wide", 3, required=RACK))
        with usage_hand("alone") as usage:
            usage.measure()
            usage.until(lambda: bool(seen("fits", "running") and seen("wide", "pending").message))
            [places] = selectors.workload_detail(fleet.owner, "alone", seen("fits").uid).pods
            # The rack is not in what Kueue wrote, which names nodes: their labels say it.
            assert places.levels == (BLOCK, RACK, HOST)
            rack = "r0" if "n0" in nodes else "r1"
            shown = [each.values for each in places.domains]
            assert shown == [("b0", rack, name) for name in sorted(nodes)]
            assert why(client, seen("wide"), fleet.admin) == (
                "Its pods with 24 H100 cannot be placed together in topology Racks, as the job "
                "asks: 2 of 3 pods would fit, though 48 H100 are free in the quota; the rack with "
                "most room has 16 free, and 32 are free on all nodes."
            )
        # What asks for none is placed as well: every flavor of the budget has a topology.
        client.create(r.JOB, asked("anywhere", 1))
        assert sum(eventually(lambda: placed("anywhere")).values()) == 1
