"""The shadow beside something that decides, on an embedded cluster: it explains and compares.

The part of Kueue is played by the admission shift: same API, another process.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from clusters.kube import resources as r
from clusters.models import Cluster, PendingReason, Question, ShadowDifference, ShadowTally
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.shadow.body import ShadowBody
from clusters.reconcile.shadow.episodes import Patience
from clusters.services.questions import Reply, ReplyState, answer_of, ask_what_if
from tests.builders import SmallFleet
from tests.factories import UserFactory
from tests.reconcile.admission_harness import (
    GPU,
    NS,
    Embedded,
    condition,
    is_true,
    job,
    kueue,
    quota_objects,
)
from tests.reconcile.fleet_rows import register
from tests.waiting import eventually

pytestmark = [pytest.mark.embedded, pytest.mark.django_db(transaction=True)]

QUICK = Patience(rest=timedelta(seconds=1), omission=timedelta(seconds=3))
FAIR = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}}


@pytest.fixture
def world():
    with Embedded("gpu-east", webhooks=True) as world:
        yield world


@pytest.fixture
def cluster(fleet: SmallFleet, world: Embedded) -> Cluster:
    return register("gpu-east", world["gpu-east"].kubeconfig)


class Reader:
    """A client that can only read."""

    def __init__(self, client: Any) -> None:
        self.get, self.list, self.watch = client.get, client.list, client.watch


def start_shadow(world: Embedded, cluster: Cluster, configuration: Any = None) -> None:
    def body(context: ShiftContext) -> ShadowBody:
        context.client = Reader(context.client)
        return ShadowBody(context, configuration=configuration, patience=QUICK)

    world.start("gpu-east", "shadow", pk=cluster.pk, body=body)


def tally() -> tuple[int, int]:
    row = ShadowTally.objects.filter(cluster="gpu-east").first()
    return (0, 0) if row is None else (row.compared, row.different)


def test_shadow_says_what_the_cluster_says_and_finds_no_difference(world, cluster):
    place = world["gpu-east"]
    urgent = kueue("WorkloadPriorityClass", "urgent", {})
    urgent = {**urgent, "value": 100}
    urgent.pop("spec")
    place.create(*quota_objects(8), urgent, job("first", gpus=8, run_s=60))
    world.start("gpu-east", "admission")
    start_shadow(world, cluster)
    eventually(lambda: is_true(place.workload_of("first"), "Admitted"))
    place.create(job("second", gpus=4, run_s=0.2))
    row = eventually(
        lambda: PendingReason.objects.filter(
            name__startswith="job-second", evidence__reason="WaitingForQuota"
        ).first()
    )
    told = eventually(lambda: condition(place.workload_of("second"), "QuotaReserved"))
    assert told["message"].endswith("4 more needed")
    assert row.evidence["message"] == told["message"]
    assert told["reason"] == "Pending", "Kueue's one word for it, as it comes"
    assert (row.namespace, row.evidence["position"]) == (NS, 1)
    [holder] = row.evidence["holders"]
    assert holder["amounts"] == {f"h100/{GPU}": 8}
    assert holder["protection"] == "PRIORITY"
    assert holder["since"]

    # Long enough to be seen admitted and finished apart.
    place.create(job("high", gpus=8, run_s=2, priority_class="urgent"))
    eventually(lambda: is_true(place.workload_of("high"), "Finished"))
    eventually(lambda: tally()[0] >= 4, seconds=90, why=lambda: str(tally()))
    assert list(ShadowDifference.objects.all()) == []
    assert tally()[1] == 0


def test_shadow_notices_a_configuration_that_is_not_in_force(world, cluster):
    """Two queues borrow from their Cohort; with fair sharing the emptier one would be served."""
    place = world["gpu-east"]
    gpu = {"name": GPU, "nominalQuota": "8"}
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [gpu]}]}]
    place.create(kueue("Cohort", "pool", {"resourceGroups": groups}))
    for namespace in ("acme-a", "acme-b"):
        for document in quota_objects(0, namespace=namespace, cohort="pool"):
            if document["kind"] != "ResourceFlavor" or namespace == "acme-a":
                place.create(document)
    place.create(job("rich", gpus=6, run_s=60, namespace="acme-a"))
    place.create(job("ends", gpus=2, run_s=60, namespace="acme-a"))
    world.start("gpu-east", "admission")
    # Both: created within one second, either may be first, and what comes after must find no room.
    for name in ("rich", "ends"):
        eventually(lambda name=name: is_true(place.workload_of(name, "acme-a"), "Admitted"))
    place.create(job("older", gpus=2, run_s=60, namespace="acme-a"))
    eventually(
        lambda: (
            condition(place.workload_of("older", "acme-a"), "QuotaReserved").get("status")
            == "False"
        )
    )
    time.sleep(1.1)  # Creation times have whole seconds.
    place.create(job("newer", gpus=2, run_s=60, namespace="acme-b"))
    start_shadow(world, cluster, FAIR)
    waiting = PendingReason.objects.order_by("name")
    eventually(lambda: waiting.count() == 2, why=lambda: str(waiting.values_list("name")))
    place.client.delete(r.JOB, "ends", namespace="acme-a")
    admissions = ShadowDifference.objects.filter(kind=ShadowDifference.Kind.ADMISSION)
    found = eventually(admissions.first)
    assert found.name.startswith("job-older")
    assert found.portal_says["decision"] == "pending"
    assert found.kueue_did["decision"] == "admitted"
    assert tally()[1] >= 1


def test_shadow_answers_what_if_and_leaves_the_cluster_alone(world, cluster):
    place = world["gpu-east"]
    place.create(*quota_objects(8), job("first", gpus=8, run_s=60))
    world.start("gpu-east", "admission")
    eventually(lambda: is_true(place.workload_of("first"), "Admitted"))
    place.create(job("second", gpus=4))
    start_shadow(world, cluster)
    eventually(lambda: PendingReason.objects.exists())
    raised = {"kind": "Raise", "on": "ClusterQueue", "key": NS, "flavor": "h100", "amount": 4}
    question = ask_what_if(cluster, [raised], UserFactory())
    reply = reply_to(question)
    assert reply.state is ReplyState.ANSWERED, reply.problem
    [started] = reply.answer["started"]
    assert started["key"] == f"{NS}/{place.workload_of('second')['metadata']['name']}"
    assert reply.answer["gained"] == {NS: {f"h100/{GPU}": 4}}
    assert reply.answer["settled"] is True
    assert not is_true(place.workload_of("second"), "QuotaReserved")


def test_admission_shift_tells_why_and_answers(world, cluster):
    place = world["gpu-east"]
    place.create(*quota_objects(8), job("first", gpus=8, run_s=60))
    world.start("gpu-east", "admission", pk=cluster.pk)
    eventually(lambda: is_true(place.workload_of("first"), "Admitted"))
    place.create(job("second", gpus=4))
    row = eventually(
        lambda: PendingReason.objects.filter(
            name__startswith="job-second", evidence__reason="WaitingForQuota"
        ).first()
    )
    told = eventually(lambda: condition(place.workload_of("second"), "QuotaReserved"))
    assert row.evidence["message"] == told["message"]
    question = ask(cluster, {"kind": "Drain"})
    reply = reply_to(question)
    assert reply.state is ReplyState.ANSWERED, reply.problem
    assert reply.answer["stoppedCount"] == 1
    question = ask(cluster, RAISE_NOWHERE)
    reply = reply_to(question)
    assert reply.state is ReplyState.REFUSED
    assert reply.problem == "There is no ClusterQueue nowhere on this cluster."
    place.client.delete(r.JOB, "second", namespace=NS)
    eventually(lambda: not PendingReason.objects.exists())


RAISE_NOWHERE = {
    "kind": "Raise", "on": "ClusterQueue", "key": "nowhere", "flavor": "h100", "amount": 1,
}  # fmt: skip


def ask(cluster: Cluster, change: dict[str, Any]):
    return ask_what_if(cluster, [change], None)


def reply_to(question: Question) -> Reply:
    def arrived() -> Reply | None:
        reply = answer_of(question)
        is_open = reply.state in (ReplyState.WAITING, ReplyState.SILENT)
        return None if is_open else reply

    return eventually(arrived)
