"""Admission by what LocalQueues used lately, in portal mode on an embedded cluster."""

from __future__ import annotations

from decimal import Decimal

import pytest

from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kueue.amounts import parse_decimal
from tests.reconcile.admission_harness import (
    GPU,
    NS,
    Embedded,
    Place,
    is_true,
    job,
    kueue,
    quota_objects,
)
from tests.waiting import eventually

pytestmark = pytest.mark.embedded

CONFIGURATION = {
    "admissionFairSharing": {
        "usageHalfLifeTime": "168h",
        "usageSamplingInterval": "1s",
        "resourceWeights": {"cpu": 0, "memory": 0},
    }
}
SCOPE = {"admissionMode": "UsageBasedAdmissionFairSharing"}


@pytest.fixture
def world():
    with Embedded("w1", webhooks=True) as world:
        yield world


def job_of(queue: str, name: str) -> dict:
    document = job(name, gpus=4, run_s=60)
    document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
    return document


def gpus_of(place: Place, queue: str) -> Decimal:
    """What the status of a LocalQueue says that it used."""
    status = place.get(r.LOCAL_QUEUE, queue, NS).get("status") or {}
    shown = (status.get("fairSharing") or {}).get("admissionFairSharingStatus") or {}
    return parse_decimal((shown.get("consumedResources") or {}).get(GPU, "0"))


def test_queue_that_used_less_goes_first_and_a_restart_remembers(world):
    place = world["w1"]
    little = kueue("LocalQueue", "little", {"clusterQueue": NS}, NS)
    place.create(*quota_objects(4, admissionScope=SCOPE, stopPolicy="Hold"), little)
    history = {"consumedResources": {GPU: "50"}, "lastUpdate": "2026-01-01T00:00:00Z"}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": history}}
    options = WriteOptions(subresource="status")
    place.client.patch(r.LOCAL_QUEUE, "default", {"status": status}, namespace=NS, options=options)
    # The one that used much comes first, and is of the same priority.
    place.create(job_of("default", "much"), job_of("little", "less"))

    shift = world.start("w1", "admission", kueue_configuration=CONFIGURATION)
    eventually(lambda: place.workload_of("much") and place.workload_of("less"))
    place.client.patch(r.CLUSTER_QUEUE, NS, {"spec": {"stopPolicy": "None"}})
    eventually(lambda: is_true(place.workload_of("less"), "Admitted"))
    eventually(lambda: gpus_of(place, "little"))
    eventually(lambda: 49 < gpus_of(place, "default") < 50)
    assert not is_true(place.workload_of("much"), "QuotaReserved")

    place.create(job_of("little", "later"))
    eventually(lambda: place.workload_of("later"))
    shift.stop()
    world.start("w1", "admission", kueue_configuration=CONFIGURATION)
    place.client.delete(r.JOB, "less", namespace=NS)
    eventually(lambda: is_true(place.workload_of("later"), "Admitted"))
    assert not is_true(place.workload_of("much"), "QuotaReserved")
    assert 49 < gpus_of(place, "default") < 50
