"""What the usage shift sees beside Workloads: queues, foreign pods, clusters without pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from budgets.models import CapacityHour, CapacityWatch, Discrepancy, MeasuredCapacity
from clusters.kube import resources as r
from clusters.kube.client import HttpKubeClient, WriteOptions
from clusters.models import Cluster
from clusters.reconcile.usage.counting import queue_sights
from tests.builders import SmallFleet, hours
from tests.reconcile.test_usage import has_phase
from tests.reconcile.usage_hand import GPU, STATUS, ago, kueue_on, usage_hand

AT = hours(1)
FLAVORS = {"h100": (GPU, "Admitted"), "a100": (GPU, "PodsReady")}


def told(flavor: str, total: str, borrowed: str) -> dict[str, Any]:
    amounts = [{"name": "cpu", "total": "4"}, {"name": GPU, "total": total, "borrowed": borrowed}]
    return {"name": flavor, "resources": amounts}


def queue(**status: Any) -> dict[str, Any]:
    quota = [{"name": GPU, "nominalQuota": "8"}]
    group = {"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": quota}]}
    return {
        "metadata": {"name": "acme-vision"},
        "spec": {"resourceGroups": [group]},
        "status": status,
    }


def test_a_queue_tells_use_of_some_flavors_and_reservations_of_others():
    document = queue(
        flavorsUsage=[told("h100", "12", "4"), told("a100", "1", "0"), told("foreign", "9", "0")],
        flavorsReservation=[told("h100", "16", "8"), told("a100", "3", "3")],
    )
    found = {row.flavor: row.sample for row in queue_sights([document], FLAVORS, at=AT)}

    assert {name: (row.total, row.borrowed, row.nominal) for name, row in found.items()} == {
        "h100": (12, 4, 8),
        "a100": (3, 3, 0),
    }


def test_a_queue_without_a_status_tells_nothing():
    assert list(queue_sights([queue(), {"metadata": {"name": "x"}}], FLAVORS, at=AT)) == []


def node(kube: HttpKubeClient, gpus: str = "16") -> None:
    kube.create(r.NODE, {"metadata": {"name": "n1", "labels": {"gpu": "h100"}}})
    amounts = {GPU: gpus}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    kube.patch(r.NODE, "n1", {"status": status}, options=WriteOptions(subresource="status"))


def pod(kube: HttpKubeClient, namespace: str, gpus: str) -> None:
    kueue_on(kube, namespace)
    container = {"name": "m", "image": "i", "resources": {"limits": {GPU: gpus}}}
    spec = {"nodeName": "n1", "containers": [container]}
    kube.create(r.POD, {"metadata": {"name": "p", "namespace": namespace}, "spec": spec})


@pytest.mark.embedded
@pytest.mark.django_db(transaction=True)
def test_the_shift_counts_foreign_pods_and_compares_queues(
    worker: Cluster, kube: HttpKubeClient, fleet: SmallFleet
) -> None:
    node(kube)
    pod(kube, "somebody-else", "2")
    pod(kube, "acme-vision", "5")
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue_on(kube).submit("train")
        kueue_on(kube).admit("train", ago(10), gpus=5)
        hand.until(has_phase(uid, "running"))
        hand.body.counting.measure()
        row = MeasuredCapacity.objects.get(cluster="gpu-east", flavor__slug="h100")
        assert (row.used_gpus, row.outside_gpus, row.held_gpus, row.by_pods) == (7, 2, 5, True)
        CapacityWatch.objects.update(until=ago(60))
        hand.body.counting.measure()
        hour = CapacityHour.objects.filter(flavor="h100").order_by("hour").last()
        assert hour is not None
        assert hour.free == 9 * hour.measured_s
        assert hour.outside == 2 * hour.measured_s

        quota = {"name": GPU, "nominalQuota": "8"}
        group = {"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [quota]}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group]}
        kube.create(r.CLUSTER_QUEUE, {"metadata": {"name": "acme-vision"}, "spec": spec})
        for total, want in (("5", 0), ("6", 1)):
            status = {"flavorsUsage": [told("h100", total, "0")]}
            kube.patch(r.CLUSTER_QUEUE, "acme-vision", {"status": status}, options=STATUS)
            for _ in range(4):
                hand.body.counting.look_at_queues()
            assert Discrepancy.objects.filter(kind="queue").count() == want
        hand.body.counting._clock.skew = timedelta(seconds=90)
        hand.body.counting.measure()
    assert Discrepancy.objects.filter(kind="clock", amount=90).exists()


@pytest.mark.embedded
@pytest.mark.django_db(transaction=True)
def test_without_any_pod_what_workloads_hold_is_used(
    worker: Cluster, kube: HttpKubeClient, fleet: SmallFleet
) -> None:
    node(kube)
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue_on(kube).submit("train")
        kueue_on(kube).admit("train", ago(10), gpus=5)
        hand.until(has_phase(uid, "running"))
        hand.body.counting.measure()
    row = MeasuredCapacity.objects.get(cluster="gpu-east", flavor__slug="h100")
    assert (row.used_gpus, row.by_pods) == (5, False)
