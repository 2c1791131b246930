"""Admission when writes fail, race, are cut off half-way, or come from two shifts at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from clusters.devcluster.controllers import RUN_SECONDS
from clusters.documents.keys import key_of
from clusters.errors import LeaseLost
from clusters.kube import resources as r
from clusters.kube.lease import ClusterLease
from clusters.reconcile.admission import AdmissionBody
from clusters.reconcile.admission.pace import AT_ONCE
from clusters.reconcile.runtime.writer import Moment
from tests.reconcile.admission_harness import (
    NS,
    Embedded,
    Place,
    condition,
    is_true,
    job,
    kueue,
    quota_objects,
)
from tests.reconcile.kill_points import Reaper
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.embedded


@pytest.fixture
def world() -> Iterator[Embedded]:
    with Embedded("w1", webhooks=True) as world:
        yield world


def reserved(place: Place) -> list[str]:
    """Names of Jobs whose Workloads hold quota."""
    return sorted(
        workload["metadata"]["ownerReferences"][0]["name"]
        for workload in place.all(r.WORKLOAD)
        if is_true(workload, "QuotaReserved") and not is_true(workload, "Finished")
    )


def test_admission_goes_on_after_a_write_that_lost_a_race(world):
    place = world["w1"]
    place.create(*quota_objects(8))
    raced: list[str] = []

    def race(moment, cluster, write):
        if moment is Moment.BEFORE and write.resource == r.WORKLOAD and write.body:
            if write.step in raced or "metadata" not in write.body or write.step.startswith("cre"):
                return
            raced.append(write.step)
            body = {"metadata": {"annotations": {"somebody": write.step}}}
            place.client.patch(r.WORKLOAD, write.name, body, namespace=NS)

    world.start("w1", "admission", body=lambda context: AdmissionBody(context, hook=race))
    place.create(job("train", gpus=8, run_s=0.5))
    eventually(lambda: is_true(place.workload_of("train"), "Finished"))
    assert {"reserve", "finish"} <= set(raced)
    assert place.workload_of("train")["metadata"]["annotations"]["somebody"]


def test_admission_survives_errors_of_the_api_server(world):
    place = world["w1"]
    place.create(*quota_objects(8), job("a", gpus=4, run_s=0.5), job("b", gpus=8, run_s=0.5))
    place.server.cluster.faults.fail(503, count=4, method="PATCH", path="workloads")
    place.server.cluster.faults.fail(500, count=3, method="POST", path="workloads")
    world.start("w1", "admission")
    for name in "ab":
        eventually(lambda name=name: is_true(place.workload_of(name), "Finished"))


def test_admission_gives_the_quota_back_when_a_reservation_is_refused(world):
    place = world["w1"]
    place.create(*quota_objects(8))
    place.create(job("big", gpus=8, run_s=60))
    place.server.cluster.faults.fail(422, count=2, method="PATCH", path="/status")
    world.start("w1", "admission")
    eventually(lambda: is_true(place.workload_of("big"), "Admitted"))
    assert reserved(place) == ["big"]


def test_admission_rebuilds_everything_when_it_is_killed_between_any_two_writes(world):
    place = world["w1"]
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 100,
    }
    place.create(*quota_objects(8), urgent, job("low", gpus=8, run_s=600))
    with Reaper(world) as reaper:
        reaper.keep_alive("w1", "admission", AdmissionBody)
        eventually(lambda: (place.job("low").get("status") or {}).get("active"))
        place.create(job("high", gpus=8, run_s=1, priority_class="urgent"))
        for name in ("high", "low"):
            eventually(
                lambda name=name: is_true(place.workload_of(name), "Finished"),
                why=lambda: str((reaper.killed_at, place.all(r.WORKLOAD))),
            )
            # However late it was preempted, it was not over before, and it is soon after.
            soon = {"metadata": {"annotations": {RUN_SECONDS: "1"}}}
            place.client.patch(r.JOB, "low", soon, namespace=NS)
            assert condition(place.workload_of(name), "Finished")["reason"] == "Succeeded"
    steps = {step for _, _, step in reaper.killed_at}
    assert {"create-workload", "reserve", "start", "preempt", "suspend", "release"} <= steps
    assert len(place.all(r.WORKLOAD)) == 2
    evictions = place.workload_of("low")["status"]["schedulingStats"]["evictions"]
    assert evictions == [{"reason": "Preempted", "underlyingCause": "", "count": 1}]


class TwoShifts:
    """A shift that froze with a reservation in its hand, and its successor."""

    def __init__(self, world: Embedded, monkeypatch: pytest.MonkeyPatch, *, is_fenced: bool):
        self.place = world["w1"]
        self.is_frozen, self.goes_on = threading.Event(), threading.Event()
        self.after_late_write: list[str] = []
        keep = ClusterLease.keep

        def frozen_keep(lease, stop, on_lost):
            if lease._holder == "first":
                stop.wait()
            else:
                keep(lease, stop, on_lost)

        monkeypatch.setattr(ClusterLease, "keep", frozen_keep)
        self.place.create(
            *quota_objects(8),
            kueue("WorkloadPriorityClass", "urgent", {}) | {"value": 100},
            kueue("LocalQueue", "later", {"clusterQueue": NS, "stopPolicy": "Hold"}, NS),
        )
        if not is_fenced:

            def first(context):
                context.fence = lambda: None
                return AdmissionBody(context, hook=self._freeze)
        else:

            def first(context):
                return AdmissionBody(context, hook=self._freeze)

        self.first = world.start("w1", "admission", holder="first", lease_s=2, body=first)
        # The Workload of "new" is there before the successor starts, so that it comes first there.
        later = job("new", gpus=8, run_s=60, priority_class="urgent")
        later["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "later"
        self.place.create(later)
        eventually(lambda: self.place.workload_of("new"))
        self.place.create(job("old", gpus=8, run_s=60))
        assert self.is_frozen.wait(PATIENCE_S)
        self.place.client.patch(
            r.LOCAL_QUEUE, "later", {"spec": {"stopPolicy": "None"}}, namespace=NS
        )
        world.start("w1", "admission", holder="second", lease_s=2, body=self._second)

    def tell(self, world: Embedded) -> str:
        errors = [(shift.is_over, shift.error) for shift in world.shifts]
        return str((errors, [w.get("status") for w in self.place.all(r.WORKLOAD)]))

    def _freeze(self, moment, cluster, write):
        if moment is Moment.BEFORE and write.step == "reserve":
            self.is_frozen.set()
            self.goes_on.wait(PATIENCE_S)
        elif moment is Moment.AFTER and write.step == "reserve":
            self.after_late_write = reserved(self.place)

    def _second(self, context):
        def leave_old_alone(moment, cluster, write):
            # The successor is slow to say why "old" waits: nothing but the fence protects it now.
            if moment is Moment.BEFORE and write.step == "explain":
                context.stop.wait(PATIENCE_S)

        return AdmissionBody(context, hook=leave_old_alone)


def test_admission_of_a_shift_that_lost_its_lease_writes_nothing(world, monkeypatch):
    shifts = TwoShifts(world, monkeypatch, is_fenced=True)
    eventually(lambda: reserved(shifts.place) == ["new"], why=lambda: shifts.tell(world))
    shifts.goes_on.set()
    shifts.first.join()
    assert isinstance(shifts.first.error, LeaseLost)
    assert reserved(shifts.place) == ["new"]


def test_admission_without_its_fence_would_promise_the_same_gpus_twice(world, monkeypatch):
    """The negative control of the fence."""
    shifts = TwoShifts(world, monkeypatch, is_fenced=False)
    eventually(lambda: reserved(shifts.place) == ["new"])
    shifts.goes_on.set()
    assert eventually(lambda: shifts.after_late_write) == ["new", "old"]


def test_admission_keeps_a_decision_that_was_made_while_an_older_one_was_written(world):
    place = world["w1"]
    explained, goes_on = threading.Event(), threading.Event()

    def slow(moment, cluster, write):
        if moment is Moment.AFTER and write.step == "explain":
            explained.set()
            goes_on.wait(PATIENCE_S)

    place.create(*quota_objects(8), job("first", gpus=8, run_s=60))
    world.start("w1", "admission", body=lambda context: AdmissionBody(context, hook=slow))
    eventually(lambda: is_true(place.workload_of("first"), "Admitted"))
    place.create(job("second", gpus=8, run_s=60))
    assert explained.wait(PATIENCE_S)
    place.client.delete(r.JOB, "first", namespace=NS)
    eventually(lambda: place.workload_of("first") is None)
    threading.Event().wait(0.5)
    goes_on.set()
    eventually(lambda: is_true(place.workload_of("second"), "Admitted"))


def test_statuses_that_no_answer_comes_to_keep_no_decision_waiting(world):
    """As many of them are under way as there are threads for decisions."""
    place, goes_on = world["w1"], threading.Event()
    waiting: set[str] = set()

    def hang(moment, cluster, write):
        if moment is Moment.BEFORE and write.step == "queue-status":
            waiting.add(f"{write.resource.kind} {write.key}")
            goes_on.wait(PATIENCE_S)

    namespaces = [f"team-{number}" for number in range(AdmissionBody.threads)]
    documents = [each for name in namespaces for each in quota_objects(8, namespace=name)]
    place.create(*{(each["kind"], key_of(each)): each for each in documents}.values())
    world.start("w1", "admission", body=lambda context: AdmissionBody(context, hook=hang))
    try:
        eventually(lambda: len(waiting) == AT_ONCE >= AdmissionBody.threads)
        place.create(job("train", gpus=8, namespace=namespaces[0], run_s=60))
        eventually(lambda: is_true(place.workload_of("train", namespaces[0]), "Admitted"))
        assert not any(queue.get("status") for queue in place.all(r.CLUSTER_QUEUE))
    finally:
        goes_on.set()


def test_admission_writes_nothing_while_writing_is_switched_off(world):
    place = world["w1"]
    place.create(*quota_objects(8), job("train", gpus=8, run_s=60, suspend=True))
    world.start("w1", "admission", writes_enabled=False)
    threading.Event().wait(1.5)
    assert place.all(r.WORKLOAD) == []
    assert place.get(r.CLUSTER_QUEUE, NS).get("status") is None
