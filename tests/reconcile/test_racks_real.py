"""A topology of the portal on a real Kueue: taken, and jobs are placed by it."""

from __future__ import annotations

from typing import Any

import pytest

from budgets import services as promises
from clusters import selectors
from clusters.kube import resources as r
from clusters.models import WorkloadState
from clusters.selectors.pod_places import PodPlaces
from tests.builders import SmallFleet, line
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.kwok_nodes import GPU, NodeShape
from tests.controlplane.queues import condition_of
from tests.reconcile.fleet_rows import quota_hand
from tests.reconcile.racks import BLOCK, HOST, RACK, domains_of, racked_job
from tests.reconcile.real_clusters import admin_client, register_real
from tests.reconcile.usage_hand import usage_hand
from tests.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db]
QUEUE = "acme-vision"


def asked(name: str, pods: int, **asks: str) -> dict[str, Any]:
    """A Job of pods with all GPUs of a node, as a real API server takes it."""
    document = racked_job(name, pods=pods, gpus=8, namespace=QUEUE, **asks)
    [container] = document["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {GPU: container["resources"]["requests"][GPU]}
    return document


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
    promises.set_capacity(None, cluster="alone", flavor=h100, gpus=32)
    fleet.revise(fleet.vision, line("h100", 32))
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
        with usage_hand("alone") as usage:
            usage.measure()

            def told() -> tuple[PodPlaces, ...]:
                state = WorkloadState.objects.filter(job_name="fits", phase="running").first()
                uid = state.uid if state is not None else ""
                return selectors.workload_detail(fleet.owner, "alone", uid).pods if uid else ()

            usage.until(lambda: bool(told()))
            [places] = told()
        # The rack is not in what Kueue wrote, which names nodes: their labels say it.
        assert places.levels == (BLOCK, RACK, HOST)
        rack = "r0" if "n0" in nodes else "r1"
        assert [each.values for each in places.domains] == [("b0", rack, n) for n in sorted(nodes)]
        # What asks for none is placed as well: every flavor of the budget has a topology.
        client.create(r.JOB, asked("anywhere", 1))
        assert sum(eventually(lambda: placed("anywhere")).values()) == 1
