"""What a window writes to a worker, and what the dispatcher makes of a cordoned one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from budgets.selectors import utc_now
from clusters import services
from clusters.kube import resources as r
from clusters.kube.client import KubeClient
from clusters.kueue.multikueue.dispatchers import all_at_once
from clusters.kueue.multikueue.group import Copy, Group
from clusters.kueue.multikueue.offers import Fit, WorkerQuota, as_sent
from clusters.models import Cluster
from clusters.reconcile.multikueue.workers import Cordoned
from tests.acting.conftest import NAMESPACE, workload_document
from tests.builders import SmallFleet, line
from tests.reconcile.fleet_rows import quota_hand

pytestmark = [pytest.mark.django_db, pytest.mark.embedded]
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "uid": "1"}}


def plan(fleet: SmallFleet, **changes):
    terms = {"cluster": None, "flavor": None, "drains": False, "reason": "new cooling"}
    ends_at = utc_now() + timedelta(hours=1)
    return services.plan_maintenance(
        fleet.admin, starts_at=None, ends_at=ends_at, **{**terms, **changes}
    )


def offer(kube: KubeClient):
    """What the worker's own objects say that it could give a job of 8 GPUs."""
    quota = WorkerQuota(
        queues=kube.list(r.CLUSTER_QUEUE).items,
        cohorts=kube.list(r.COHORT).items,
        flavors=kube.list(r.RESOURCE_FLAVOR).items,
        local_queues=kube.list(r.LOCAL_QUEUE).items,
    )
    return quota.offer(as_sent(workload_document("train", OWNER)), prices={})


def test_a_cordoned_worker_is_held_and_freed_by_the_quota_sync(
    fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    fleet.revise(fleet.vision, line("h100", 8))

    def policies() -> set[str]:
        return {item["spec"]["stopPolicy"] for item in kube.list(r.CLUSTER_QUEUE).items}

    with quota_hand(worker.slug) as hand:
        hand.settle()
        assert policies() == {"None"}
        window = plan(fleet, cluster=worker, drains=True)
        hand.settle()
        assert policies() == {"HoldAndDrain"}
        services.end_maintenance(fleet.admin, window=window, reason="done")
        hand.settle()
        assert policies() == {"None"}


def test_a_cordoned_flavor_keeps_its_quota_and_is_not_on_offer(
    fleet: SmallFleet, worker: Cluster, kube: KubeClient
) -> None:
    fleet.revise(fleet.vision, line("h100", 48))  # more than the other worker has
    with quota_hand(worker.slug) as hand:
        hand.settle()
        assert offer(kube).fit is Fit.FLOOR
        before = kube.get(r.CLUSTER_QUEUE, NAMESPACE)["spec"]
        window = plan(fleet, cluster=worker, flavor=fleet.flavors["h100"])
        hand.settle()
        found = offer(kube)
        assert found.fit is Fit.NEVER
        assert "gpu-budget-portal.dev/maintenance" in found.why_not
        assert kube.get(r.CLUSTER_QUEUE, NAMESPACE)["spec"] == before
        services.end_maintenance(fleet.admin, window=window, reason="done")
        hand.settle()
        assert offer(kube).fit is Fit.FLOOR


def test_the_dispatcher_passes_a_cordoned_worker_over_and_comes_back(
    fleet: SmallFleet, worker: Cluster
) -> None:
    looked_anew: list[bool] = []
    cordoned = Cordoned()

    def nominated():
        cordoned._known._read_at = -10.0
        if cordoned.look():
            looked_anew.append(True)
        group = Group(
            local=None,
            check="c",
            now=utc_now(),
            copies={"gpu-east": Copy(), "gpu-west": Copy()},
            blocked=cordoned.words,
        )
        return all_at_once(group)

    assert nominated().clusters == ("gpu-east", "gpu-west")
    window = plan(fleet, cluster=worker)
    found = nominated()
    assert found.clusters == ("gpu-west",)
    assert found.opened is not None
    assert found.opened.why["gpu-east"].startswith("cordoned for maintenance until 20")
    assert looked_anew == [True]
    services.end_maintenance(fleet.admin, window=window, reason="done")
    assert nominated().clusters == ("gpu-east", "gpu-west")
    assert looked_anew == [True, True], "what waits is offered the freed worker"
