"""Who may ask the clusters, by the services themselves, whatever face is in front of them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from budgets.errors import NotAllowed, Rejected
from budgets.models import Role, Workspace
from budgets.services import create_user, grant_role
from clusters import selectors
from clusters.models import Cluster, Question
from clusters.services import ask_add, ask_drain, ask_raise
from tests.builders import PASSWORD, SmallFleet, line

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(fleet: SmallFleet) -> Cluster:
    """A worker beside its manager."""
    found = [
        Cluster.objects.create(
            slug=slug,
            name=slug,
            role=role,
            mode="kueue",
            server="https://x",
            context="x",
            user_kind="token",
            kubeconfig_sealed=b"x",
        )
        for slug, role in (("hub", "manager"), ("gpu-east", "worker"))
    ]
    return found[-1]


def fresh(fleet: SmallFleet) -> Workspace:
    """With the revision that is in force now."""
    return Workspace.objects.get(pk=fleet.vision.pk)


def test_owner_may_not_ask_about_nodes_and_clusters(fleet: SmallFleet, worker: Cluster):
    with pytest.raises(NotAllowed):
        ask_drain(fleet.owner, cluster=worker)
    h100 = fleet.flavors["h100"]
    with pytest.raises(NotAllowed):
        ask_add(fleet.owner, cluster=worker, flavor=h100, by=8, account=fleet.acme)
    assert not Question.objects.exists()


def test_viewer_and_stranger_may_not_ask_about_a_budget(fleet: SmallFleet, worker: Cluster):
    viewer = create_user(None, username="vera", email="v@example.org", password=PASSWORD)
    grant_role(None, user=viewer, role=Role.VIEWER, workspace=fleet.vision)
    for user, workspace in ((viewer, fleet.vision), (fleet.owner, fleet.search)):
        with pytest.raises(NotAllowed):
            ask_raise(user, workspace=workspace, flavor=fleet.flavors["h100"], by=8)
    assert not Question.objects.exists()


def test_budgets_that_may_be_asked_about_are_those_that_may_be_changed(fleet: SmallFleet):
    def names(user) -> list[str]:
        return [row.namespace for row in selectors.askable_workspaces(user)]

    assert names(fleet.owner) == ["acme-vision"]
    assert names(fleet.admin) == ["acme-speech", "acme-vision", "globex-search"]
    assert names(fleet.auditor) == []
    grant_role(None, user=fleet.owner, role=Role.OWNER, account=fleet.globex)
    assert names(fleet.owner) == ["acme-vision", "globex-search"]


def test_questions_are_their_askers(fleet: SmallFleet, worker: Cluster):
    fleet.revise(fleet.vision, line("h100", 8))
    asked = ask_raise(fleet.owner, workspace=fresh(fleet), flavor=fleet.flavors["h100"], by=8)
    keys = [row.pk for row in asked.questions]
    assert selectors.questions_for(fleet.owner, keys) == list(asked.questions)
    assert selectors.questions_for(fleet.admin, keys) == list(asked.questions)
    for user, wanted in ((fleet.auditor, keys), (fleet.admin, [*keys, uuid4()])):
        with pytest.raises(Question.DoesNotExist):
            selectors.questions_for(user, wanted)


@pytest.mark.parametrize("by", [0, -1, 100_001])
def test_number_of_added_gpus_has_to_make_sense(fleet: SmallFleet, worker: Cluster, by: int):
    with pytest.raises(Rejected):
        ask_add(None, cluster=worker, flavor=fleet.flavors["h100"], by=by, account=fleet.acme)


def test_nodes_need_one_receiver(fleet: SmallFleet, worker: Cluster):
    with pytest.raises(Rejected, match=r"account or a platform pool"):
        ask_add(None, cluster=worker, flavor=fleet.flavors["h100"], by=8)


def test_lowering_stops_at_nothing(fleet: SmallFleet, worker: Cluster):
    fleet.revise(fleet.vision, line("h100", 8, 12))
    asked = ask_raise(None, workspace=fresh(fleet), flavor=fleet.flavors["h100"], by=-80)
    [change] = asked.questions[0].asked["changes"]
    [quota] = change["document"]["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert (quota["nominalQuota"], quota["borrowingLimit"], quota["lendingLimit"]) == (
        "0",
        "4",
        "0",
    )
