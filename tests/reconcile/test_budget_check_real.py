"""Spend rules under a real Kueue and MultiKueue, with the generated least rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F

from budgets.models import Interval, SpendRule
from budgets.services.spending import change_spend_rule, remove_spend_rule
from clusters.kube import resources as r
from clusters.manifests.names import SPEND_CHECK
from tests.builders import SmallFleet, line
from tests.controlplane.fleet import Fleet
from tests.controlplane.kwok_nodes import NodeShape
from tests.controlplane.queues import condition_of
from tests.reconcile.real_road import NAMESPACE, Road
from tests.reconcile.spend_hand import SpendHand, granted, spend_hand, spent

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.django_db]


class Stage:
    """The manager, its jobs, and the two bodies that a test turns."""

    def __init__(self, road: Road, spend: SpendHand) -> None:
        self.road, self.spend = road, spend

    def runs(self, *names: str) -> bool:
        """Whether all of them are admitted, and a worker has each."""
        found = [self.road.workload(name) for name in names]
        return all(
            condition_of(item, "Admitted") == "True" and item["status"].get("clusterName")
            for item in found
        )

    def entry(self, name: str) -> str:
        entries = self.road.workload(name).get("status", {}).get("admissionChecks", [])
        return next((item["state"] for item in entries if item["name"] == SPEND_CHECK), "")

    def queue(self) -> dict[str, Any]:
        return self.road.manager.get(r.CLUSTER_QUEUE, NAMESPACE)

    def stop_policy(self) -> str:
        return str(self.queue()["spec"].get("stopPolicy"))

    def checks(self) -> set[str]:
        strategy = self.queue()["spec"].get("admissionChecksStrategy") or {}
        return {item["name"] for item in strategy.get("admissionChecks") or []}

    def until(self, check: Callable[[], object]) -> None:
        """Turns the check's shift and quota sync until it holds."""
        self.spend.until(
            check,
            seconds=120,
            beside=lambda: [hand.settle(turns=2) for hand in self.road.hands],
            why=self.told,
        )

    def without_quota_sync_until(self, check: Callable[[], object]) -> None:
        """Turns the check's shift alone: what the queue is told lags behind."""
        self.spend.until(check, seconds=60, why=self.told)

    def told(self) -> str:
        found = self.road.manager.list(r.WORKLOAD).items
        return str([(item["metadata"]["name"], item.get("status")) for item in found])


@pytest.fixture
def stage(kueue_road: Road, fleet: SmallFleet, kueue_fleet: Fleet) -> Iterator[Stage]:
    for plane in kueue_fleet.workers:
        plane.create_nodes(2, shape=NodeShape(labels={"gpu": "h100"}), prefix=f"cap-{plane.name}")
    fleet.revise(fleet.vision, line("h100", 8, 16))
    kueue_road.until(kueue_road.is_settled)
    with _hand(kueue_road) as spend:
        found = Stage(kueue_road, spend)
        yield found
        SpendRule.objects.update(removed_at=F("created_at"))
        kueue_road.clear()


@contextmanager
def _hand(road: Road) -> Iterator[SpendHand]:
    """With the portal's own rights on the manager."""
    context = road.hands[0].context
    with spend_hand(context.client, context.cluster) as spend:
        yield spend


def test_a_cap_holds_rejects_lets_back_and_drains_and_touches_no_other_running_job(
    stage: Stage, fleet: SmallFleet
) -> None:
    stage.road.submit("before")
    stage.until(lambda: stage.runs("before"))

    # A hard rule puts the check on the queue of a workspace in which a job runs already.
    rule = granted(fleet, 100)
    stage.until(lambda: SPEND_CHECK in stage.checks())
    stage.until(lambda: condition_of(stage.queue(), "Active") == "True")
    stage.until(lambda: stage.entry("before") == "Ready")
    stage.road.submit("within")
    stage.until(lambda: stage.runs("before", "within"))
    assert condition_of(stage.road.workload("before"), "Evicted") != "True"

    # The cap is reached; the queue has not been told yet: a job that races is rejected.
    used = spent(fleet, burst_hours=120)
    stage.spend.settle_now()
    stage.road.submit("races")
    stage.without_quota_sync_until(
        lambda: stage.road.workload("races").get("spec", {}).get("active") is False
    )
    stage.without_quota_sync_until(
        lambda: condition_of(stage.road.workload("races"), "Evicted") == "True"
    )
    assert stage.stop_policy() == "None"
    assert stage.runs("before", "within")

    # Quota sync stops the queue: what comes now waits and holds no quota.
    stage.until(lambda: stage.stop_policy() == "Hold")
    stage.road.submit("waits")
    stage.until(lambda: condition_of(stage.road.workload("waits"), "QuotaReserved") == "False")
    assert stage.runs("before", "within")

    # A raise lets all of them go on, the rejected one too.
    change_spend_rule(fleet.owner, rule=rule, amount=Decimal(500), reason="topped up")
    stage.until(lambda: stage.stop_policy() == "None")
    stage.spend.settle_now()
    stage.until(lambda: stage.runs("before", "within", "races", "waits"))

    # Hold and drain: nothing is stopped within the grace, everything afterwards.
    change_spend_rule(
        fleet.owner, rule=rule, amount=Decimal(60), action="hold_and_drain", grace_minutes=9,
        reason="the money is gone",
    )  # fmt: skip
    stage.until(lambda: stage.stop_policy() == "Hold")
    assert stage.runs("before", "within", "races", "waits")
    SpendRule.objects.update(reached_at=F("reached_at") - timedelta(minutes=10))
    stage.spend.settle_now()
    stage.until(lambda: stage.stop_policy() == "HoldAndDrain")
    stage.until(
        lambda: (
            not any(
                condition_of(stage.road.workload(name), "QuotaReserved") == "True"
                for name in ("before", "within", "races", "waits")
            )
        )
    )

    # Without the rule the check leaves the queue, and all of them come back.
    assert Interval.objects.filter(pk=used.pk).exists()
    remove_spend_rule(fleet.owner, rule=SpendRule.objects.get(), reason="enough")
    stage.until(lambda: SPEND_CHECK not in stage.checks())
    stage.until(lambda: stage.runs("before", "within", "races", "waits"))
    stage.until(
        lambda: (
            not any(
                item["metadata"]["name"] == SPEND_CHECK
                for item in stage.road.manager.list(r.ADMISSION_CHECK).items
            )
        )
    )
