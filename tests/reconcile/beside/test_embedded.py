"""Guard and external dispatcher on embedded clusters; what Kueue would write is written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from budgets.models import AuditEntry
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kueue.multikueue.dispatchers import CHEAPEST_FIT
from clusters.models import GuardIncident, NominationWay
from clusters.reconcile.external import ExternalBody
from clusters.reconcile.external.guarding import KEPT, prune
from clusters.reconcile.reactivation import REJECTED
from clusters.reconcile.runtime.writer import Moment, Write
from tests.reconcile.admission_harness import (
    CHECK,
    NS,
    Document,
    Embedded,
    job,
    kueue,
    multikueue_objects,
    quota_objects,
)
from tests.reconcile.fleet_rows import register
from tests.waiting import eventually

pytestmark = [pytest.mark.embedded, pytest.mark.django_db(transaction=True)]

WORKERS = ("w1", "w2")
ORIGIN = {"kueue.x-k8s.io/multikueue-origin": "multikueue"}
AT = "2026-03-01T11:00:00Z"
STATUS = WriteOptions(field_manager="kueue", subresource="status")


def condition(kind: str, *, is_true: bool = True, reason: str = "R") -> Document:
    return {
        "type": kind, "status": "True" if is_true else "False", "reason": reason, "message": "",
        "lastTransitionTime": AT,
    }  # fmt: skip


class Stage:
    """Embedded clusters, and a hand that writes what Kueue would."""

    def __init__(self, fleet: Embedded) -> None:
        self.fleet = fleet
        self.manager = fleet["manager"]
        self.writes: list[str] = []

    def start(self, *, guard: str = "off", dispatcher: str = "", pk: int = 0) -> None:
        stored = {"multiKueue": {"dispatcherName": dispatcher}} if dispatcher else {}
        self.fleet.start(
            "manager",
            "dispatch",
            workers=WORKERS,
            body=lambda context: ExternalBody(context, hook=self._note),
            mode="kueue",
            guard=guard,
            kueue_configuration=stored,
            pk=pk,
        )

    def _note(self, moment: Moment, cluster: str, write: Write) -> None:
        if moment is Moment.AFTER:
            self.writes.append(f"{write.step} on {cluster}")

    def connect(self, worker: str, *, is_active: bool = True) -> None:
        conditions = [condition("Active", is_true=is_active)]
        self.manager.client.patch(
            r.MULTIKUEUE_CLUSTER, worker, {"status": {"conditions": conditions}}, options=STATUS
        )

    def submit(self, *conditions: Document, check: str = "Pending", **status: Any) -> Document:
        """A Job and its Workload with a status, on the manager."""
        made = self.manager.client.create(r.JOB, job("train", managed=True))
        document = kueue("Workload", "train-w", workload_spec(), NS)
        document["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True,
             "uid": made["metadata"]["uid"]}
        ]  # fmt: skip
        self.manager.create(document)
        entry = {"name": CHECK, "state": check, "message": "", "lastTransitionTime": AT}
        found = {"conditions": list(conditions), "admissionChecks": [entry], **status}
        return self.patch("manager", found)

    def copy(self, worker: str, *conditions: Document) -> None:
        """A worker's copy with its job."""
        document = kueue("Workload", "train-w", workload_spec(), NS)
        document["metadata"] |= {
            "labels": ORIGIN, "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        }  # fmt: skip
        self.fleet[worker].create(document)
        if conditions:
            self.patch(worker, {"conditions": list(conditions)})
        made = job("train")
        made["metadata"]["labels"] |= ORIGIN
        made["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = "train-w"
        self.fleet[worker].create(made)

    def patch(self, place: str, status: Document) -> Document:
        return self.fleet[place].client.patch(
            r.WORKLOAD, "train-w", {"status": status}, namespace=NS, options=STATUS
        )

    def workload(self, place: str = "manager") -> Document:
        return self.fleet[place].get(r.WORKLOAD, "train-w", NS) or {}

    def nominated(self) -> list[str]:
        return self.workload().get("status", {}).get("nominatedClusterNames") or []

    def job_status(self) -> Document:
        return (self.manager.job("train") or {}).get("status") or {}


def workload_spec() -> Document:
    template = job("train")["spec"]["template"]
    return {
        "active": True, "queueName": "default",
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }  # fmt: skip


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Embedded("manager", *WORKERS) as fleet:
        fleet["manager"].create(*multikueue_objects(*WORKERS), *quota_objects(16, check=True))
        for worker in WORKERS:
            fleet[worker].create(*quota_objects(8))
        found = Stage(fleet)
        for worker in WORKERS:
            found.connect(worker)
        yield found


def rows(stage: Stage) -> int:
    """Rows of the manager and its workers; returns the manager's key."""
    for worker in WORKERS:
        register(worker, stage.fleet[worker].kubeconfig)
    return register("manager", stage.manager.kubeconfig, role="manager").pk


# The guard


def test_guard_deletes_an_old_copy_before_kueue_is_back(stage: Stage):
    pk = rows(stage)
    stage.connect("w1", is_active=False)
    stage.copy("w1", condition("Admitted"))
    stage.copy("w2", condition("Admitted"))
    stage.submit(condition("QuotaReserved"), check="Ready", clusterName="w2")
    stage.start(guard="cure", pk=pk)
    eventually(lambda: not stage.workload("w1"), why=lambda: str(stage.writes))
    assert stage.fleet["w1"].job("train") is None
    assert stage.workload("w2") and stage.fleet["w2"].job("train")
    row = eventually(lambda: GuardIncident.objects.filter(state="cured").first())
    assert stage.writes == ["remove-job on w1", "unfinalize on w1", "remove-copy on w1"]
    assert (row.defect, row.worker, row.name) == ("stale-copy", "w1", "train-w")
    assert "would delete the running one on w2" in row.found
    entry = AuditEntry.objects.get(action="guard.cure")
    assert "Deleted the old copy on w1" in entry.reason


def test_guard_that_tells_writes_nothing(stage: Stage):
    pk = rows(stage)
    stage.connect("w1", is_active=False)
    stage.copy("w1", condition("Admitted"))
    stage.copy("w2", condition("Admitted"))
    stage.submit(condition("QuotaReserved"), check="Ready", clusterName="w2")
    stage.start(guard="tell", pk=pk)
    row = eventually(lambda: GuardIncident.objects.filter(state="open").first())
    assert "set to report" in row.done and row.acted_at is None
    stage.fleet["w2"].client.delete(r.WORKLOAD, "train-w", namespace=NS)
    stage.fleet["w2"].client.patch(
        r.WORKLOAD, "train-w", {"metadata": {"finalizers": None}}, namespace=NS
    )
    stage.fleet["w2"].client.delete(r.JOB, "train", namespace=NS)
    eventually(lambda: "Kueue took the old copy" in GuardIncident.objects.get().found)
    assert stage.writes == [] and stage.workload("w1")
    stage.manager.client.delete(r.WORKLOAD, "train-w", namespace=NS)
    eventually(lambda: GuardIncident.objects.get().state == "passed")


def test_guard_touches_only_what_has_the_managers_mark(stage: Stage):
    stage.connect("w1", is_active=False)
    stage.copy("w1", condition("Admitted"))
    for resource, name in ((r.WORKLOAD, "train-w"), (r.JOB, "train")):
        stage.fleet["w1"].client.patch(
            resource, name, {"metadata": {"labels": dict.fromkeys(ORIGIN, "other")}}, namespace=NS
        )
    stage.copy("w2", condition("Admitted"))
    stage.submit(condition("QuotaReserved"), check="Ready", clusterName="w2")
    marked = condition("Requeued", is_true=False, reason=REJECTED)
    other = kueue("Workload", "other-w", workload_spec(), NS)
    stage.manager.create(other)
    stage.manager.client.patch(
        r.WORKLOAD, "other-w", {"status": {"conditions": [marked]}}, namespace=NS, options=STATUS
    )
    stage.start(guard="cure")
    # The other cure shows that the guard has been round.
    eventually(lambda: "unmark-rejected on manager" in stage.writes)
    assert stage.writes == ["unmark-rejected on manager"]
    assert stage.workload("w1") and stage.fleet["w1"].job("train")


def test_guard_writes_that_no_pod_runs_where_every_copy_is_gone(stage: Stage):
    pk = rows(stage)
    stage.submit(condition("QuotaReserved"), condition("Evicted"))
    running = {"active": 1, "ready": 1, "startTime": AT}
    stage.manager.client.patch(r.JOB, "train", {"status": running}, namespace=NS, options=STATUS)
    stage.start(guard="cure", pk=pk)
    eventually(lambda: stage.job_status().get("active") == 0)
    assert "startTime" not in stage.job_status()
    row = eventually(lambda: GuardIncident.objects.filter(state="cured").first())
    assert stage.writes == ["free-quota on manager"]
    assert row.defect == "stuck-quota"


def test_guard_is_patient_with_an_eviction_that_is_under_way(stage: Stage):
    """A copy is still there: Kueue stops it and mirrors its end."""
    stage.copy("w1", condition("Admitted"))
    stage.submit(condition("QuotaReserved"), condition("Evicted"))
    stage.manager.client.patch(
        r.JOB, "train", {"status": {"active": 1, "startTime": AT}}, namespace=NS, options=STATUS
    )
    stage.start(guard="cure")
    other = kueue("Workload", "other-w", workload_spec(), NS)
    stage.manager.create(other)
    marked = condition("Requeued", is_true=False, reason=REJECTED)
    stage.manager.client.patch(
        r.WORKLOAD, "other-w", {"status": {"conditions": [marked]}}, namespace=NS, options=STATUS
    )
    eventually(lambda: "unmark-rejected on manager" in stage.writes)
    assert stage.job_status()["active"] == 1


def test_guard_takes_over_what_an_earlier_shift_told(stage: Stage):
    pk = rows(stage)
    GuardIncident.objects.create(
        cluster_id=pk, defect="stale-copy", workload_uid="gone", namespace=NS, name="gone-w",
        worker="w1", found="x", noticed_at=datetime.now(UTC),
    )  # fmt: skip
    stage.start(guard="tell", pk=pk)
    eventually(lambda: GuardIncident.objects.get().state == "passed")


def test_old_incidents_are_removed(stage: Stage):
    pk = rows(stage)
    now = datetime.now(UTC)
    for age in (KEPT + timedelta(days=1), timedelta(days=1)):
        GuardIncident.objects.create(
            cluster_id=pk, defect="stuck-quota", workload_uid="u", namespace=NS, name="w",
            found="x", noticed_at=now - age, ended_at=now - age, state="passed",
        )  # fmt: skip
    assert prune(pk, now) == 1
    assert GuardIncident.objects.count() == 1


# The external dispatcher


def owners(document: Document) -> list[str]:
    return [
        f"{entry['manager']}:{entry['operation']}"
        for entry in document["metadata"]["managedFields"]
        if "f:nominatedClusterNames" in str(entry["fieldsV1"])
    ]


def test_dispatcher_nominates_one_worker_and_shows_the_way(stage: Stage):
    pk = rows(stage)
    stage.submit(condition("QuotaReserved"))
    stage.start(dispatcher=CHEAPEST_FIT, pk=pk)
    assert eventually(stage.nominated) == ["w1"]
    found = eventually(lambda: NominationWay.objects.filter(cluster=pk).first())
    assert found.way == "hand-over" and "handed over" in found.why


def test_dispatcher_leaves_alone_what_is_not_due_and_nominates_when_it_is(stage: Stage):
    stage.submit(condition("QuotaReserved"), condition("Evicted"))
    stage.start(dispatcher=CHEAPEST_FIT)
    other = kueue("Workload", "other-w", workload_spec(), NS)
    stage.manager.create(other)
    entry = {"name": CHECK, "state": "Pending", "message": "", "lastTransitionTime": AT}
    stage.manager.client.patch(
        r.WORKLOAD, "other-w",
        {"status": {"conditions": [condition("QuotaReserved")], "admissionChecks": [entry]}},
        namespace=NS, options=STATUS,
    )  # fmt: skip
    eventually(
        lambda: stage.manager.get(r.WORKLOAD, "other-w", NS)["status"].get("nominatedClusterNames")
    )
    assert not stage.nominated()
    stage.patch("manager", {"conditions": [condition("QuotaReserved")]})
    assert eventually(stage.nominated)


def test_dispatcher_passes_over_who_is_not_connected_and_adds_who_admitted(stage: Stage):
    stage.connect("w1", is_active=False)
    stage.submit(condition("QuotaReserved"))
    stage.start(dispatcher=CHEAPEST_FIT)
    assert eventually(stage.nominated) == ["w2"]
    # The withdraw trap: somebody withdrew w1 while it admitted.
    stage.copy("w1", condition("Admitted"))
    eventually(lambda: sorted(stage.nominated()) == ["w1", "w2"], why=lambda: str(stage.writes))


@pytest.mark.slow
def test_dispatcher_wakes_a_workload_whose_worker_is_back(stage: Stage):
    stage.submit(condition("QuotaReserved"))
    stage.start(dispatcher=CHEAPEST_FIT)
    assert eventually(stage.nominated) == ["w1"]
    faults = stage.fleet["w1"].server.cluster.faults
    faults.freeze()
    try:
        stage.connect("w1", is_active=False)
        # It is not withdrawn: nobody can say that no copy is there. The other one is asked, too.
        eventually(
            lambda: sorted(stage.nominated()) == ["w1", "w2"],
            why=lambda: str(stage.nominated()),
        )  # fmt: skip
    finally:
        faults.thaw()
    stage.connect("w1")
    eventually(lambda: "wake on manager" in stage.writes, why=lambda: str(stage.writes))
    assert "gpu-budget-portal.dev/woken-at" in stage.workload()["metadata"]["annotations"]


def test_dispatcher_withdraws_a_worker_that_kueue_has_lost_and_that_has_nothing(stage: Stage):
    stage.submit(condition("QuotaReserved"))
    stage.start(dispatcher=CHEAPEST_FIT)
    assert eventually(stage.nominated) == ["w1"]
    stage.connect("w1", is_active=False)
    eventually(lambda: stage.nominated() == ["w2"], why=lambda: str(stage.nominated()))


def test_dispatcher_of_another_name_is_left_alone(stage: Stage):
    marked = condition("Requeued", is_true=False, reason=REJECTED)
    stage.submit(condition("QuotaReserved"))
    other = kueue("Workload", "other-w", workload_spec(), NS)
    stage.manager.create(other)
    stage.manager.client.patch(
        r.WORKLOAD, "other-w", {"status": {"conditions": [marked]}}, namespace=NS, options=STATUS
    )
    stage.start(guard="cure", dispatcher="example.org/mine")
    eventually(lambda: "unmark-rejected on manager" in stage.writes)
    assert not stage.nominated()
