"""The shadow beside a real Kueue, under the generated least rights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.manifests.names import KUEUE_NAMESPACE, PORTAL_ACCOUNT, REHEARSAL
from clusters.models import PendingReason, ShadowDifference, ShadowTally
from clusters.reconcile.foreground import ForegroundShift
from clusters.reconcile.shadow.body import ShadowBody
from clusters.reconcile.shadow.episodes import Patience
from tests.builders import SmallFleet
from tests.controlplane.fleet import Fleet
from tests.controlplane.kwok_nodes import GPU
from tests.controlplane.queues import condition_of, job
from tests.reconcile.admission_harness import (
    RunningShift,
    condition,
    facts,
    kueue,
    quota_objects,
)
from tests.reconcile.fleet_rows import register
from tests.reconcile.real_clusters import admin_client, grant_rights
from tests.resources import resource_of
from tests.waiting import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db(transaction=True)]

QUICK = Patience(rest=timedelta(seconds=2), omission=timedelta(seconds=8))
FAIR = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}}


class Shadowed:
    """One real cluster with a shadow on it, and objects of this test alone."""

    def __init__(self, plane: Any, name: str) -> None:
        self.name, self.slug = name, plane.name
        self.namespaces = (f"{name}-a", f"{name}-b")
        self.client: KubeClient = admin_client(plane)
        grant_rights(plane, role="worker", mode="kueue")
        self._text = plane.kubeconfig_for(PORTAL_ACCOUNT, namespace=KUEUE_NAMESPACE)
        self._shifts: list[RunningShift] = []

    def start(self, slug: str, *, configuration: Any = None, installation: str = "") -> None:
        cluster = register(slug, self._text)
        shift = ForegroundShift(
            kubeconfig=self._text,
            role="shadow",
            facts=replace(
                facts(slug, pk=cluster.pk),
                installation=installation or settings.PORTAL_INSTALLATION,
            ),
            holder=slug,
            body=lambda context: ShadowBody(context, configuration=configuration, patience=QUICK),
        )
        self._shifts.append(RunningShift(shift))

    def lay(self, *, gpus: int, pool: int = 0) -> None:
        """Two queues with ``gpus`` each of their own, in a Cohort with ``pool`` more."""
        quota = [{"name": GPU, "nominalQuota": str(pool)}]
        flavors = [{"name": self.name, "resources": quota}]
        group = {"coveredResources": [GPU], "flavors": flavors}
        self.create(kueue("Cohort", self.name, {"resourceGroups": [group]}))
        known = {item["metadata"]["name"] for item in self.client.list(r.RESOURCE_FLAVOR).items}
        for namespace in self.namespaces:
            for document in quota_objects(
                gpus, namespace=namespace, flavor=self.name, cohort=self.name, labels={}
            ):
                name = document["metadata"]["name"]
                if document["kind"] == "ResourceFlavor" and name in known:
                    continue
                known.add(name)
                self.create(document)
        urgent = kueue("WorkloadPriorityClass", f"{self.name}-urgent", {})
        del urgent["spec"]
        self.create({**urgent, "value": 100})

    def close(self) -> None:
        for shift in self._shifts:
            shift.stop()
        self.client.close()

    def create(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.client.create(resource_of(document), document)

    def submit(self, which: int, name: str, *, gpus: int, run_for: str, priority: str = "") -> None:
        document = job(name, gpus=gpus, run_for=run_for)
        document["metadata"]["namespace"] = self.namespaces[which]
        if priority:
            document["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
        self.create(document)

    def workload(self, job_name: str) -> dict[str, Any]:
        for workload in self.client.list(r.WORKLOAD).items:
            owners = workload["metadata"].get("ownerReferences") or []
            is_ours = workload["metadata"]["namespace"] in self.namespaces
            if is_ours and any(owner["name"] == job_name for owner in owners):
                return workload
        return {}

    def until(self, job_name: str, kind: str, status: str = "True") -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            workload = self.workload(job_name)
            return workload if condition_of(workload, kind) == status else None

        return eventually(reached, why=lambda: str(self.workload(job_name)))

    def differences(self, slug: str) -> list[ShadowDifference]:
        rows = ShadowDifference.objects.filter(cluster=slug, namespace__in=self.namespaces)
        return list(rows.order_by("pk"))


@pytest.fixture
def shadowed(kueue_fleet: Fleet, fleet: SmallFleet, unique_name) -> Iterator[Shadowed]:
    """A worker under a real Kueue."""
    found = Shadowed(kueue_fleet.workers[0], unique_name("shadow"))
    yield found
    found.close()


def test_shadow_agrees_with_a_real_kueue_and_repeats_its_reason(shadowed: Shadowed) -> None:
    shadowed.lay(gpus=4)
    shadowed.submit(0, "first", gpus=8, run_for="600s")
    shadowed.until("first", "Admitted")
    shadowed.start("gpu-east")
    shadowed.submit(0, "second", gpus=2, run_for="1s")
    told = condition(shadowed.until("second", "QuotaReserved", "False"), "QuotaReserved")
    rows = PendingReason.objects.filter(namespace__in=shadowed.namespaces)
    row = eventually(
        lambda: rows.filter(name__contains="second", evidence__reason="WaitingForQuota").first(),
    )
    assert row.evidence["message"] == told["message"]
    assert row.evidence["lacking"] == {f"{shadowed.name}/{GPU}": 2}

    # The owner of half the quota comes and takes it back; then everything runs to its end.
    shadowed.submit(1, "owner", gpus=4, run_for="2s")
    shadowed.until("owner", "Finished")
    shadowed.submit(0, "urgent", gpus=2, run_for="1s", priority=f"{shadowed.name}-urgent")
    shadowed.until("urgent", "Finished")
    shadowed.until("second", "Finished")
    for number in range(4):
        shadowed.submit(number % 2, f"small-{number}", gpus=1 + number % 2, run_for="1s")
    for number in range(4):
        shadowed.until(f"small-{number}", "Finished")
    tally = ShadowTally.objects.filter(cluster="gpu-east")
    eventually(lambda: tally.filter(compared__gte=8).exists())
    time.sleep(QUICK.omission.total_seconds() + 2)
    found = shadowed.differences("gpu-east")
    assert found == [], [(item.portal_says, item.kueue_did) for item in found]


def test_shadow_with_another_configuration_than_kueues_notices(shadowed: Shadowed) -> None:
    """What becomes free goes to the older one; with fair sharing to the queue that has less."""
    shadowed.lay(gpus=0, pool=8)
    shadowed.submit(0, "rich", gpus=6, run_for="600s")
    shadowed.submit(0, "ends", gpus=2, run_for="600s")
    shadowed.until("rich", "Admitted")
    shadowed.until("ends", "Admitted")
    shadowed.submit(0, "older", gpus=2, run_for="600s")
    shadowed.until("older", "QuotaReserved", "False")
    time.sleep(1.1)  # Creation times have whole seconds.
    shadowed.submit(1, "newer", gpus=2, run_for="600s")
    shadowed.until("newer", "QuotaReserved", "False")
    shadowed.start("gpu-east")
    shadowed.start("gpu-fair", configuration=FAIR, installation=REHEARSAL)
    rows = PendingReason.objects.filter(namespace__in=shadowed.namespaces)
    eventually(lambda: rows.count() == 4)
    shadowed.client.delete(r.JOB, "ends", namespace=shadowed.namespaces[0])
    shadowed.until("older", "Admitted")

    def noticed() -> list[ShadowDifference]:
        return [item for item in shadowed.differences("gpu-fair") if item.kind == "admission"]

    [found] = eventually(noticed)
    assert "older" in found.name
    assert found.portal_says["decision"] == "pending"
    assert found.kueue_did["clusterQueue"] == shadowed.namespaces[0]
    assert shadowed.differences("gpu-east") == []
