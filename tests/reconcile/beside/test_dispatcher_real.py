"""The external dispatcher beside a real Kueue: each way of nominating, and the withdraw trap."""

from __future__ import annotations

import time

import pytest

from clusters.documents.labels import ORIGIN
from clusters.errors import NotFound
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kueue.multikueue.settings import DEFAULT_ORIGIN
from clusters.models import DispatchRound
from clusters.reconcile.external.ways import Way
from tests.reconcile.admission_harness import is_true
from tests.reconcile.beside.policy import bound
from tests.reconcile.beside.roads import Beside, configuration, run_one
from tests.waiting import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db(transaction=True)]


def owners_of_the_field(workload: dict) -> list[str]:
    return [
        f"{entry['manager']}:{entry['operation']}"
        for entry in workload["metadata"]["managedFields"]
        if "f:nominatedClusterNames" in entry.get("fieldsV1", {}).get("f:status", {})
    ]


def test_dispatcher_hands_its_field_over_to_kueue(external: Beside):
    external.start(configuration())
    run_one(external)


def test_dispatcher_that_keeps_its_field_blocks_kueue_for_ever(external: Beside):
    """The negative control of the test before: why it is handed over."""
    external.submit("train", gpus=2)
    workload = eventually(lambda: is_true(w := external.workload("train"), "QuotaReserved") and w)
    external.manager.patch(
        r.WORKLOAD,
        workload["metadata"]["name"],
        {"status": {"nominatedClusterNames": [external.workers[0]]}},
        namespace=external.name,
        options=WriteOptions(subresource="status"),
    )
    eventually(
        lambda: any(
            (item.get("status") or {}).get("active")
            for item in external.copies(r.JOB)[external.workers[0]]
        ),
        why=external.story,
    )
    log = external.fleet.manager.log_of("kueue")
    eventually(
        lambda: "clusterName and nominatedClusterNames are mutually exclusive" in log.read_text(),
    )
    assert not external.status("train").get("clusterName")


@pytest.mark.slow
def test_dispatcher_applies_as_itself_where_the_policy_is_bound(external: Beside):
    with bound(external.manager):
        external.register()
        external.start(configuration())
        run_one(external)
        assert external.row.nomination_way.way == Way.POLICY
        # Kueue's own apply took nothing away from us: the policy emptied what is still ours.
        assert owners_of_the_field(external.workload("train")) == ["gpu-budget-portal:Apply"]


@pytest.mark.slow
def test_dispatcher_nominates_in_rounds_and_keeps_why(external: Beside):
    """One worker is full: it comes last, with its reason; the next round of a waiting job adds."""
    external.register()
    external.start(configuration())
    external.submit("first", gpus=8)
    full = external.wait_running("first")
    external.submit("second", gpus=4)
    other = external.wait_running("second")
    assert {full, other} == set(external.workers)
    uid = external.workload("second")["metadata"]["uid"]
    row = eventually(lambda: DispatchRound.objects.filter(workload_uid=uid, winner=other).first())
    assert row.nominated == [other]
    assert "no room now" in row.why[full]
    assert "fits in the workspace's own quota" in row.why[other]


def test_dispatcher_renominates_a_worker_that_admitted_without_a_nomination(external: Beside):
    """The withdraw trap: Kueue runs the job there, and may not record it until it is nominated."""
    external.submit("train", gpus=2)
    local = eventually(lambda: is_true(w := external.workload("train"), "QuotaReserved") and w)
    first = external.workers[0]
    # As Kueue left it there, had it been withdrawn at the wrong moment.
    metadata = {
        "name": local["metadata"]["name"],
        "namespace": external.name,
        "labels": {ORIGIN: DEFAULT_ORIGIN},
    }
    worker, copy = external.clients[first], {"metadata": metadata, "spec": local["spec"]}
    worker.create(r.WORKLOAD, copy)
    log = external.fleet.manager.log_of("kueue")

    def refused() -> bool:
        """Kueue was restarted a moment ago: it may not have seen the copy come, and is told; or it
        has cleaned up what it knew no workload for yet, and the copy is left there once more.
        """
        seen = {"metadata": {"annotations": {"looked-at": str(time.monotonic())}}}
        try:
            worker.patch(r.WORKLOAD, metadata["name"], seen, namespace=external.name)
        except NotFound:
            worker.create(r.WORKLOAD, copy)
        return "it must be one of the nominatedClusterNames" in log.read_text()

    eventually(refused, why=external.story)
    assert not external.status("train").get("clusterName")
    external.start(configuration())
    assert external.wait_running("train") == first


@pytest.mark.slow
def test_dispatcher_wakes_a_workload_when_its_worker_comes_back(external: Beside):
    """Nothing in Kueue looks again when a connection returns; its own next try is far away."""
    lost, other = external.workers
    external.clients[other].patch(r.CLUSTER_QUEUE, external.name, {"spec": {"stopPolicy": "Hold"}})
    external.submit("train", gpus=2)
    external.plane(lost).kill_api_server()
    eventually(lambda: not is_true(external.manager.get(r.MULTIKUEUE_CLUSTER, lost), "Active"))
    external.start(configuration())
    eventually(
        lambda: external.status("train").get("nominatedClusterNames"),
        why=external.story,
    )  # fmt: skip
    external.plane(lost).start_api_server()
    assert external.wait_running("train", seconds=90) == lost
