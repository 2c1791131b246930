"""What the usage shift sees beside Workloads: queues, foreign pods, clusters without pods."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from budgets.models import CapacityHour, CapacityWatch, Discrepancy, MeasuredCapacity
from clusters.devcluster.access import Denial
from clusters.devcluster.server import DevServer
from clusters.errors import ClusterError
from clusters.kube import resources as r
from clusters.kube.client import DeleteOptions, KubeClient, WriteOptions
from clusters.kube.transport import Call, Transport
from clusters.models import Cluster, NodeSight
from clusters.reconcile.usage import counting as counting_module
from clusters.reconcile.usage.counting import Counting, queue_sights
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


def test_a_queue_that_nobody_can_read_leaves_the_others():
    odd = queue(flavorsUsage=[told("h100", "1e1.5", "0")])
    fine, quota = (queue(flavorsUsage=[told("h100", "8", "0")]) for _ in range(2))
    quota["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "1e1.5"
    found = list(queue_sights([odd, quota, fine], FLAVORS, at=AT))
    assert [(row.flavor, row.sample.total) for row in found] == [("h100", 8)]


def test_a_look_that_fails_in_any_way_is_not_the_last():
    class Odd(Counting):
        looks = 0

        def __init__(self) -> None:
            self._context, self._slug = SimpleNamespace(stop=threading.Event()), "gpu-east"
            self._looked_at = 0.0

        def start(self) -> None: ...
        def close(self) -> None: ...
        def _await_images(self) -> None: ...
        def look_at_queues(self) -> None: ...

        def measure(self) -> None:
            self.looks += 1
            if self.looks > 1:
                self._context.stop.set()
            raise OverflowError("of one node")

    counting = Odd()
    with mock.patch.object(counting_module, "MEASURE_S", 0.01):
        counting.run()
    assert counting.looks == 2


def node(kube: KubeClient, gpus: str = "16") -> None:
    kube.create(r.NODE, {"metadata": {"name": "n1", "labels": {"gpu": "h100"}}})
    amounts = {GPU: gpus}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    kube.patch(r.NODE, "n1", {"status": status}, options=WriteOptions(subresource="status"))


def pod(kube: KubeClient, namespace: str, gpus: str) -> None:
    kueue_on(kube, namespace)
    container = {"name": "m", "image": "i", "resources": {"limits": {GPU: gpus}}}
    spec = {"nodeName": "n1", "containers": [container]}
    kube.create(r.POD, {"metadata": {"name": "p", "namespace": namespace}, "spec": spec})


@pytest.mark.embedded
@pytest.mark.django_db(transaction=True)
def test_the_shift_counts_foreign_pods_and_compares_queues(
    worker: Cluster, kube: KubeClient, fleet: SmallFleet
) -> None:
    node(kube)
    pod(kube, "somebody-else", "2")
    pod(kube, "acme-vision", "5")
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue_on(kube).submit("train")
        kueue_on(kube).admit("train", ago(10), gpus=5)
        hand.until(has_phase(uid, "running"))
        NodeSight.objects.create(
            cluster="gpu-east", name="gone", flavor="h100", labels={}, gpus=8, used=0
        )
        hand.measure()
        row = MeasuredCapacity.objects.get(cluster="gpu-east", flavor__slug="h100")
        assert (row.used_gpus, row.outside_gpus, row.held_gpus, row.by_pods) == (7, 2, 5, True)
        sight = NodeSight.objects.get()
        assert (sight.name, sight.flavor, sight.gpus, sight.used) == ("n1", "h100", 16, 7)
        assert sight.labels["gpu"] == "h100"
        CapacityWatch.objects.update(until=ago(60))
        hand.measure()
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
        clock = hand.body.counting._context._clock
        clock.skew, clock._pulse = timedelta(seconds=90), None  # else the next answer says none
        hand.measure()
    assert Discrepancy.objects.filter(kind="clock", amount=90).exists()


@pytest.mark.embedded
@pytest.mark.django_db(transaction=True)
def test_without_any_pod_what_workloads_hold_is_used(
    worker: Cluster, kube: KubeClient, fleet: SmallFleet
) -> None:
    node(kube)
    with usage_hand("gpu-east") as hand:
        hand.listed()
        uid = kueue_on(kube).submit("train")
        kueue_on(kube).admit("train", ago(10), gpus=5)
        hand.until(has_phase(uid, "running"))
        hand.measure()
    row = MeasuredCapacity.objects.get(cluster="gpu-east", flavor__slug="h100")
    assert (row.used_gpus, row.by_pods) == (5, False)


@contextmanager
def asked() -> Iterator[list[str]]:
    """Paths of all requests, but those of the pulse."""
    paths: list[str] = []
    send = Transport.send

    def noted(self: Transport, call: Call) -> Any:
        paths.append(call.path)
        return send(self, call)

    with mock.patch.object(Transport, "send", noted):
        yield paths


@pytest.mark.embedded
@pytest.mark.django_db(transaction=True)
def test_counting_follows_the_pods_without_a_request_of_its_own(
    worker: Cluster, east: DevServer, kube: KubeClient, fleet: SmallFleet
) -> None:
    node(kube)
    pod(kube, "acme-vision", "5")
    pod(kube, "somebody-else", "2")

    def used() -> int:
        hand.measure()
        return MeasuredCapacity.objects.get(cluster="gpu-east", flavor__slug="h100").used_gpus

    with usage_hand("gpu-east") as hand:
        assert used() == 7
        with asked() as paths:
            assert used() == 7
        assert not [path for path in paths if "nodes" in path or "pods" in path]
        kube.delete(r.POD, "p", namespace="somebody-else", options=DeleteOptions(grace_period_s=0))
        hand.until(lambda: used() == 5)


@pytest.mark.embedded
@pytest.mark.django_db(transaction=True)
def test_pods_that_may_be_listed_and_not_watched_are_counted(
    worker: Cluster, east: DevServer, kube: KubeClient, fleet: SmallFleet
) -> None:
    node(kube)
    pod(kube, "acme-vision", "5")
    east.cluster.access.denials.append(Denial(verbs=("watch",), resources=("pods",)))
    with usage_hand("gpu-east") as hand:
        hand.measure()
        hand.until(lambda: hand.body.counting._watches.of(r.POD).relists > 1)
        hand.measure()
        row = MeasuredCapacity.objects.get(cluster="gpu-east", flavor__slug="h100")
        assert (row.used_gpus, row.by_pods) == (5, True)


@pytest.mark.embedded
@pytest.mark.django_db(transaction=True)
def test_an_image_that_is_not_current_is_not_counted(
    worker: Cluster, east: DevServer, kube: KubeClient, fleet: SmallFleet
) -> None:
    node(kube)
    east.cluster.faults.fail(500, count=10_000, path="nodes")
    with usage_hand("gpu-east") as hand, pytest.raises(ClusterError):
        hand.measure()
    assert not MeasuredCapacity.objects.filter(cluster="gpu-east").exists()
