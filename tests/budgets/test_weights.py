"""Weights of fair sharing: who gives them, what is refused, and what they become."""

from __future__ import annotations

from decimal import Decimal

import pytest

from budgets import services
from budgets.errors import Rejected
from budgets.models import AuditEntry
from budgets.plan import ClusterPlace, plan_quota
from budgets.selectors import promises_in_force
from clusters.manifests.translate import Site, render
from tests.builders import SmallFleet

pytestmark = pytest.mark.django_db
PLACES = (
    ClusterPlace("manager", True, workers=("gpu-east",)),
    ClusterPlace("gpu-east", False),
    ClusterPlace("alone", False, is_single=True),
)


def written(place: ClusterPlace) -> dict[tuple[str, str], str]:
    """Kind and name → weight, of every document that has one."""
    documents = render(plan_quota(promises_in_force(), place), site=Site("test"))
    return {
        (document["kind"], document["metadata"]["name"]): document["spec"]["fairSharing"]["weight"]
        for document in documents
        if "fairSharing" in document.get("spec", {})
    }


def test_weights_are_written_on_every_cluster_and_the_usual_one_is_left_out(fleet: SmallFleet):
    assert [written(place) for place in PLACES] == [{}, {}, {}]
    services.weigh_workspace(fleet.admin, workspace=fleet.vision, weight=Decimal("2.500"))
    services.weigh_workspace(fleet.admin, workspace=fleet.speech, weight=Decimal(0))
    services.weigh_account(fleet.admin, account=fleet.globex, weight=Decimal(100))
    want = {
        ("ClusterQueue", "acme-vision"): "2.5",
        ("ClusterQueue", "acme-speech"): "0",
        ("Cohort", "globex"): "100",
    }
    assert [written(place) for place in PLACES] == [want, want, want]
    services.weigh_workspace(fleet.admin, workspace=fleet.vision, weight=Decimal(1))
    assert ("ClusterQueue", "acme-vision") not in written(PLACES[0])


def test_weight_raises_one_generation_and_is_in_the_log(fleet: SmallFleet):
    def generations() -> list[int]:
        for row in (fleet.vision.budget, fleet.speech.budget, fleet.acme, fleet.globex):
            row.refresh_from_db()
        rows = (fleet.vision.budget, fleet.speech.budget, fleet.acme, fleet.globex)
        return [row.generation for row in rows]

    before = generations()
    services.weigh_workspace(
        fleet.admin, workspace=fleet.vision, weight=Decimal(2), reason="They pay twice."
    )
    services.weigh_account(fleet.admin, account=fleet.globex, weight=Decimal("0.5"))
    assert [now - then for now, then in zip(generations(), before, strict=True)] == [1, 0, 0, 1]
    account, workspace = AuditEntry.objects.filter(action__endswith=".weigh").order_by("-pk")
    assert (workspace.action, workspace.subject) == ("workspace.weigh", "workspace:acme-vision")
    assert workspace.workspace == fleet.vision
    assert (workspace.before, workspace.after) == (
        {"fair_weight": "1.000"},
        {"fair_weight": "2.000"},
    )
    assert workspace.reason == "They pay twice."
    assert (account.account, account.after) == (fleet.globex, {"fair_weight": "0.500"})
    # The same again changes nothing on any cluster.
    services.weigh_workspace(fleet.admin, workspace=fleet.vision, weight=Decimal(2))
    assert generations()[0] == before[0] + 1


@pytest.mark.parametrize("weight", ["-1", "-0.001", "0.0001", "1234567", "NaN", "Infinity"])
def test_weight_that_kueue_would_refuse_or_round_is_refused(fleet: SmallFleet, weight: str):
    with pytest.raises(Rejected) as caught:
        services.weigh_workspace(fleet.admin, workspace=fleet.vision, weight=Decimal(weight))
    assert {fault.field for fault in caught.value.faults} == {"fair_weight"}
    fleet.vision.refresh_from_db()
    assert fleet.vision.fair_weight == 1


def test_what_is_archived_is_not_weighed(fleet: SmallFleet):
    services.archive_workspace(fleet.admin, workspace=fleet.search, reason="over")
    with pytest.raises(Rejected, match="archived"):
        services.weigh_workspace(fleet.admin, workspace=fleet.search, weight=Decimal(2))
