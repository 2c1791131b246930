"""Weights of the portal on a real Kueue: taken, put back after a hand edit, and used for shares."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from budgets import services as promises
from budgets.selectors.clock import utc_now
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.reports import share_reports
from clusters.manifests.names import key_of
from clusters.reconcile.warm_engine import ENGINE_KINDS, OPTIONAL_KINDS
from tests.builders import SmallFleet, line
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.queues import job
from tests.reconcile.fleet_rows import quota_hand
from tests.reconcile.real_clusters import admin_client, register_real
from tests.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.django_db]

FAIR = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}}
QUEUE = "acme-vision"


def test_real_kueue_shares_by_the_weights_of_the_portal(
    own_cluster: ControlPlane, fleet: SmallFleet, settings
) -> None:
    settings.KUEUE_PROOF_SECONDS = PATIENCE_S
    own_cluster.start_kueue(FAIR)
    h100 = fleet.flavors["h100"]
    for slug in ("gpu-east", "gpu-west"):
        promises.retire_capacity(None, cluster=slug, reason="Elsewhere.")
    promises.set_capacity(None, cluster="alone", flavor=h100, gpus=16)
    fleet.revise(fleet.vision, line("h100", 4, 16))
    fleet.revise(fleet.speech, line("h100", 12, 12))
    promises.weigh_workspace(fleet.admin, workspace=fleet.vision, weight=Decimal(2))
    register_real(own_cluster, "alone", role="single", mode="kueue")
    with admin_client(own_cluster) as client, quota_hand("alone") as hand:

        def until(check: Callable[[], object]) -> None:
            eventually(lambda: (hand.settle(turns=3), check())[1])

        def weight() -> object:
            found = {key_of(item).name: item for item in client.list(r.CLUSTER_QUEUE).items}
            return found.get(QUEUE, {}).get("spec", {}).get("fairSharing")

        def share() -> object:
            status = client.get(r.CLUSTER_QUEUE, QUEUE).get("status", {})
            return status.get("fairSharing", {}).get("weightedShare")

        until(lambda: weight() == {"weight": "2"})
        document = job("borrows", gpus=8, run_for="600s")
        document["metadata"]["namespace"] = QUEUE
        client.create(r.JOB, document)
        # 4 borrowed of 16 that can be lent, by the weight of 2.
        eventually(lambda: share() == 125, why=share)

        # The portal's own numbers are those of Kueue's status.
        engine = Engine(FAIR)
        for kind in ENGINE_KINDS:
            for item in client.list(kind).items if kind not in OPTIONAL_KINDS else ():
                engine.upsert(item, kind=kind.kind, now=utc_now())
        told = {each.name: each for each in share_reports(engine)}[QUEUE]
        assert (told.borrowed, told.lendable, told.published) == (4, 16, 125)

        # A hand edit is put back; fractions are taken, and a weight that is given up goes.
        other = {"spec": {"fairSharing": {"weight": "9"}}}
        client.patch(r.CLUSTER_QUEUE, QUEUE, other, options=WriteOptions(field_manager="edit"))
        until(lambda: weight() == {"weight": "2"})
        promises.weigh_workspace(fleet.admin, workspace=fleet.vision, weight=Decimal("0.5"))
        until(lambda: weight() is not None and share() == 500)
        promises.weigh_workspace(fleet.admin, workspace=fleet.vision, weight=Decimal(1))
        until(lambda: not (weight() or {}).get("weight") and share() == 250)
